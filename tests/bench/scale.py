"""The scenarios of scale: replicas, a full store, idle streams, memory, and what follows on paper."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tests.bench import contenders
from tests.bench.contenders import Contender
from tests.bench.figures import Outcome
from tests.bench.memory import measure_memory
from tests.bench.model import on_paper
from tests.bench.redis_process import own_redis
from tests.bench.replicas import measure_replicas
from tests.bench.scenarios import Bench
from tests.bench.stored import measure_stored
from tests.bench.streams import measure_streams
from tests.bench.wire import Target

SCALE: Final = ("replicas", "stored", "streams", "memory", "paper")


async def measure_scale(
    bench: Bench,
    target: Target,
    wanted: Sequence[str],
    add: Callable[[Outcome], None],
    say: Callable[[str], None],
) -> None:
    """Measure what is wanted of `SCALE`, on a Redis of its own for each; print the model at the end."""

    async def gateway(store: str, workers: int) -> Contender:
        return await contenders.start_gateway(target, store, workers)

    async def replicas() -> list[Outcome]:
        async with own_redis() as server:
            return await measure_replicas(bench, gateway, server)

    async def stored() -> list[Outcome]:
        return await measure_stored(bench.pace)

    async def streams() -> list[Outcome]:
        watched = 0.2 if bench.pace.rounds == 1 else 10.0
        async with own_redis() as server:
            start = partial(contenders.start_gateway, target, server.url(), 1)
            return [await measure_streams(bench, start, watched=watched)]

    async def memory() -> list[Outcome]:
        return [await measure_memory(bench, gateway)]

    measured: list[Outcome] = []
    for name, measure in (
        ("replicas", replicas),
        ("stored", stored),
        ("streams", streams),
        ("memory", memory),
    ):
        if name not in wanted:
            continue
        began = time.monotonic()
        found = await measure()
        for outcome in found:
            add(outcome)
        measured += found
        say(f"({name} took {time.monotonic() - began:.0f} s)")
    if "paper" in wanted:
        say("\n" + on_paper(measured))
