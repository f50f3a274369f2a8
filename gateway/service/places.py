"""How far the stream of a task's upstream was heard, written down for who may have to take the call up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from gateway.aio.clock import Clock
from gateway.protocol.errors import StoreAway
from gateway.store.port import Claim, Store
from gateway.tasks.model import TaskKey

_PAUSE_SECONDS: Final = 0.25
Spawn = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]
Recourse = Callable[[], bytes]


class Places:
    """The places of one task. What has no message to be stored with is written now and then, newest wins.

    A place that is too old costs some progress that is told twice; one that is too new would lose
    messages, so none is written before its message was dealt with. `recourse` makes a new course to go
    with the next place.
    """

    def __init__(self, store: Store, key: TaskKey, claim: Claim, clock: Clock, spawn: Spawn) -> None:
        self._store = store
        self._key = key
        self._claim = claim
        self._clock = clock
        self._spawn = spawn
        self._writing = asyncio.Lock()
        self._written = ""
        self._work: asyncio.Task[Any] | None = None
        self.recourse: Recourse | None = None
        self.newest = ""

    def __repr__(self) -> str:
        return f"<Places {self.newest!r}, {self._written!r} written>"

    def go_on(self, place: str) -> None:
        """Begin where another replica has come to."""
        self.newest = self._written = place

    def note(self, place: str) -> None:
        """Have a place written soon."""
        if not place or place == self.newest:
            return
        self.newest = place
        if self._work is None or self._work.done():
            self._work = self._spawn(self._write(), "places")

    async def with_message(self, place: str) -> str:
        """Return a place that the caller now stores together with its message."""
        if not place:
            return ""
        async with self._writing:
            if self.recourse is not None:
                with suppress(StoreAway):
                    await self._mark(self._written)
            self.newest = self._written = place
        return place

    async def flush(self) -> None:
        """Write what is not written; what the store does not take is lost."""
        with suppress(StoreAway):
            async with self._writing:
                if self.newest != self._written or self.recourse is not None:
                    await self._mark(self.newest)

    async def restart(self, recourse: Recourse | None) -> None:
        """Forget all places: the call is made again, and is to be found by another course."""
        async with self._writing:
            self.newest = self._written = ""
            self.recourse = recourse
            with suppress(StoreAway):
                await self._mark("")

    def end(self) -> None:
        """Write nothing more."""
        if self._work is not None:
            self._work.cancel()

    async def _write(self) -> None:
        while self.newest != self._written:
            try:
                async with self._writing:
                    if self.newest != self._written and not await self._mark(self.newest):
                        return
            except StoreAway:
                return
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _mark(self, place: str) -> bool:
        course = b"" if self.recourse is None else self.recourse()
        taken = await self._store.mark(self._key, self._claim, place, course)
        self._written = place
        if course:
            self.recourse = None
        return taken
