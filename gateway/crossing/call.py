"""One call in a held session: which messages are its own, and the row in which they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from gateway.aio.spawn import Crew
from gateway.crossing.merged import Merged
from gateway.protocol.envelope import Envelope, members, meta_of, text_of
from gateway.upstream.ids import key

# 2025-11-25 logging, "Log Levels" (RFC 5424), the most verbose first.
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LOG: Final = "notifications/message"
_PROGRESS: Final = "notifications/progress"


def verbosity(level: str | None) -> int:
    """Return how much a level lets pass: 0 for none, most for `debug`; unknown levels count as `info`."""
    if level is None:
        return 0
    return len(LEVELS) - LEVELS.index(level if level in LEVELS else "info")


class Call:
    """A call in flight, with the raw `params` of its request.

    `level` is the least level of log messages that its caller wants.
    """

    def __init__(
        self, source: AsyncGenerator[bytes, None], params: bytes | None, level: str | None
    ) -> None:
        self._source = source
        self._params = params
        self._level = level
        self._merged: Merged | None = None

    def __repr__(self) -> str:
        return f"<Call {'with' if self._merged else 'without'} messages from beside>"

    def read(self, crew: Crew | None) -> AsyncGenerator[bytes, None]:
        """Return its messages; with a crew others can be inserted."""
        if crew is None:
            return self._source
        self._merged = Merged(self._source, crew)
        return self._merged.read()

    def insert(self, raw: bytes) -> bool:
        """Put a message in that came on another way; false where that cannot be."""
        return self._merged is not None and self._merged.insert(raw)

    def unread(self) -> list[bytes]:
        """Return what was inserted and never read."""
        return [] if self._merged is None else self._merged.unread()

    def wants(self, one: Envelope) -> bool:
        """Tell whether the caller wants a notification that came on the call's own way."""
        if one.method != _LOG:
            return True
        level = text_of(members(one.params).get("level"))
        return verbosity(level or "info") <= verbosity(self._level)

    def owns(self, one: Envelope) -> bool:
        """Tell whether a notification that came beside all calls can be of this one."""
        if one.method == _PROGRESS:
            token = members(one.params).get("progressToken")
            own = meta_of(self._params).get("progressToken")
            return token is not None and own is not None and key(bytes(token)) == key(bytes(own))
        return self.wants(one)
