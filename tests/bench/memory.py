"""What a task takes of Redis's memory: stored with small and large results, and while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tests.bench import payloads
from tests.bench.contenders import Contender
from tests.bench.figures import Figures, Outcome
from tests.bench.load import Kind, Order
from tests.bench.redis_process import Server, own_redis
from tests.bench.replicas import Maker
from tests.bench.scenarios import Bench
from tests.bench.wire import WrongAnswer

# Row: how it is made, and its tool.
STORED: Final[dict[str, tuple[Kind, str]]] = {
    "A, 1 kB": ("task_a", "kb1"),
    "C, 1 kB": ("task_c", "kb1"),
    "A, 100 kB": ("task_a", "kb100"),
    "C, 100 kB": ("task_c", "kb100"),
}
RUNNING: Final = "B, running"
# A rule of the bench bounds them at 900, and the connections to the upstream at 1000.
MOST_RUNNING: Final = 800
CLIENTS: Final = 16
KEEP_MS: Final = 3_600_000
LIMIT: Final = 300.0  # seconds
BATCH: Final = 500


async def measure_memory(bench: Bench, maker: Maker) -> Outcome:
    """Make tasks through a gateway, and look at what its Redis has more of for each.

    `used_memory` counts all that Redis holds, tables and waste of the allocator too; `MEMORY USAGE` of all
    keys is the cross-check. Both are divided by the records that are there.
    """
    title = "memory of Redis for a task"
    outcome = Outcome("memory", title, "", {name: [] for name in (*STORED, RUNNING)})
    async with own_redis() as server:
        contender = await maker(server.url(), 1)
        try:
            for name, (kind, tool) in STORED.items():
                outcome.rounds[name].append(await _stored(bench, contender, server, kind, tool))
            outcome.rounds[RUNNING].append(await _running(bench, contender, server))
        finally:
            await contender.close()
    sizes = ", ".join(f"{tool} {len(payloads.RESULTS[tool]):,}" for tool in ("kb1", "kb100", "held"))
    outcome.notes.append(f"at least {bench.pace.kept} stored tasks a row; bytes of the results: {sizes}")
    return outcome


async def _stored(bench: Bench, contender: Contender, server: Server, kind: Kind, tool: str) -> Figures:
    # The sessions' own keys, and what is loaded once, are not the tasks'.
    await _make(bench, contender, kind, tool, CLIENTS)
    return await _grown(server, len(payloads.RESULTS[tool]), lambda: _make(bench, contender, kind, tool))


async def _make(bench: Bench, contender: Contender, kind: Kind, tool: str, most: int | None = None) -> None:
    load, count = bench.load, bench.pace.kept if most is None else most
    await load.order(Order("open", kind, contender.target, CLIENTS, tool, keep_ms=KEEP_MS))
    await load.order(Order("run", seconds=LIMIT, most=count))
    done = await load.answer()
    await load.order(Order("close"))
    if done.measured is None or done.measured.count < count:
        raise WrongAnswer(f"so many tasks were not made in {LIMIT:g} s: {done}")


async def _running(bench: Bench, contender: Contender, server: Server) -> Figures:
    load, count = bench.load, min(bench.pace.kept, MOST_RUNNING)

    async def hold(tasks: int) -> None:
        await load.order(
            Order("open", "waiters", contender.target, 1, beside=contender.target, tasks=tasks)
        )

    await hold(CLIENTS)
    rss = contender.rss()
    figures = await _grown(server, 0, lambda: hold(count))
    figures["replica_kb"] = (contender.rss() - rss) / count / 1e3
    await load.order(Order("release"))
    await load.order(Order("close"))
    return figures


async def _grown(
    server: Server,
    result: int,
    work: Callable[[], Awaitable[None]],
) -> Figures:
    before, used = await _look(server), await server.used()
    await work()
    after, grown = await _look(server), await server.used() - used
    count = after.records - before.records
    if count <= 0:
        raise WrongAnswer("no task is in the store")
    return {
        "task_kb": grown / count / 1e3,
        "usage_kb": (after.usage - before.usage) / count / 1e3,
        "over_kb": (grown / count - result) / 1e3,
        "keys": (after.keys - before.keys) / count,
    }


class Look(msgspec.Struct):
    """What is in a Redis: keys, records of tasks among them, and the sum of their `MEMORY USAGE`."""

    keys: int = 0
    records: int = 0
    usage: int = 0


async def _look(server: Server) -> Look:
    found = Look()
    keys: list[bytes] = [key async for key in server.client.scan_iter(count=1_000)]
    for at in range(0, len(keys), BATCH):
        pipeline = server.client.pipeline(transaction=False)
        for key in keys[at : at + BATCH]:
            pipeline.memory_usage(key, samples=0)
        sizes: list[int | None] = await pipeline.execute()
        found.usage += sum(size or 0 for size in sizes)
    found.keys = len(keys)
    found.records = sum(b":t:" in key for key in keys)
    return found
