"""Those who wait for results: what so many of them cost, and how soon they hear of the end elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from tests.bench.contenders import Contender
from tests.bench.figures import Figures, Outcome
from tests.bench.load import Order
from tests.bench.redis_process import Tap
from tests.bench.scenarios import SETTLE, WARM_SESSIONS, Bench, timed, turned
from tests.bench.wire import Target, WrongAnswer

# Each task's result is waited for so many times.
CROWDS: Final = {"1 a task": 1, "100 a task": 100}
WATCHED: Final = 5.0  # seconds
WAKES_AT_ONCE: Final = (1, 8)

Maker = Callable[[str], Awaitable[Contender]]


async def measure_waiters(bench: Bench, maker: Maker, redis_port: int, *, watched: float) -> Outcome:
    """Measure blocked `tasks/result` requests on a replica that runs none of the tasks.

    While they wait for `watched` seconds, what that replica asks of Redis is counted by a tap that only
    it goes through; so short a look does not see that each task (not each waiter) is read once more in
    two minutes. At the end every waiter must get its answer.
    """
    count = bench.pace.waiters
    title = f"{count} blocked tasks/result on one replica, the tasks on another"
    outcome = Outcome("waiters", title, "", {name: [] for name in CROWDS})
    for name, each in CROWDS.items():
        async with AsyncExitStack() as stack:
            figures, commands = await _waiters(bench, maker, redis_port, each, watched, stack)
        outcome.rounds[name].append(figures)
        words = ", ".join(f"{found} {command}" for command, found in commands.most_common()) or "nothing"
        outcome.notes.append(f"{name}: commands to Redis in {watched:g} s of waiting: {words}")
    return outcome


async def _waiters(
    bench: Bench, maker: Maker, redis_port: int, each: int, watched: float, stack: AsyncExitStack
) -> tuple[Figures, Counter[str]]:
    load, count = bench.load, bench.pace.waiters
    tap = Tap(redis_port)
    await tap.start()
    stack.push_async_callback(tap.close)
    runs = await maker(f"redis://127.0.0.1:{redis_port}/0")
    stack.push_async_callback(runs.close)
    waits = await maker(f"redis://127.0.0.1:{tap.port}/0")
    stack.push_async_callback(waits.close)

    async def crowd(waiters: int) -> None:
        tasks = max(1, waiters // each)
        await load.order(Order("open", "waiters", runs.target, waiters, beside=waits.target, tasks=tasks))
        await asyncio.sleep(min(SETTLE, watched))

    await crowd(WARM_SESSIONS)
    before = waits.rss()
    await crowd(count)
    after, cpu = waits.rss(), waits.cpu()
    tap.bursts.clear()
    await asyncio.sleep(watched)
    commands = Counter(name for burst in tap.counted() for name in burst.commands)
    spent = waits.cpu() - cpu
    done = await load.order(Order("release"))
    await load.order(Order("close"))
    if done.measured is None or done.measured.count != count + WARM_SESSIONS:
        raise WrongAnswer(f"not every waiter was answered: {done}")
    return {
        "waiter_kb": (after - before) / count / 1e3,
        "rss": after / 1e6,
        "commands": commands.total() / watched,
        "waiting_cpu": spent / watched * 100,
        "answered_p50": done.measured.p50,
        "answered": done.measured.elapsed,
    }, commands


async def measure_wakes(bench: Bench, maker: Maker, redis_port: int) -> list[Outcome]:
    """Measure how long after the upstream's answer it is with who waits: in the call, or for its task.

    The load and the upstream read the same clock.
    """
    url = f"redis://127.0.0.1:{redis_port}/0"
    async with AsyncExitStack() as stack:
        one = await maker(url)
        stack.push_async_callback(one.close)
        other = await maker(url)
        stack.push_async_callback(other.close)
        ways = {"plain call": None, "same replica": one.target, "other replica": other.target}
        return [await _wakes(bench, one, ways, clients) for clients in WAKES_AT_ONCE]


async def _wakes(bench: Bench, runs: Contender, ways: dict[str, Target | None], clients: int) -> Outcome:
    title = f"from the upstream's answer to who waits for it, {clients} at a time"
    outcome = Outcome(f"wakes-{clients}", title, "plain call", {name: [] for name in ways})
    for number in range(bench.pace.rounds):
        for name in turned(list(ways), number):
            opening = Order("open", "wake", runs.target, clients, "told", beside=ways[name])
            figures, _ = await timed(bench, runs, opening)
            outcome.rounds[name].append({key: figures[key] for key in ("p50", "p99")})
    return outcome
