"""Notifications of changes on their way to those who listen: one of a kind waits, however many came."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.aio.clock import Clock
from gateway.crossing.port import Wanted
from gateway.protocol.envelope import Envelope, dump, members, notification, text_of

_LISTS: Final = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_UPDATED: Final = "notifications/resources/updated"
_MOST: Final = 1000
# Sessions hear of a change at about the same time; another replica's word takes a little longer.
SETTLE: Final = 0.1


def is_change(method: str) -> bool:
    """Tell whether a notification is for listeners, not for a call."""
    return method in _LISTS or method == _UPDATED


def all_of(wanted: Wanted) -> list[bytes]:
    """Return a notification of everything that is wanted, for who may have missed some."""
    lists = [notification(name, b"{}") for name, kind in _LISTS.items() if getattr(wanted, kind)]
    return lists + [notification(_UPDATED, b'{"uri":%b}' % dump(uri)) for uri in wanted.uris]


class Listener:
    """One subscription: takes notifications that match, keeps them until they are fetched.

    With a `clock` each is kept for a moment: what several sessions, or replicas, hear of one change comes
    as one, and none is lost.
    """

    def __init__(self, wanted: Wanted, clock: Clock | None = None) -> None:
        self.wanted = wanted
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}
        self._waiting: dict[tuple[str, str], bytes] = {}
        self._some = asyncio.Event()
        self._ended = False

    def __repr__(self) -> str:
        return f"<Listener {len(self._waiting)} waiting>"

    def begin(self, *, lost: bool) -> None:
        """Hear a session, perhaps after another that ended; one that is lost already ends at once."""
        self._ended = lost

    def offer(self, one: Envelope) -> None:
        """Take a notification if it is wanted."""
        kind = _LISTS.get(one.method)
        if kind is not None:
            if getattr(self.wanted, kind):
                self._keep((one.method, ""), one.raw)
        elif one.method == _UPDATED:
            uri = text_of(members(one.params).get("uri")) or ""
            if any(uri == watched or uri.startswith(_folder(watched)) for watched in self.wanted.uris):
                self._keep((one.method, uri), one.raw)

    def end(self) -> None:
        """Say that nothing more comes from the session."""
        self._ended = True
        self._some.set()

    async def take(self) -> bytes | None:
        """Return the next notification, `None` once the session has ended."""
        while True:
            while not self._waiting:
                if self._ended:
                    return None
                self._some.clear()
                await self._some.wait()
            key = next(iter(self._waiting))
            left = 0.0 if self._clock is None else self._since[key] + SETTLE - self._clock.monotonic()
            if self._clock is None or left <= 0:
                self._since.pop(key, None)
                return self._waiting.pop(key)
            await self._clock.sleep(left)

    def _keep(self, key: tuple[str, str], raw: bytes) -> None:
        self._waiting[key] = raw
        if self._clock is not None:
            self._since.setdefault(key, self._clock.monotonic())
        if len(self._waiting) > _MOST:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self._since.pop(oldest, None)
        self._some.set()


def _folder(uri: str) -> str:
    """Return the beginning of what lies below a resource: an update may name a part of it."""
    return uri if uri.endswith("/") else uri + "/"
