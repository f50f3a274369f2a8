"""The sessions that are held with one upstream: taken, shared, opened once, bounded, ended when idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.crossing.carriers import Opened, Opener
from gateway.crossing.held import HeldSession
from gateway.crossing.keys import may_be_asked, session_key
from gateway.crossing.port import Caller
from gateway.crossing.shelf import Shelf, Turn
from gateway.protocol.codes import LIMIT_REACHED
from gateway.protocol.envelope import Envelope
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import Headers

_log = logging.getLogger("gateway.crossing")

_MAX_TURNS: Final = 1000
_END_MAX: Final = 60.0
# A session that is ended to make room may occupy it for so long yet.
_ROOM_SECONDS: Final = 10.0
_FULL_SECONDS: Final = 30
_STOPPING: Final = "the gateway is stopping"


class Bounds(msgspec.Struct, frozen=True):
    """How many `sessions` may be open or being opened; `idle` and `patience` in seconds.

    One that nobody used for so long ends; a call waits so long for its turn.
    """

    sessions: int
    idle: float
    patience: float


class HeldSessions:
    """All held sessions of one upstream, by caller.

    `on_sessions` hears how many there are after
    each change, `on_change` each notification of a change that comes in any of them, with the name of
    its caller's sessions; `watched` tells whether somebody elsewhere wants to hear of those.
    """

    def __init__(
        self,
        opener: Opener,
        clock: Clock,
        bounds: Bounds,
        *,
        on_sessions: Callable[[int], None],
        on_change: Callable[[bytes, Envelope], None],
        watched: Callable[[bytes], Awaitable[bool]] | None = None,
    ) -> None:
        self._opener = opener
        self._clock = clock
        self._max = bounds.sessions
        self._idle = bounds.idle
        self._patience = bounds.patience
        self._on_sessions = on_sessions
        self._on_change = on_change
        self._watched = watched
        self._shelves: dict[bytes, Shelf] = {}
        self._queued: dict[Shelf, None] = {}
        self._last: tuple[Caller, Headers, bytes] | None = None
        self._owners: dict[HeldSession, Shelf] = {}
        self._opening = 0
        self._crew = Crew("held sessions")
        self._endings = Crew("ending held sessions")
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<HeldSessions {len(self._owners)} of {self._max}, {self._opening} opening>"

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def crew(self) -> Crew:
        """Who runs what belongs to sessions."""
        return self._crew

    @asynccontextmanager
    async def borrowed(
        self, caller: Caller, headers: Headers, holder: object, only: HeldSession | None = None
    ) -> AsyncGenerator[HeldSession]:
        """Have a session for one exchange of `holder`; rather `only`, where that still lives.

        Raises `UpstreamLost` where none can be opened, `Refusal` -32029 (503) where a bound is met.
        """
        session = await self.take(caller, headers, holder, only)
        try:
            yield session
        finally:
            self.give_back(session)

    async def take(
        self, caller: Caller, headers: Headers, holder: object, only: HeldSession | None
    ) -> HeldSession:
        """Return a session as `borrowed` does, to be given back."""
        shelf = self._shelf(caller, headers)
        if only is not None and (only.lost or only not in shelf.sessions):
            only = None
        if not shelf.turns or only is not None:
            found = shelf.free(holder, only)
            if found is not None:
                found.hold(holder)
                return found
        if len(shelf.turns) >= _MAX_TURNS:
            raise self._full()
        turn = Turn(holder, headers, only)
        shelf.turns.append(turn)
        self._queued[shelf] = None
        self._serve(shelf)
        return await self._wait(shelf, turn)

    def give_back(self, session: HeldSession) -> None:
        """Take back a session that was taken."""
        session.let_go()
        self._serve_all()

    async def shared(self, caller: Caller, headers: Headers) -> HeldSession:
        """Return a session of the caller whoever uses it, opened if need be; for what takes no turn.

        Raises what `borrowed` raises.
        """
        shelf = self._shelves.get(self.key(caller, headers))
        found = None if shelf is None else shelf.any()
        if found is None:
            async with self.borrowed(caller, headers, object()) as found:
                pass
        return found

    async def close(self) -> None:
        """End all sessions."""
        self._closed = True
        for shelf in list(self._shelves.values()):
            shelf.fail(UpstreamLost(_STOPPING, sent=False))
        for session in list(self._owners):
            self._remove(session)
        await self._endings.drain(_END_MAX)
        await self._endings.close()
        await self._crew.close()

    def hear(self, key: bytes) -> None:
        """Let all sessions of a caller hear what comes beside calls."""
        shelf = self._shelves.get(key)
        for session in () if shelf is None else shelf.sessions:
            session.hear()

    def _shelf(self, caller: Caller, headers: Headers) -> Shelf:
        if self._closed:
            raise UpstreamLost(_STOPPING, sent=False)
        key = self.key(caller, headers)
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = Shelf(key, caller)
        return shelf

    def key(self, caller: Caller, headers: Headers) -> bytes:
        """Return the name of a caller's sessions; each request asks for it more than once."""
        last = self._last
        if last is not None and last[0] is caller and last[1] is headers:
            return last[2]
        key = session_key(caller, headers)
        self._last = (caller, headers, key)
        return key

    async def _wait(self, shelf: Shelf, turn: Turn) -> HeldSession:
        try:
            async with asyncio.timeout(self._patience):
                return await turn.given
        except TimeoutError:
            self._withdraw(shelf, turn)
            raise self._full() from None
        except BaseException:
            self._withdraw(shelf, turn)
            raise

    def _withdraw(self, shelf: Shelf, turn: Turn) -> None:
        if turn in shelf.turns:
            shelf.turns.remove(turn)
        elif turn.given.done() and not turn.given.cancelled() and turn.given.exception() is None:
            turn.given.result().let_go()
            self._serve_all()
        self._tidy(shelf)

    def _serve(self, shelf: Shelf) -> None:
        """Give turns, and begin to open a session where that helps; refuse where nothing can help."""
        if not shelf.serve() or shelf.opening:
            self._tidy(shelf)
            return
        if any(not one.usable for one in shelf.sessions):
            for one in [one for one in shelf.sessions if not one.usable]:
                self._remove(one)
            return
        full = len(self._owners) + self._opening >= self._max
        victim = self._victim() if full else None
        if full and victim is None:
            if not shelf.sessions:
                shelf.fail(self._full())
            self._tidy(shelf)
            return
        shelf.opening = True
        self._opening += 1
        ending = None if victim is None else self._remove(victim)
        self._crew.spawn(self._open(shelf, shelf.turns[0].headers, ending), "open")

    def _serve_all(self) -> None:
        if self._queued:
            self._queued = {shelf: None for shelf in self._queued if shelf.turns}
            for shelf in list(self._queued):
                self._serve(shelf)

    async def _open(self, shelf: Shelf, headers: Headers, ending: asyncio.Task[None] | None) -> None:
        """Open a session for those who wait at a shelf."""
        wrong: GatewayError = UpstreamLost(_STOPPING, sent=False)
        session: HeldSession | None = None
        try:
            if ending is not None:
                await asyncio.wait([ending], timeout=_ROOM_SECONDS)
            session = await self._opened(shelf.caller, headers)
        except GatewayError as error:
            wrong = error
        finally:
            shelf.opening = False
            self._opening -= 1
            if session is None:
                if not (shelf.sessions and _is_bound(wrong)):
                    shelf.fail(wrong)
                self._tidy(shelf)
        if session is None:
            return
        self._owners[session] = shelf
        shelf.sessions.append(session)
        self._on_sessions(len(self._owners))
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = self._crew.spawn(self._end_idle(), "sweeper")
        self._serve(shelf)

    async def _opened(self, caller: Caller, headers: Headers) -> HeldSession:
        try:
            opened = await self._begin(caller, headers)
        except Refusal as refusal:
            victim = self._victim()
            if not _is_bound(refusal) or victim is None:
                raise
            # The upstream has a bound of its own, which other sessions count for.
            ending = self._remove(victim)
            if ending is not None:
                await asyncio.wait([ending], timeout=_ROOM_SECONDS)
            opened = await self._begin(caller, headers)
        key = self.key(caller, headers)
        session = HeldSession(
            opened,
            headers,
            self._crew,
            self._clock,
            on_lost=self._lost,
            on_change=partial(self._on_change, key),
        )
        if session.carrier.duplex:
            session.hear()
        elif may_be_asked(caller) or (self._watched is not None and await self._watched(key)):
            await session.heard()
        if self._closed:
            await session.end()
            raise UpstreamLost(_STOPPING, sent=False)
        return session

    async def _begin(self, caller: Caller, headers: Headers) -> Opened:
        """Open a session; what is lost then was no call: `sent` is false."""
        try:
            return await self._opener.open(caller, headers)
        except UpstreamLost as lost:
            raise UpstreamLost(
                str(lost), status=lost.status, sent=False, where=lost.where, challenge=lost.challenge
            ) from lost

    def _victim(self) -> HeldSession | None:
        idle = [one for one in self._owners if not one.busy]
        return max(idle, key=lambda one: one.idle(), default=None)

    def _lost(self, session: HeldSession) -> None:
        self._remove(session)

    def _remove(self, session: HeldSession) -> asyncio.Task[None] | None:
        """Take a session off its shelf and begin to end it."""
        shelf = self._owners.pop(session, None)
        if shelf is None:
            return None
        shelf.sessions.remove(session)
        self._on_sessions(len(self._owners))
        ending: asyncio.Task[None] = self._endings.spawn(session.end(), "end")
        if not self._closed:
            self._serve_all()
        self._tidy(shelf)
        return ending

    def _tidy(self, shelf: Shelf) -> None:
        if shelf.empty and self._shelves.get(shelf.key) is shelf:
            del self._shelves[shelf.key]

    async def _end_idle(self) -> None:
        while self._owners:
            await self._clock.sleep(max(0.05, min(60.0, self._idle / 4)))
            for session in [one for one in self._owners if one.idle() >= self._idle]:
                _log.info("a held session was idle for %g s and ends", self._idle)
                self._remove(session)

    def _full(self) -> Refusal:
        words = f"Limit reached: sessions ({self._max} sessions with this upstream are held)"
        data = {"limit": "sessions", "max": self._max, "retryAfter": _FULL_SECONDS}
        return Refusal(LIMIT_REACHED, words, data, status=503, retry_after=_FULL_SECONDS)


def _is_bound(wrong: GatewayError) -> bool:
    return isinstance(wrong, Refusal) and wrong.code == LIMIT_REACHED
