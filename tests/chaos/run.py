"""One run of chaos: a world, its users, its faults, and what is left; it ends in a history."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.dialect_a import UserA
from tests.chaos.dialect_b import UserB
from tests.chaos.dialect_c import UserC
from tests.chaos.faults import Breaker
from tests.chaos.history import Asked, Fault, History, Left, Terms
from tests.chaos.parts import START, memory_kib, open_files, runs, waited_s
from tests.chaos.schedule import WEIGHTS, plan
from tests.chaos.users import Shared, User
from tests.chaos.wire import Wire
from tests.chaos.world import PREFIX, World, built

DIALECTS: Final = (UserA, UserB, UserC)
# Which upstream the users have, by turns.
PLACES: Final = ("events", "plain", "events", "plain", "child", "events", "plain")
# Keys that belong to no task: who is there, and which sessions have been ended.
KEPT_KEYS: Final = re.compile(rf"{re.escape(PREFIX)}(ended:|secret|replica|worker|links?:|limits:)")
HELD_KEYS: Final = re.compile(rf"{re.escape(PREFIX)}\{{\w+:h-")
HELD_S: Final = 75.0
GROWTH: Final = 1.25
GROWTH_KIB: Final = 16 * 1024
FILES: Final = 64
# Seconds: how often is looked how long each process waited for a core, and what of that is too long.
TICK: Final = 0.5
STARVED: Final = 0.25


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    seed: int
    tasks: int
    faults: int
    seconds: float
    users: int
    replicas: int
    terms: Terms
    keep: float
    work_ms: tuple[int, int]


def short(seed: int) -> Size:
    """Return the size that fits into the test run."""
    terms = Terms(lease=2.0, timeout=5.0, slack=15.0)
    return Size(seed, 120, 14, 14.0, 12, 3, terms, 7.0, (20, 900))


def long(seed: int, tasks: int, faults: int) -> Size:
    """Return the size of a run of minutes."""
    terms = Terms(lease=3.0, timeout=12.0, slack=15.0)
    return Size(seed, tasks, faults, max(20.0, tasks / 14), 30, 3, terms, 30.0, (20, 1500))


@dataclass
class Measured:
    """What was measured of the replica that is never restarted: memory in KiB and open files."""

    begun: float = 0.0
    seconds: float = 0.0
    kib: tuple[int, int] = (0, 0)
    files: int = 0
    restarts: int = 0
    children: int = 0


async def run(
    size: Size, place: Path, say: Callable[[str], None] = lambda _: None
) -> tuple[History, Measured]:
    """Run it and return what happened; raise `ToolMissing` for what is not installed.

    `say` hears once a minute how far it is.
    """
    async with built(place, size.terms, size.keep, size.replicas) as world:
        history = History(size.terms)
        measured = Measured(begun=time.time())
        breaker = Breaker(world, size.seed)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(_tell(size, history, breaker, say))
            await _live(world, size, breaker, history.asked, measured)
            telling.cancel()
        measured.seconds = time.time() - measured.begun
        await _settle(world, size, history, measured)
        history.faults.extend(breaker.faults)
        history.ran.extend(world.ran())
        measured.restarts = sum(part.started - 1 for part in world.parts)
        return history, measured


async def _live(
    world: World, size: Size, breaker: Breaker, recorded: list[Asked], measured: Measured
) -> None:
    shared = Shared(size.tasks, size.terms, size.keep, size.work_ms)
    users: list[User] = []
    for number in range(size.users):
        name, scope = f"u{number}", f"scope{number % max(1, size.users * 2 // 3)}"
        patience = size.terms.timeout + size.terms.lease + size.terms.slack
        wire = Wire(world.url, scope, patience, recorded)
        dialect = DIALECTS[number % len(DIALECTS)]
        users.append(dialect(name, scope, PLACES[number % len(PLACES)], shared, wire, size.seed))
    faults = plan(size.seed, size.faults, size.seconds, size.terms.lease, size.replicas)
    first = world.replicas[0]

    async def measure() -> None:
        await asyncio.sleep(size.seconds / 4)
        measured.kib = (memory_kib(first.pid), 0)

    async def break_things() -> None:
        await breaker.follow(faults)
        shared.broken = False

    try:
        async with asyncio.TaskGroup() as watching:
            starved = watching.create_task(_watch(world, breaker))
            async with asyncio.TaskGroup() as group:
                group.create_task(measure())
                group.create_task(break_things())
                for user in users:
                    group.create_task(user.live())
            async with asyncio.TaskGroup() as group:
                for user in users:
                    group.create_task(user.look_again([replica.base for replica in world.replicas]))
            await asyncio.sleep(TICK)
            starved.cancel()
    finally:
        for user in users:
            await user.wire.close()


async def _tell(size: Size, history: History, breaker: Breaker, say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(60)
        calls = len({one.nonce for one in history.asked if one.op in ("create", "plain")})
        faults = sum(1 for one in breaker.faults if one.name in WEIGHTS)
        say(f"{calls} of {size.tasks} calls, {faults} of {size.faults} faults")


async def _watch(world: World, breaker: Breaker) -> None:
    """Record as a fault when this machine has no time: what then fails is not the gateway's doing."""
    waited: dict[int, float] = {}
    while True:
        begun = time.time()
        await asyncio.sleep(TICK)
        pids = [part.pid for part in world.parts if part.alive] + [os.getpid()]
        now = {pid: waited_s(pid) for pid in pids}
        # A process that has just started has waited for nothing yet.
        late = max(now[pid] - waited.get(pid, 0.0) for pid in pids)
        waited = now
        if late > STARVED:
            breaker.faults.append(
                Fault(name="machine_starved", target="all", begun=begun, over=time.time() + STARVED)
            )


