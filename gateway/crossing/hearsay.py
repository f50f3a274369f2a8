"""Changes that an upstream tells in one session of a caller, for that caller's subscribers elsewhere.

Many servers tell of a change in the session alone that brought it about, and each replica holds sessions of
its own (design I6). What is heard goes to the other replicas under a name that only the same caller's
sessions have (I7); who subscribes is noted in the store, so that sessions elsewhere listen too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.crossing.kept import Tell
from gateway.protocol.envelope import Envelope, members, notification, text_of
from gateway.protocol.errors import StoreAway

_log: Final = logging.getLogger("gateway.crossing")

WATCHES_METHOD: Final = "notifications/gateway/watches"
_WATCHES: Final = notification(WATCHES_METHOD, b"{}")
_MARK: Final = "changes"
_LIFE: Final = 60.0
# Neither a subscription nor a call waits longer for a store that does not answer (I9).
_PATIENCE: Final = 0.5
_MOST: Final = 10_000
_LARGE: Final = 64 * 1024


class Watched(Protocol):
    """Names of those who are subscribed to, for a while. What is asynchronous raises `StoreAway`."""

    def hear_return(self, ring: Callable[[], None]) -> None:
        """Have `ring` called when other replicas are heard again, whose words may have been lost."""
        ...

    def unhear_return(self, ring: Callable[[], None]) -> None:
        """Have it called no more."""
        ...

    async def note(self, upstream: str, name: str, seconds: float) -> None:
        """Note a name for so many seconds from now."""
        ...

    async def noted(self, upstream: str, name: str) -> bool:
        """Tell whether a name is noted."""
        ...


class Hearsay:
    """What replicas tell each other of one upstream's changes.

    `tell` says a message to all other replicas; `secret` is what they have in common. `on_gap` is
    called when something may not have been heard.
    """

    def __init__(
        self,
        upstream: str,
        watched: Watched,
        tell: Tell,
        secret: Callable[[], bytes],
        clock: Clock | None = None,
    ) -> None:
        self._upstream = upstream
        self._watched = watched
        self._tell = tell
        self._secret = secret
        self._clock = SystemClock() if clock is None else clock
        self._crew = Crew("hearsay")
        self._watching: Counter[bytes] = Counter()
        self._names: dict[bytes, str] = {}
        self._keys: dict[str, bytes] = {}
        self.on_gap: Callable[[], None] = lambda: None
        self._noting: asyncio.Task[None] | None = None
        self._unsaid: dict[tuple[str, str, str], bytes] = {}
        self._saying: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Hearsay of {self._upstream}, {len(self._watching)} watched>"

    def name(self, key: bytes) -> str:
        """Return the name of a caller's sessions (`session_key`) among replicas; it tells nobody more."""
        name = self._names.pop(key, "")
        if not name:
            said = b"\0".join((b"mtg-changes-1", self._upstream.encode(), key))
            digest = hmac.new(self._secret(), said, hashlib.sha256).hexdigest()
            name = f"{_MARK}.{self._upstream}.{digest[:32]}"
            self._keys[name] = key
        self._names[key] = name
        if len(self._names) > _MOST:
            older = next(iter(self._names))
            del self._keys[self._names.pop(older)]
        return name

    def key_of(self, name: str) -> bytes | None:
        """Return what a name stands for, where it was made here not too long ago, or is watched."""
        return self._keys.get(name)

    def owns(self, name: str) -> bool:
        """Tell whether a name may be that of sessions with this upstream."""
        return name.rpartition(".")[0] == f"{_MARK}.{self._upstream}"

    def pass_on(self, key: bytes, one: Envelope) -> None:
        """Tell the other replicas of a change; of those alike that wait to be told one is told."""
        uri = text_of(members(one.params).get("uri")) or ""
        if len(one.raw) > _LARGE:
            _log.warning("a change is not told to other replicas: it has %d bytes", len(one.raw))
            return
        name = self.name(key)
        self._unsaid.pop((name, one.method, uri), None)
        self._unsaid[name, one.method, uri] = one.raw
        if len(self._unsaid) > _MOST:
            del self._unsaid[next(iter(self._unsaid))]
            _log.warning("more than %d changes wait to be told to other replicas", _MOST)
        if self._saying is None or self._saying.done():
            self._saying = self._crew.spawn(self._say(), "say")

    async def watch(self, key: bytes) -> None:
        """Let sessions of other replicas listen for a caller from now on, until `unwatch`."""
        name = self.name(key)
        if not self._watching:
            self._watched.hear_return(self._heard_again)
        self._watching[key] += 1
        if self._watching[key] > 1:
            return
        with suppress(StoreAway, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._watched.note(self._upstream, name, _LIFE)
                await self._tell(name, _WATCHES)
        if self._noting is None or self._noting.done():
            self._noting = self._crew.spawn(self._note(), "note")

    def unwatch(self, key: bytes) -> None:
        """Listen for a caller no more."""
        self._watching[key] -= 1
        if not self._watching[key]:
            del self._watching[key]
        if not self._watching:
            self._watched.unhear_return(self._heard_again)

    async def watched(self, key: bytes) -> bool:
        """Tell whether any replica listens for a caller, or did a moment ago."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._watched.noted(self._upstream, self.name(key))
        except (StoreAway, TimeoutError):
            return False

    async def close(self) -> None:
        """Say nothing more."""
        await self._crew.close()

    def _heard_again(self) -> None:
        self.on_gap()

    async def _say(self) -> None:
        while self._unsaid:
            name, method, uri = next(iter(self._unsaid))
            await self._tell(name, self._unsaid.pop((name, method, uri)))

    async def _note(self) -> None:
        while self._watching:
            await self._clock.sleep(_LIFE / 3)
            for key in list(self._watching):
                # Its name stays known by that too.
                name = self.name(key)
                with suppress(StoreAway):
                    await self._watched.note(self._upstream, name, _LIFE)
