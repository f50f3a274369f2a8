"""A store that is full beside one that is empty: no step of a task may cost more in the full one.

The gateway's store code runs in this process, on two servers of Redis. A gateway in between would hide what
the store adds: its own time is many times that of Redis.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Final, TypeVar

from gateway.store.port import Bounds, Claim
from gateway.store.redis import RedisStore, open_store
from gateway.tasks.model import NewTask, Scope, Task, TaskKey
from gateway.tasks.model import Outcome as End
from tests.bench import payloads
from tests.bench.figures import Figures, Outcome
from tests.bench.redis_process import Server, own_redis
from tests.bench.scenarios import Pace, turned
from tests.bench.wire import WrongAnswer

BOUND: Final = 1.10
AT_ONCE: Final = 16
ROUNDS: Final = 9
# Of each round: so many scopes, tasks in each, and short-lived tasks in each.
SCOPES: Final = 100
TASKS: Final = 10
SHORT: Final = 5
LISTS: Final = 5  # of each scope
LOOKS: Final = 1_000
KEEP_MS: Final = 3_600_000
SHORT_MS: Final = 40
LEASE_MS: Final = 3_600_000
# One in so many of the stored tasks still runs.
RUNNING: Final = 20
OURS: Final = Claim("bench", 1)
ROOMY: Final = Bounds(1_000_000, 1_000_000)
DONE: Final = End(status="completed", result=payloads.RESULTS["kb1"])
STEPS: Final = {
    "create": "create a task",
    "get": "get a task",
    "finish": "finish a task",
    "list": f"list {TASKS} tasks",
    "remove": "remove a task",
    "expiry": f"sweep {SHORT} tasks that have expired, with the next list of their scope",
    "lost": "look for tasks whose replica is lost",
}

_Item = TypeVar("_Item")


class Side:
    """One of the two stores, and how its steps are timed."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.server = server
        self.store: RedisStore = open_store(server.url(), timeout=30.0)

    async def timed(
        self, items: Iterable[_Item], step: Callable[[RedisStore, _Item], Awaitable[object]]
    ) -> Figures:
        """Take a step with each item, several at a time; return ms of time and of Redis's CPU for each."""
        todo = list(items)
        before, begin = self.server.child.cpu(), time.perf_counter()
        await each(todo, lambda item: step(self.store, item))
        elapsed, spent = time.perf_counter() - begin, self.server.child.cpu() - before
        return {"each": elapsed / len(todo) * 1e3, "redis_cpu": spent / len(todo) * 1e3}


async def measure_stored(pace: Pace) -> list[Outcome]:
    """Fill one store, then take the same steps in both, in turns; one outcome for each step."""
    title = f"with {pace.stored:,} tasks of {pace.scopes:,} scopes in the store, {AT_ONCE} at a time"
    async with AsyncExitStack() as stack:
        sides: list[Side] = []
        for name in ("empty", "full"):
            side = Side(name, await stack.enter_async_context(own_redis()))
            stack.push_async_callback(side.store.close)
            sides.append(side)
        began = time.perf_counter()
        await _fill(sides[1].store, pace)
        filled = time.perf_counter() - began
        outcomes = {
            name: Outcome(f"stored-{name}", f"{words} {title}", "empty", {"empty": [], "full": []})
            for name, words in STEPS.items()
        }
        for number in range(pace.rounds if pace.rounds == 1 else ROUNDS):
            for name, found in (await _round(sides, number, pace)).items():
                for side, figures in found.items():
                    outcomes[name].rounds[side].append(figures)
        used = (await sides[1].server.used() - await sides[0].server.used()) / pace.stored / 1e3
    for outcome in outcomes.values():
        outcome.notes.append(_verdict(outcome))
    outcomes["create"].notes.append(
        f"filled in {filled:.0f} s; {used:.2f} kB of Redis memory a task with a result of 1 kB"
    )
    return list(outcomes.values())


