"""The answer to one HTTP request, from the consumer's side: a head, then a body that may still come.

A small answer is parsed whole before its head is handed out: reading it then never waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Protocol

from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers

HIGH_WATER: Final = 256 * 1024


class Source(Protocol):
    """What an answer needs of the connection that it comes from."""

    def resume(self) -> None:
        """Read on."""
        ...

    def drop(self) -> None:
        """Close the connection at once."""
        ...


class Answer:
    """A `Reply` (see the port). The connection fills it; one consumer empties it."""

    __slots__ = (
        "_complete",
        "_discard",
        "_loop",
        "_lost",
        "_parts",
        "_size",
        "_source",
        "_timer",
        "_total",
        "_waiter",
        "headers",
        "method",
        "status",
    )

    def __init__(self, method: str, source: Source, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.method = method
        self.status = 0
        self.headers: Headers = []
        self._source: Source | None = source
        self._parts: list[bytes] = []
        self._size = 0
        self._total = 0
        self._complete = False
        self._discard = False
        self._lost: UpstreamLost | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = loop or asyncio.get_running_loop()

    def __repr__(self) -> str:
        state = "complete" if self._complete else "lost" if self._lost else "open"
        return f"<Answer {self.status or 'without head'}, {self._total} bytes, {state}>"

    @property
    def buffered(self) -> int:
        """Bytes that wait for the consumer."""
        return self._size

    @property
    def received(self) -> int:
        """Bytes of the body that came."""
        return self._total

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._complete or self._lost is not None

    def header(self, name: str) -> str | None:
        """Return the first header of a lower-case name."""
        for found, content in self.headers:
            if found == name:
                return content
        return None

    async def head(self) -> None:
        """Wait until the head is in; raise `UpstreamLost` where none comes."""
        while not self.status:
            if self._lost is not None:
                raise self._lost
            await self._wait()

    async def read(self, limit: int) -> bytes:
        """Return the whole body; raise `UpstreamLost` when it is longer than `limit` or cut short."""
        announced = "" if self._complete else self.header("content-length") or ""
        parts: list[bytes] = []
        size = int(announced) if announced.isdigit() and int(announced) > limit else 0
        while True:
            if size + self._size > limit:
                self.abandon()
                raise UpstreamLost(f"the answer of the upstream is longer than {limit} bytes")
            size += self._size
            parts += self._take()
            if self._complete:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if self._lost is not None:
                raise self._lost
            await self._wait()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; raise `UpstreamLost` when it is cut short."""
        while True:
            if self._parts:
                parts = self._take()
                yield parts[0] if len(parts) == 1 else b"".join(parts)
            elif self._complete:
                return
            elif self._lost is not None:
                raise self._lost
            else:
                await self._wait()

    async def close(self) -> None:
        """Let go of the connection; one that has not ended is dropped, unless `let_go` was said."""
        if not self._discard:
            self.abandon()

    def abandon(self) -> None:
        """Drop what is left of the answer, at once."""
        self._parts, self._size = [], 0
        if not self.ended:
            self.fail(UpstreamLost("the answer was given up"))

    def let_go(self, seconds: float) -> None:
        """Give up the body, but let the connection live if it ends within `seconds`."""
        if self.ended:
            return
        self._discard = True
        self._take()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abandon)

    def add(self, data: bytes) -> None:
        """Take a part of the body."""
        self._total += len(data)
        if not self._discard:
            self._parts.append(data)
            self._size += len(data)

    def wake(self) -> None:
        """Let the consumer see what is new."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def finish(self) -> None:
        """Take the end of the body: the connection is no longer of this answer."""
        self._complete = True
        self._source = None
        self._ended()

    def fail(self, lost: UpstreamLost) -> None:
        """Take the early end of the answer; the connection, if still there, is dropped."""
        if self.ended:
            return
        self._lost = lost
        source, self._source = self._source, None
        if source is not None:
            source.drop()
        self._ended()

    def _ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def _take(self) -> list[bytes]:
        parts = self._parts
        if parts:
            self._parts, self._size = [], 0
            if self._source is not None:
                self._source.resume()
        return parts

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
