"""The tasks scenario: full cycles on real Redis, and what crosses to Redis for each."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tests.bench.contenders import Contender, Unavailable
from tests.bench.figures import Outcome
from tests.bench.load import Order
from tests.bench.process import Child
from tests.bench.redis_process import Burst, Tap
from tests.bench.scenarios import Bench, Pace, timed, turned
from tests.bench.wire import WrongAnswer

CLIENTS: Final = 64
BASE: Final = "fastmcp4"
DELAY: Final = 0.01  # seconds that the tap holds a reply back
PAUSE: Final = 0.08  # seconds that a paced client rests between steps
PACED: Final = 7

# One that speaks several dialects is as many contenders, all of the same processes.
Maker = Callable[[str], Awaitable[list[Contender]]]


async def measure_tasks(
    bench: Bench, makers: dict[str, Maker], store: tuple[Child, int], *, count_all: bool
) -> Outcome:
    """Measure full cycles in interleaved rounds, then count what crosses to Redis in rounds of its own.

    `store` is Redis and its port. Without `count_all` only one contender's commands are counted.
    """
    redis, port = store
    if BASE in makers:
        bench = msgspec.structs.replace(bench, pace=_longer(bench.pace))
    title = f"full task cycles on Redis, {CLIENTS} at a time"
    outcome = Outcome("tasks", title, BASE)
    contenders: list[Contender] = []
    there: list[Maker] = []
    try:
        for name, maker in makers.items():
            try:
                contenders += await maker(f"redis://127.0.0.1:{port}/0")
                there.append(maker)
            except Unavailable as wrong:
                outcome.notes.append(f"{name} was not measured: {wrong}")
        outcome.rounds = {one.name: [] for one in contenders}
        outcome.base = BASE if BASE in outcome.rounds else next(iter(outcome.rounds), BASE)
        for number in range(bench.pace.rounds):
            for contender in turned(contenders, number):
                await _round(bench, contender, redis, outcome)
    finally:
        for contender in contenders:
            await contender.close()
    for maker in there if count_all else there[:1]:
        outcome.notes += await _count(bench, maker, port, most=None if count_all else 1)
    return outcome


def _longer(pace: Pace) -> Pace:
    # A cycle of FastMCP takes half a second with so many at a time, and its worker starts slowly.
    return msgspec.structs.replace(pace, seconds=max(2 * pace.seconds, 1.5), warm=max(3 * pace.warm, 1.0))


async def _round(bench: Bench, contender: Contender, redis: Child, outcome: Outcome) -> None:
    opening = Order("open", contender.task_kind, contender.target, CLIENTS)
    aside = {"redis_cpu": redis, "upstream_cpu": bench.upstream}
    figures, measured = await timed(bench, contender, opening, aside)
    figures["heard_p50"] = measured.first_p50 * 1e3
    figures["polls"] = measured.polls / measured.count
    figures["rss"] = contender.rss() / 1e6
    outcome.rounds[contender.name].append(figures)


async def _count(bench: Bench, maker: Maker, port: int, most: int | None) -> list[str]:
    """Count round trips: one paced client behind a slowed tap, then all clients behind a plain one."""
    tap = Tap(port, DELAY)
    await tap.start()
    contenders: list[Contender] = []
    notes: list[str] = []
    try:
        contenders = await maker(f"redis://127.0.0.1:{tap.port}/0")
        for one in contenders[:most]:
            tap.delay = DELAY
            notes += [f"{one.name}: {line}" for line in await _paced(bench, one, tap)]
            tap.delay = 0.0
            notes.append(f"{one.name}: {await _crowded(bench, one, tap)}")
    finally:
        for contender in contenders:
            await contender.close()
        await tap.close()
    return notes


async def _paced(bench: Bench, contender: Contender, tap: Tap) -> list[str]:
    tool = "small" if contender.task_kind == "task_c" else "slow"
    await bench.load.order(Order("open", contender.task_kind, contender.target, 1, tool, PAUSE))
    await bench.load.order(Order("run", warm=10 * PAUSE, seconds=30, most=PACED))
    tap.bursts.clear()
    done = await bench.load.answer()
    await bench.load.order(Order("close"))
    if done.measured is None:
        raise WrongAnswer("a paced run measured nothing")
    # The first one began before the tap was emptied.
    cycles = done.measured.marks[1:]
    steps = _steps(contender)
    counts: list[list[int]] = []
    commands: list[Counter[str]] = [Counter() for _ in steps]
    for at, marks in enumerate(cycles):
        end = cycles[at + 1][0] if at + 1 < len(cycles) else marks[-1] + PAUSE
        edges = [marks[0], marks[1], *marks[3::2][: len(steps) - 2], end]
        parts = _split(tap.counted(), edges)
        counts.append([len(part) for part in parts])
        for counter, part in zip(commands, parts, strict=True):
            counter.update(name for burst in part for name in burst.commands)
    lines = [f"round trips of a lone task, median of {len(cycles)}:"]
    for number, step in enumerate(steps):
        names = ", ".join(
            f"{name} {found / len(cycles):.1f}" for name, found in commands[number].most_common(8)
        )
        middle = statistics.median(count[number] for count in counts)
        lines.append(f"  {step}: {middle:.0f} ({names or 'nothing'})")
    return lines


def _steps(contender: Contender) -> list[str]:
    if contender.task_kind == "task_c":
        return ["until the client hears of the task", "from then to the result fetched"]
    got = ["tasks/get"] if contender.task_kind == "task_a" else []
    return ["until the client hears of the task", "from then to the result stored", *got, "tasks/result"]


def _split(bursts: Sequence[Burst], edges: Sequence[float]) -> list[list[Burst]]:
    """Sort bursts into the spans between edges, by the moment their answer was there to be acted on."""
    parts: list[list[Burst]] = [[] for _ in edges[1:]]
    for burst in bursts:
        when = burst.answered if burst.answered is not None else burst.sent + DELAY
        for number, (start, end) in enumerate(pairwise(edges)):
            if start <= when < end:
                parts[number].append(burst)
    return parts


async def _crowded(bench: Bench, contender: Contender, tap: Tap) -> str:
    await bench.load.order(Order("open", contender.task_kind, contender.target, CLIENTS))
    await bench.load.order(Order("run", warm=bench.pace.warm, seconds=1.0))
    tap.bursts.clear()
    done = await bench.load.answer()
    bursts = tap.counted()
    await bench.load.order(Order("close"))
    if done.measured is None or done.measured.count == 0:
        raise WrongAnswer("a counted run finished nothing")
    count = done.measured.count
    commands = sum(len(burst.commands) for burst in bursts)
    return (
        f"{CLIENTS} at a time: {len(bursts) / count:.2f} bursts and {commands / count:.1f} commands a task "
        f"to Redis, {done.measured.polls / count:.2f} early polls"
    )
