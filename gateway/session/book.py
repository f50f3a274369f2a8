"""Which sessions this replica has seen lately: their number is bounded, ended ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.codes import LIMIT_REACHED, SESSION_NOT_FOUND
from gateway.protocol.errors import Refusal, StoreAway
from gateway.session.token import Session
from gateway.store.port import Store

IDLE_SECONDS: Final = 3600.0
ENDED_MS: Final = 30 * 86_400_000
_SWEEP_SECONDS: Final = 30.0
_QUIET_SECONDS: Final = 5.0


class SessionBook:
    """Counts sessions; idle ones make room, the token itself stays good (clients seldom start anew)."""

    def __init__(self, store: Store, clock: Clock, limit: int, changed: Callable[[str, int], None]) -> None:
        self._store = store
        self._clock = clock
        self._limit = limit
        self._changed = changed
        self._seen: dict[str, tuple[str, float]] = {}
        self._counts: dict[str, int] = {}
        self._ended: dict[str, None] = {}
        self._swept = clock.monotonic()
        self._quiet_until = 0.0

    def __len__(self) -> int:
        return len(self._seen)

    def admit(self) -> None:
        """Raise `Refusal` where there is no room for one more session."""
        if len(self._seen) < self._limit:
            return
        self._sweep(force=True)
        if len(self._seen) >= self._limit:
            raise Refusal(
                LIMIT_REACHED,
                f"Limit reached: sessions ({self._limit}); try again later",
                {"limit": "sessions", "max": self._limit, "retryAfter": 30},
                status=503,
                retry_after=30,
            )

    def note(self, session: Session) -> None:
        """Count a session that has just been opened."""
        if session.tag not in self._seen:
            self._count(session.upstream, 1)
        self._seen[session.tag] = (session.upstream, self._clock.monotonic())

    async def touch(self, session: Session) -> None:
        """Note that a session is in use; raise `Refusal` -32001 where its client has ended it."""
        tag = session.tag
        now = self._clock.monotonic()
        if tag in self._ended or (tag not in self._seen and await self._was_ended(tag)):
            raise session_unknown()
        self.note(session)
        if now - self._swept > _SWEEP_SECONDS:
            self._sweep(force=False)

    def forget(self, tag: str) -> None:
        """Remember that a session has been ended, here or on another replica."""
        self._ended[tag] = None
        if len(self._ended) > self._limit:
            self._ended.pop(next(iter(self._ended)))
        seen = self._seen.pop(tag, None)
        if seen is not None:
            self._count(seen[0], -1)

    async def end(self, session: Session) -> None:
        """Remember, for all replicas that see the session for the first time, that its client ended it."""
        self.forget(session.tag)
        try:
            await self._store.end_session(session.tag, ENDED_MS)
        except StoreAway:
            return

    async def _was_ended(self, tag: str) -> bool:
        now = self._clock.monotonic()
        if now < self._quiet_until:
            return False
        try:
            return await self._store.session_ended(tag)
        except StoreAway:
            # Plain traffic must not wait for the store again and again (I9).
            self._quiet_until = now + _QUIET_SECONDS
            return False

    def _sweep(self, *, force: bool) -> None:
        now = self._clock.monotonic()
        self._swept = now
        idle = IDLE_SECONDS / 4 if force else IDLE_SECONDS
        for tag, (upstream, seen) in list(self._seen.items()):
            if now - seen >= idle:
                del self._seen[tag]
                self._count(upstream, -1)

    def _count(self, upstream: str, change: int) -> None:
        self._counts[upstream] = self._counts.get(upstream, 0) + change
        self._changed(upstream, self._counts[upstream])


def session_unknown() -> Refusal:
    """Return the answer to a session id that is not, or no longer, good (2025-11-25 transports)."""
    return Refusal(SESSION_NOT_FOUND, "Session not found: initialize anew", status=404)
