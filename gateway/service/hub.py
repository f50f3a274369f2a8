"""Who waits for a task on this replica: one reader of the store for each task, however many wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.store.port import Bus, Store
from gateway.tasks.model import Outcome, Task, TaskKey

State = tuple[Task, Outcome | None]
# A wake-up may be lost with its connection; the bus then rings every bell. This is for what expires.
_LOOK_AGAIN_SECONDS: Final = 120.0
_STORE_SECONDS: Final = 2.0


class Bell:
    """Wakes one that waits."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.stopped = False

    def ring(self) -> None:
        """Something has happened."""
        self._rung.set()

    def stop(self) -> None:
        """Nothing that happens matters any more."""
        self.stopped = True
        self._rung.set()

    async def rings(self, patience: float) -> bool:
        """Wait for the bell; tell whether it rang within `patience` seconds."""
        # A timer that rings is much cheaper than a time-out that cancels, and there may be many.
        late = False

        def give_up() -> None:
            nonlocal late
            late = True
            self._rung.set()

        timer = asyncio.get_running_loop().call_later(patience, give_up)
        try:
            await self._rung.wait()
        finally:
            timer.cancel()
        self._rung.clear()
        return not late


class _Watch:
    """The one reader of a task's state, and the bells of those who wait for it."""

    def __init__(self) -> None:
        self.number = 0
        self.state: State | None = None
        self.bells: set[Bell] = set()
        self.reading: asyncio.Task[None] | None = None

    def tell(self, state: State | None) -> None:
        """Let everybody know, unless nothing has changed."""
        if self.number and _same(self.state, state):
            return
        self.state = state
        self.number += 1
        for bell in self.bells:
            bell.ring()


class Hub:
    """Tells of the states of tasks, each once to everybody who waits for it."""

    def __init__(self, store: Store, bus: Bus, crew: Crew, clock: Clock) -> None:
        self._store = store
        self._bus = bus
        self._crew = crew
        self._clock = clock
        self._watches: dict[TaskKey, _Watch] = {}

    def __repr__(self) -> str:
        return f"<Hub {len(self._watches)} tasks>"

    def __len__(self) -> int:
        return len(self._watches)

    async def attend(
        self, key: TaskKey, patience: float, bell: Bell | None = None
    ) -> AsyncGenerator[State | None, None]:
        """Yield a task's state, then each new one, the end last; end at once where it is not there.

        `None` says that nothing happened for `patience` seconds. Who brings the `bell` can stop it.
        """
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch()
            watch.reading = self._crew.spawn(self._read(key, watch), "watch")
        bell = Bell() if bell is None else bell
        watch.bells.add(bell)
        seen = 0
        try:
            while not bell.stopped:
                if watch.number > seen:
                    seen = watch.number
                    state = watch.state
                    if state is None:
                        return
                    yield state
                    if state[0].ended:
                        return
                elif not await bell.rings(patience):
                    yield None
        finally:
            watch.bells.discard(bell)
            if not watch.bells:
                self._forget(key, watch)

    def _forget(self, key: TaskKey, watch: _Watch) -> None:
        if watch.reading is not None:
            watch.reading.cancel()
        if self._watches.get(key) is watch:
            del self._watches[key]

    async def _read(self, key: TaskKey, watch: _Watch) -> None:
        async with self._bus.watch(key) as wakeup:
            while True:
                try:
                    state = await self._store.outcome(key)
                except StoreAway:
                    # Who waits goes on waiting: the store comes back, and the task with it (I9).
                    await self._clock.sleep(_STORE_SECONDS)
                    continue
                watch.tell(state)
                if state is None or state[0].ended:
                    # Whoever comes now reads anew.
                    if self._watches.get(key) is watch:
                        del self._watches[key]
                    return
                try:
                    async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                        await wakeup.wait()
                except TimeoutError:
                    continue


async def last_state(states: AsyncGenerator[State | None, None]) -> State | None:
    """Return how a task ended, `None` where it is gone."""
    found: State | None = None
    async with aclosing(states):
        async for state in states:
            found = state or found
    return found if found is not None and found[0].ended else None


def _same(one: State | None, other: State | None) -> bool:
    if one is None or other is None:
        return one is other
    before, after = one[0], other[0]
    return (
        before.status == after.status
        and before.status_message == after.status_message
        and before.updated_at == after.updated_at
        and before.pending == after.pending
    )
