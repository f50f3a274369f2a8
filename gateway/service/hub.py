"""Who waits for a task on this replica: one reader of the store for each task, however many wait.

While nothing happens a task costs what is known of it and a bell for each who waits: no loop of its own.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.store.port import Bus, Store
from gateway.tasks.model import Outcome, Task, TaskKey

State = tuple[Task, Outcome | None]
# A wake-up may be lost with its connection; the bus then rings every bell. This is for what expires.
_LOOK_AGAIN_SECONDS: Final = 120.0
_ROUND_SECONDS: Final = 2.5
_STORE_SECONDS: Final = 2.0


class Bell:
    """Wakes one that waits."""

    __slots__ = ("_due", "_poked", "_rung", "_waiter", "stopped")

    def __init__(self) -> None:
        self._rung = False
        self._poked = False
        self._waiter: asyncio.Future[None] | None = None
        self._due = 0.0
        self.stopped = False

    def ring(self) -> None:
        """Something has happened."""
        self._rung = True
        self._wake()

    def poke(self) -> None:
        """What has happened is to be looked at once more."""
        self._poked = True
        self.ring()

    def take_poke(self) -> bool:
        """Tell whether it is to be looked at once more, and forget that."""
        poked, self._poked = self._poked, False
        return poked

    def stop(self) -> None:
        """Nothing that happens matters any more."""
        self.stopped = True
        self.ring()

    async def rings(self, patience: float) -> bool:
        """Wait for the bell; tell whether it rang within `patience` seconds, or a round of the hub more."""
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            self._due = loop.time() + patience
            # Who has much patience is woken by the hub: a timer each would be most of what waiting costs.
            timer = None if patience > _ROUND_SECONDS else loop.call_later(patience, self._wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        rung, self._rung = self._rung, False
        return rung

    def look_at(self, now: float) -> None:
        """Wake the one that waits if that has lasted too long."""
        if now >= self._due:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Watch:
    """What is known of a task, and the bells of those who wait for it; `number` counts its states."""

    __slots__ = ("_hub", "bells", "key", "number", "read_at", "reading", "stale", "state")

    def __init__(self, hub: Hub, key: TaskKey) -> None:
        self._hub = hub
        self.key = key
        self.number = 0
        self.state: State | None = None
        self.bells: set[Bell] = set()
        self.reading: asyncio.Task[None] | None = None
        self.read_at = 0.0
        self.stale = False

    def ring(self) -> None:
        """The task may have changed."""
        self._hub.look(self)

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
        self._watches: dict[TaskKey, Watch] = {}
        self._round: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Hub {len(self._watches)} tasks>"

    def __len__(self) -> int:
        return len(self._watches)

    def join(self, key: TaskKey, bell: Bell) -> Watch:
        """Have a bell rung at each new state of a task, to be seen in what is returned; then `leave`."""
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = Watch(self, key)
            self._bus.hear(key, watch.ring)
            self.look(watch)
            if self._round is None:
                self._round = asyncio.get_running_loop().call_later(_ROUND_SECONDS, self._go_round)
        watch.bells.add(bell)
        return watch

    def leave(self, watch: Watch, bell: Bell) -> None:
        """Have it rung no more."""
        watch.bells.discard(bell)
        if not watch.bells:
            if watch.reading is not None:
                watch.reading.cancel()
            self._drop(watch)

    def look(self, watch: Watch) -> None:
        """Read a task, once more where it is being read."""
        watch.stale = True
        if watch.reading is None:
            watch.reading = self._crew.spawn(self._read(watch), "watch")

    async def _read(self, watch: Watch) -> None:
        try:
            while watch.stale:
                watch.stale = False
                watch.read_at = asyncio.get_running_loop().time()
                try:
                    state = await self._store.outcome(watch.key)
                except StoreAway:
                    # Who waits goes on waiting: the store comes back, and the task with it (I9).
                    watch.stale = True
                    await self._clock.sleep(_STORE_SECONDS)
                    continue
                watch.tell(state)
                if state is None or state[0].ended:
                    # Whoever comes now reads anew.
                    self._drop(watch)
                    return
        finally:
            watch.reading = None

    def _drop(self, watch: Watch) -> None:
        self._bus.unhear(watch.key, watch.ring)
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]
        if not self._watches and self._round is not None:
            self._round.cancel()
            self._round = None

    def _go_round(self) -> None:
        """Look again at what nobody has spoken of for long; wake those who have waited for long."""
        loop = asyncio.get_running_loop()
        self._round = loop.call_later(_ROUND_SECONDS, self._go_round)
        now = loop.time()
        for watch in self._watches.values():
            if now >= watch.read_at + _LOOK_AGAIN_SECONDS:
                self.look(watch)
            for bell in watch.bells:
                bell.look_at(now)


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