async def _round(sides: list[Side], number: int, pace: Pace) -> dict[str, dict[str, Figures]]:
    """Take each step on both sides before the next one; what a round makes is gone at its end."""
    count = min(SCOPES, pace.scopes)
    scopes = [_scope((number * count + at) % pace.scopes) for at in range(count)]
    keys = [TaskKey(scope, _ident("round", number, at)) for at in range(TASKS) for scope in scopes]
    short = [TaskKey(scope, _ident("short", number, at)) for at in range(SHORT) for scope in scopes]
    found: dict[str, dict[str, Figures]] = {}

    async def step(
        name: str, items: Iterable[_Item], work: Callable[[RedisStore, _Item], Awaitable[object]]
    ) -> None:
        todo = list(items)
        found[name] = {side.name: await side.timed(todo, work) for side in turned(sides, number)}

    await step("create", keys, _create)
    await step("get", keys, _get)
    await step("finish", keys, _finish)
    await step("list", scopes * LISTS, _list)
    for side in sides:
        await side.timed(short, _create_short)
        await side.timed(short, _finish)
    # Both stores have clocks that run on while this one waits.
    await asyncio.sleep(2 * SHORT_MS / 1e3)
    await step("expiry", scopes, _sweep)
    await step("lost", range(LOOKS), _look)
    await step("remove", keys, _remove)
    return found


async def _fill(store: RedisStore, pace: Pace) -> None:
    keys = (TaskKey(_scope(at % pace.scopes), _ident("stored", 0, at)) for at in range(pace.stored))

    async def make(numbered: tuple[int, TaskKey]) -> None:
        number, key = numbered
        await _create(store, key)
        if number % RUNNING:
            await _finish(store, key)

    await each(enumerate(keys), make, 8 * AT_ONCE)


async def each(
    items: Iterable[_Item], work: Callable[[_Item], Awaitable[object]], at_once: int = AT_ONCE
) -> None:
    """Work on each item, so many at a time."""
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(some())


def _ident(kind: str, number: int, at: int) -> str:
    # As long as a UUID, as most ids are.
    return f"{kind:_<8}-{number:08d}-{at:018d}"


def _scope(number: int) -> Scope:
    return Scope("bench", f"{number:032x}")


def _new(key: TaskKey, keep_ms: int) -> NewTask:
    return NewTask(
        key=key,
        dialect="a",
        method="tools/call",
        tool="small",
        pattern="*",
        session="session",
        request_id=key.task_id.encode(),
        keep_alive=keep_ms,
        poll_interval=2_000,
        timeout=7_200_000,
        first_status="working",
    )


async def _create(store: RedisStore, key: TaskKey) -> None:
    _expect(isinstance(await store.create(_new(key, KEEP_MS), "bench", LEASE_MS, ROOMY), Task), "create")


async def _create_short(store: RedisStore, key: TaskKey) -> None:
    _expect(isinstance(await store.create(_new(key, SHORT_MS), "bench", LEASE_MS, ROOMY), Task), "create")


async def _get(store: RedisStore, key: TaskKey) -> None:
    _expect(await store.get(key), "get")


async def _finish(store: RedisStore, key: TaskKey) -> None:
    _expect(await store.finish(key, OURS, DONE), "finish")


async def _list(store: RedisStore, scope: Scope) -> None:
    tasks, _ = await store.page(scope, None, TASKS)
    _expect(len(tasks) == TASKS, "list")


async def _sweep(store: RedisStore, scope: Scope) -> None:
    tasks, _ = await store.page(scope, None, 1)
    _expect(len(tasks) == 1, "list after expiry")


async def _look(store: RedisStore, _: int) -> None:
    _expect(not await store.claim_lost("another", LEASE_MS, 16), "no lost task")


async def _remove(store: RedisStore, key: TaskKey) -> None:
    _expect(await store.remove(key), "remove")


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise WrongAnswer(f"{what}: not what it must be")


def _verdict(outcome: Outcome) -> str:
    """Return the ratio of time beside its bound, and what Redis itself takes more.

    A store that is full is never wholly like an empty one: its keys are in memory, not in the processor's
    caches, and a scope's sorted sets of up to 128 tasks are lists that Redis reads from the start.
    """
    took = outcome.cell("full", "each")
    full, empty = (outcome.cell(side, "redis_cpu") for side in ("full", "empty"))
    if took is None or took.ratio is None or full is None or empty is None:
        return "nothing was measured"
    more = (full.median - empty.median) * 1e3
    held = "held" if took.ratio <= BOUND else "NOT HELD"
    return f"bound {BOUND:.2f}x, time {took.ratio:.3f}x: {held}; Redis itself takes {more:+.0f} µs of CPU"
