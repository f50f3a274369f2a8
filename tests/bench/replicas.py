"""Replicas behind HAProxy, and workers of one machine: what a task costs in all, whoever spends it.

Cores are few here, so that more replicas cannot show more requests a second; the CPU that they all take
for one task can be told on any machine, and is what a larger one divides its cores by.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from tests.balancers import command, example
from tests.bench.contenders import Contender
from tests.bench.figures import Outcome
from tests.bench.load import Kind, Order
from tests.bench.process import Child, free_port
from tests.bench.redis_process import Server
from tests.bench.scenarios import Bench, timed, turned
from tests.bench.wire import Target, WrongAnswer
from tests.tools import ToolMissing

ALONE: Final = "1 alone"
ROUNDS: Final = 3
SECONDS: Final = 0.3  # at least
WORKERS: Final = 2

Maker = Callable[[str, int], Awaitable[Contender]]
"""Starts a gateway on a store's URL, of so many processes."""


class Work(msgspec.Struct, frozen=True):
    """What clients do, each as fast as it can."""

    name: str
    title: str
    kind: Kind


WORKS: Final = (
    Work("calls", "small plain calls", "calls"),
    Work("a", "task cycles of dialect A", "task_a"),
    Work("c", "task cycles of dialect C", "task_c"),
    Work("poll", "tasks/get of dialect C with a small result", "poll"),
)


class Fleet(Contender):
    """Replicas of one store, and the balancer in front of them where there is one."""

    balancer: Child | None = None


def named(number: int) -> str:
    """Return the row of so many replicas behind HAProxy."""
    return f"{number} behind HAProxy"


async def measure_replicas(bench: Bench, maker: Maker, store: Server) -> list[Outcome]:
    """Measure all works in interleaved rounds, on fleets that stay from first to last.

    Each fleet has keys of its own on the one Redis, since replicas hear of each other's tasks. The
    replica that is alone is also the one that is the only one behind HAProxy.
    """
    rounds, seconds = min(bench.pace.rounds, ROUNDS), max(bench.pace.seconds, SECONDS)
    pace = msgspec.structs.replace(bench.pace, rounds=rounds, seconds=seconds)
    bench = msgspec.structs.replace(bench, pace=pace)
    async with AsyncExitStack() as stack:
        fleets, notes = await _fleets(bench.pace.replicas, maker, store, stack)
        return [await _measure(bench, work, fleets, store, notes) for work in WORKS]


async def _fleets(
    numbers: Sequence[int], maker: Maker, store: Server, stack: AsyncExitStack
) -> tuple[list[Fleet], list[str]]:
    async def start(database: int, workers: int = 1) -> Contender:
        one = await maker(store.url(database), workers)
        stack.push_async_callback(one.close)
        return one

    fleets: list[Fleet] = []
    notes: list[str] = []
    for database, number in enumerate(numbers):
        ones = [await start(database) for _ in range(number)]
        children = [child for one in ones for child in one.children]
        if number == 1:
            fleets.append(Fleet(ALONE, ones[0].target, children))
        try:
            balancer, port = await start_balancer(ones)
        except ToolMissing as missing:
            notes.append(f"{named(number)} was not measured: {missing}")
            continue
        stack.push_async_callback(balancer.close)
        target = Target(port, ones[0].target.path)
        fleets.append(Fleet(named(number), target, children, balancer=balancer))
    workers = await start(len(numbers), WORKERS)
    fleets.append(Fleet(f"serve --workers {WORKERS}", workers.target, workers.children))
    return fleets, notes


async def _measure(
    bench: Bench, work: Work, fleets: Sequence[Fleet], store: Server, notes: Sequence[str]
) -> Outcome:
    clients = bench.pace.clients
    title = f"{work.title}, {clients} at a time, replicas on one machine"
    outcome = Outcome(f"replicas-{work.name}", title, ALONE, {fleet.name: [] for fleet in fleets}, [*notes])
    for number in range(bench.pace.rounds):
        for fleet in turned(fleets, number):
            opening = Order("open", work.kind, fleet.target, clients)
            aside = {"redis_cpu": store.child}
            if fleet.balancer is not None:
                aside["balancer_cpu"] = fleet.balancer
            figures, measured = await timed(bench, fleet, opening, aside, store.counters)
            spent = [figures[name] for name in ("cpu", "redis_cpu", "balancer_cpu") if name in figures]
            figures["all_cpu"] = sum(spent)
            figures["client_kb"] = measured.bytes / measured.count / 1e3
            outcome.rounds[fleet.name].append(figures)
    return outcome


async def start_balancer(gateways: Sequence[Contender]) -> tuple[Child, int]:
    """Start HAProxy with the file of `deploy/` in front of gateways; return it and its port.

    Raises `ToolMissing` where there is none.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file = Path(folder) / "haproxy.cfg"
        file.write_text(configured(port, gateways), encoding="utf-8")
        child = await Child.start("haproxy", command("haproxy", file))
        try:
            await _listens(child, port)
        except BaseException:
            await child.close()
            raise
    return child, port


def configured(port: int, gateways: Sequence[Contender]) -> str:
    """Return the file of `deploy/` for so many replicas, with their addresses."""
    servers = "".join(
        f"    server gateway-{number} 127.0.0.1:{one.target.port} port {one.admin}\n"
        for number, one in enumerate(gateways, 1)
    )
    text = example("haproxy").read_text(encoding="utf-8")
    text, backends = re.subn(r"(?:    server gateway-\d+ \S+\n)+", servers, text)
    text, binds = re.subn(r"bind :8080", f"bind 127.0.0.1:{port}", text)
    text, bounds = re.subn(r" maxconn 20000", " maxconn 2000", text)
    if (backends, binds, bounds) != (2, 1, 1):
        raise WrongAnswer(f"{example('haproxy')} is not what the bench knows")
    return text


async def _listens(child: Child, port: int) -> None:
    try:
        async with asyncio.timeout(10):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                await writer.wait_closed()
                return
    except TimeoutError:
        raise WrongAnswer(f"{child} did not get ready: {child.log()}") from None
