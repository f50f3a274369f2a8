"""Server-sent events: bytes in, events out, and back (WHATWG HTML section 9.2)."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_LINE: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_MAX_DIGITS: Final = 12


class Event(msgspec.Struct, frozen=True):
    """One event: `data` joined with newlines, `id` as set by this event, `retry` in milliseconds."""

    data: bytes
    name: str = "message"
    id: str | None = None
    retry: int | None = None


class Parser:
    """Feed it bytes as they come, get whole events; comments vanish, unfinished events wait.

    Raise `ValueError` when an event grows beyond `limit` bytes.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._waiting = 0
        self._start: bytes | None = b""
        self._after_cr = False
        self._reset()

    def __repr__(self) -> str:
        return f"<sse.Parser {self._waiting} bytes waiting>"

    def feed(self, chunk: bytes) -> list[Event]:
        """Take a chunk and return the events that it completed."""
        if self._start is not None:
            chunk = self._begin(chunk)
        if self._after_cr and chunk:
            # The other half of a CRLF.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *lines = chunk.split(b"\n")
        self._rest.append(first)
        self._waiting += len(first)
        if lines:
            lines.insert(0, b"".join(self._rest))
            self._rest = [lines.pop()]
            self._waiting = len(self._rest[0])
        events: list[Event] = []
        for line in lines:
            if line:
                self._field(line)
            elif (event := self._dispatch()) is not None:
                events.append(event)
        if self._waiting + self._size > self._limit:
            raise ValueError(f"an event grew beyond {self._limit} bytes")
        return events

    def _begin(self, chunk: bytes) -> bytes:
        """Leave out a byte order mark, however it is cut."""
        start = (self._start or b"") + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _field(self, line: bytes) -> None:
        name, _, content = line.partition(b":")
        content = content.removeprefix(b" ")
        if name == b"data":
            self._data.append(content)
            self._size += len(content) + 1
        elif name == b"event":
            self._name = content.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in content:
            self._id = content.decode("utf-8", "replace")
        elif name == b"retry" and content.isdigit() and len(content) < _MAX_DIGITS:
            self._retry = int(content)

    def _dispatch(self) -> Event | None:
        if not self._data and self._id is None and self._retry is None:
            self._reset()
            return None
        event = Event(b"\n".join(self._data), self._name or "message", self._id, self._retry)
        self._reset()
        return event

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._id: str | None = None
        self._retry: int | None = None


def encode(data: bytes, ident: str | None = None) -> bytes:
    """Return one `message` event on the wire; `data` is JSON on any number of lines."""
    head = b"" if ident is None else b"id: " + ident.encode() + b"\n"
    if b"\n" in data or b"\r" in data:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        data = b"\ndata: ".join(lines)
    return b"event: message\n" + head + b"data: " + data + b"\n\n"