async def _settle(world: World, size: Size, history: History, measured: Measured) -> None:
    """Wait until all that has a time to live has gone, and look for what has not."""
    left = history.left
    end = time.monotonic() + size.keep + size.terms.timeout + size.terms.slack
    keys = await _task_keys(world)
    while keys and time.monotonic() < end:
        await asyncio.sleep(0.3)
        keys = await _task_keys(world)
    left += [Left(what="key", where=key, words="is in Redis after all retention") for key in keys[:20]]
    _weigh(world, left, measured)
    ended = await asyncio.gather(
        *(replica.stop(size.terms.timeout * 2 + START) for replica in world.replicas)
    )
    left += [
        Left(what="exit", where=replica.name, words=f"{replica} did not end well")
        for replica, well in zip(world.replicas, ended, strict=True)
        if not well or replica.code != 0
    ]
    await _gone(world, left)
    for part in world.parts:
        left += [Left(what="traceback", where=part.name, words=words[-300:]) for words in part.tracebacks()]


def _weigh(world: World, left: list[Left], measured: Measured) -> None:
    """Look what the replicas hold when nobody asks anything."""
    first = world.replicas[0]
    measured.kib = (measured.kib[0], memory_kib(first.pid))
    measured.files = open_files(first.pid)
    measured.children = len(world.children())
    before, after = measured.kib
    if after > before * GROWTH + GROWTH_KIB:
        left.append(Left(what="memory", where=first.name, words=f"{before} KiB, then {after} KiB"))
    left += [
        Left(what="files", where=replica.name, words=f"{held} files are open at rest")
        for replica in world.replicas
        if (held := open_files(replica.pid)) > FILES + 3 * measured.children
    ]


async def _gone(world: World, left: list[Left]) -> None:
    children = world.children()
    end = time.monotonic() + 5
    while children and time.monotonic() < end:
        await asyncio.sleep(0.1)
        children = world.children()
    left += [
        Left(what="process", where=f"child {pid}", words="runs though its replica has ended")
        for pid in children
        if runs(pid)
    ]


async def _task_keys(world: World) -> list[str]:
    found = [key for key in await world.keys() if not KEPT_KEYS.match(key)]
    # What a plain call of the stateless era ended with is there a minute for its client's next request.
    return [key for key in found if not HELD_KEYS.match(key) or not await world.goes_within(key, HELD_S)]
