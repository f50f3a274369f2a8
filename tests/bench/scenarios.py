"""The scenarios, and how a round of each is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec

from tests.bench.contenders import Contender, Unavailable
from tests.bench.figures import Figures, Outcome
from tests.bench.load import Order
from tests.bench.process import Child
from tests.bench.rounds import Measured
from tests.bench.wire import WrongAnswer

_Item = TypeVar("_Item")
Peek = Callable[[], Awaitable[Figures]]

WARM_SESSIONS: Final = 25
SETTLE: Final = 1.0


class Scenario(msgspec.Struct, frozen=True):
    """Tool calls of one kind by so many clients at a time."""

    name: str
    title: str
    tool: str
    clients: int


CALLS: Final = (
    Scenario("small-1", "small calls, 1 at a time", "small", 1),
    Scenario("small-16", "small calls, 16 at a time", "small", 16),
    Scenario("small-64", "small calls, 64 at a time", "small", 64),
    Scenario("kb100", "results of 100 kB, 16 at a time", "kb100", 16),
    Scenario("mb1", "results of 1 MB, 4 at a time", "mb1", 4),
    Scenario("sse", "SSE answers of 6 events, 16 at a time", "sse", 16),
    Scenario("first", "time to the first event of a stream that lasts 20 ms, 4 at a time", "first", 4),
)
# Clients of the stateless era, over an upstream of the handshake era.
BRIDGED: Final = (
    Scenario("bridged-1", "small calls through the bridge, 1 at a time", "small", 1),
    Scenario("bridged-16", "small calls through the bridge, 16 at a time", "small", 16),
    Scenario("bridged-64", "small calls through the bridge, 64 at a time", "small", 64),
)


class Pace(msgspec.Struct, frozen=True):
    """How long and how often; seconds."""

    rounds: int
    seconds: float
    warm: float
    sessions: int
    waiters: int
    replicas: tuple[int, ...] = (1, 2, 4)
    clients: int = 64
    stored: int = 100_000
    scopes: int = 1_000
    streams: int = 5_000
    kept: int = 2_000


class Bench(msgspec.Struct):
    """What all measurements share."""

    load: Child
    upstream: Child
    pace: Pace


async def measure_calls(
    bench: Bench, scenario: Scenario, contenders: Sequence[Contender], base: str
) -> Outcome:
    """Measure one scenario in interleaved rounds; the order turns from round to round."""
    outcome = Outcome(scenario.name, scenario.title, base, {one.name: [] for one in contenders})
    for number in range(bench.pace.rounds):
        for contender in turned(contenders, number):
            opening = Order("open", contender.call_kind, contender.target, scenario.clients, scenario.tool)
            figures, measured = await timed(bench, contender, opening)
            figures["rss"] = contender.rss() / 1e6
            if scenario.tool == "first":
                del figures["rate"], figures["p50"], figures["p99"]
                figures |= {"first_p50": measured.first_p50 * 1e3, "first_p99": measured.first_p99 * 1e3}
            outcome.rounds[contender.name].append(figures)
    return outcome


async def timed(
    bench: Bench,
    contender: Contender,
    opening: Order,
    aside: dict[str, Child] | None = None,
    peek: Peek | None = None,
) -> tuple[Figures, Measured]:
    """Open, warm up, and run one timed round; CPU is counted while the load counts.

    The CPU of processes `aside` is counted too, each under its name, and how much what `peek` returns has
    grown.
    """
    clocks = {"cpu": contender.cpu, **{name: child.cpu for name, child in (aside or {}).items()}}
    await bench.load.order(opening)
    await bench.load.order(Order("run", warm=bench.pace.warm, seconds=bench.pace.seconds))
    seen = {} if peek is None else await peek()
    before = {name: clock() for name, clock in clocks.items()}
    done = await bench.load.answer()
    spent = {name: clock() - before[name] for name, clock in clocks.items()}
    grown = {} if peek is None else {name: now - seen[name] for name, now in (await peek()).items()}
    await bench.load.order(Order("close"))
    if done.measured is None or done.measured.count == 0:
        raise WrongAnswer(f"{contender.name} finished nothing")
    measured = done.measured
    return {
        "rate": measured.count / measured.elapsed,
        "p50": measured.p50 * 1e3,
        "p99": measured.p99 * 1e3,
        **{name: seconds / measured.count * 1e3 for name, seconds in spent.items()},
        "load_cpu": measured.load_cpu / measured.count * 1e3,
        **{name: value / measured.count for name, value in grown.items()},
    }, measured


async def measure_idle(
    bench: Bench, makers: dict[str, Callable[[], Awaitable[Contender]]], base: str, rounds: int
) -> Outcome:
    """Measure the memory of sessions that hold a GET stream open, in fresh processes.

    A few sessions come first, so that what is loaded once is not divided among the counted ones. At the
    end the upstream sends one notification down every stream, and every client must have it.
    """
    count = bench.pace.sessions
    title = f"{count} idle sessions with an open GET stream"
    outcome = Outcome("idle", title, base, {name: [] for name in makers})
    for number in range(rounds):
        for name in turned(list(makers), number):
            try:
                contender = await makers[name]()
            except Unavailable as wrong:
                outcome.notes.append(f"{name} was not measured: {wrong}")
                continue
            try:
                outcome.rounds[name].append(await _idle(bench, contender, count))
            finally:
                await contender.close()
    return outcome


async def _idle(bench: Bench, contender: Contender, count: int) -> Figures:
    load, target = bench.load, contender.target
    await load.order(Order("open", "idle", target, WARM_SESSIONS))
    await asyncio.sleep(SETTLE)
    before = contender.rss()
    await load.order(Order("open", "idle", target, count))
    await asyncio.sleep(SETTLE)
    after = contender.rss()
    await load.order(Order("nudge"))
    await load.order(Order("close"))
    return {"session_kb": (after - before) / count / 1e3, "rss": after / 1e6}


def turned(items: Sequence[_Item], number: int) -> list[_Item]:
    """Return the items beginning with another one each round."""
    at = number % len(items) if items else 0
    return [*items[at:], *items[:at]]
