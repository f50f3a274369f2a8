"""The questions that this replica alone may ask of a client now, among all where somebody waits (I6).

The store has it of each question which replica asks it, and until when. Where that replica dies, or is
stopped for longer than its lease, another asks; then alone the client may see a question twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.store.port import Asker, Bus, Store
from gateway.tasks.model import TaskKey

_AWAY_MS: Final = 1000


class _Lookout:
    """Waits for questions of a task that other replicas ask: they may let go of them, or die."""

    def __init__(self, bus: Bus, key: TaskKey, free: Callable[[], None]) -> None:
        self._bus = bus
        self._key = key
        self._free = free
        self._timer: asyncio.TimerHandle | None = None
        bus.hear(key, free)

    def by(self, seconds: float) -> None:
        """Look at the latest in so many seconds."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer.when() <= loop.time():
            self._timer = None
        if self._timer is None or loop.time() + seconds < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, self._free)

    def end(self) -> None:
        self._bus.unhear(self._key, self._free)
        if self._timer is not None:
            self._timer.cancel()


class Bespoken:
    """Takes questions for this replica and keeps them until nobody here waits for their task.

    `on_free` hears of tasks with a question that may be had now, which another replica had.
    """

    def __init__(
        self,
        asker: Asker,
        store: Store,
        bus: Bus,
        clock: Clock,
        crew: Crew,
        on_free: Callable[[TaskKey], None],
    ) -> None:
        self._asker = asker
        self._store = store
        self._bus = bus
        self._clock = clock
        self._crew = crew
        self._on_free = on_free
        self._mine: dict[TaskKey, set[str]] = {}
        self._lookouts: dict[TaskKey, _Lookout] = {}
        self._keeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Bespoken {len(self._mine)} tasks, looks out for {len(self._lookouts)}>"

    @property
    def lease(self) -> float:
        """For how many seconds a question stays with a replica that says no more."""
        return self._asker.lease_ms / 1000

    async def take(self, key: TaskKey, relay: str, waiter: str) -> bool:
        """Tell whether this replica may ask a question; where it may not yet, `on_free` is called later.

        Who waited elsewhere as the same `waiter`, where that is named, has taken it along.
        """
        # Noted before it is known: who stops waiting in the meantime lets go of it too.
        self._mine.setdefault(key, set()).add(relay)
        try:
            left = await self._store.bespeak(key, relay, self._asker, waiter)
        except StoreAway:
            left = _AWAY_MS
        if left == 0:
            self._keep()
            return True
        self._drop(key, relay)
        if left:
            lookout = self._lookouts.get(key)
            if lookout is None:
                lookout = self._lookouts[key] = _Lookout(self._bus, key, partial(self._on_free, key))
            lookout.by(left / 1000)
        return False

    def give_back(self, key: TaskKey) -> None:
        """Nobody here waits for a task any more: its questions are for others to ask."""
        lookout = self._lookouts.pop(key, None)
        if lookout is not None:
            lookout.end()
        for relay in self._mine.pop(key, ()):
            self._crew.spawn(self._let_go(key, relay), "let go of a question")

    async def _let_go(self, key: TaskKey, relay: str) -> None:
        asker = msgspec.structs.replace(self._asker, lease_ms=0)
        with suppress(StoreAway):
            if relay not in self._mine.get(key, ()):
                await self._store.bespeak(key, relay, asker)

    def _keep(self) -> None:
        if self._keeping is None or self._keeping.done():
            self._keeping = self._crew.spawn(self._renew(), "keep questions")

    async def _renew(self) -> None:
        while self._mine:
            await self._clock.sleep(self.lease / 3)
            with suppress(StoreAway):
                for key, relays in list(self._mine.items()):
                    for relay in tuple(relays):
                        if await self._store.bespeak(key, relay, self._asker) != 0:
                            self._drop(key, relay)

    def _drop(self, key: TaskKey, relay: str) -> None:
        relays = self._mine.get(key, set())
        relays.discard(relay)
        if not relays:
            self._mine.pop(key, None)
