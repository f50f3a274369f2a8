"""The load's HTTP client: one keep-alive connection, raw protocol and httptools, callbacks not futures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, cast

import httptools
import msgspec

EVENT_STREAM: Final = b"text/event-stream"


class WrongAnswer(Exception):
    """A contender answered something else than it must: the run is worth nothing."""


class Traffic(msgspec.Struct):
    """Bytes of all connections of this process, heads and bodies."""

    sent: int = 0
    heard: int = 0


TRAFFIC: Final = Traffic()


class Target(msgspec.Struct, frozen=True):
    """Where a contender listens."""

    port: int
    path: str

    def head(self, method: str, headers: dict[str, str]) -> bytes:
        """Return a request's head up to the content length."""
        base = {"Host": f"127.0.0.1:{self.port}", "Accept": "application/json, text/event-stream"}
        lines = [f"{name}: {value}" for name, value in (base | headers).items()]
        return "\r\n".join([f"{method} {self.path} HTTP/1.1", *lines, ""]).encode()


class Answer(msgspec.Struct):
    """A whole HTTP answer; `first` is when its first whole event was in (`time.perf_counter`)."""

    status: int
    headers: dict[bytes, bytes]
    parts: list[bytes]
    first: float | None = None

    @property
    def body(self) -> bytes:
        """The body in one piece."""
        return b"".join(self.parts)

    def is_exactly(self, wanted: bytearray) -> bool:
        """Tell whether the body is these bytes, without building it: a megabyte more to copy shows."""
        at = 0
        for part in self.parts:
            if not wanted.startswith(part, at):
                return False
            at += len(part)
        return at == len(wanted)

    def messages(self) -> list[bytes]:
        """Return the JSON-RPC messages in the body, of either content type."""
        if not self.headers.get(b"content-type", b"").startswith(EVENT_STREAM):
            return [self.body] if self.body else []
        return messages_of(self.body)


def messages_of(stream: bytes) -> list[bytes]:
    """Return the data of the events in a whole stream; comments and empty (priming) events are left out."""
    found: list[bytes] = []
    for block in stream.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if any(data):
            found.append(b"\n".join(data))
    return found


class Connection(asyncio.Protocol):
    """One connection; `done` gets each answer, `heard` (where set) each piece of a stream's body."""

    def __init__(self, target: Target) -> None:
        self.done: Callable[[Answer], None] | None = None
        self.heard: Callable[[bytes], None] | None = None
        self.failed: Callable[[Exception], None] | None = None
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._closing = False
        self._clear()

    async def open(self) -> None:
        """Connect; the one connection is kept for all requests."""
        await self._loop.create_connection(lambda: self, "127.0.0.1", self._target.port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._busy and not self._closing:
            self._fail(WrongAnswer(f"connection closed in the middle of an answer: {exc!r}"))

    def data_received(self, data: bytes) -> None:
        TRAFFIC.heard += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as wrong:
            self._fail(wrong)
        except WrongAnswer as wrong:
            self._fail(wrong)

    def send(self, head: bytes, body: bytes = b"") -> None:
        """Send a request; the answer goes to `done`."""
        if self._transport is None or self._transport.is_closing():
            self._fail(WrongAnswer("the connection was not kept alive between two requests"))
            return
        self._busy = True
        data = b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        TRAFFIC.sent += len(data)
        self._transport.write(data)

    async def ask(self, head: bytes, body: bytes = b"") -> Answer:
        """Send a request and wait for the whole answer; for what is not timed."""
        waiter: asyncio.Future[Answer] = self._loop.create_future()

        def settle(answer: Answer) -> None:
            if not waiter.done():
                waiter.set_result(answer)

        def fail(wrong: Exception) -> None:
            if not waiter.done():
                waiter.set_exception(wrong)

        kept, self.done, self.failed = (self.done, self.failed), settle, fail
        try:
            self.send(head, body)
            async with asyncio.timeout(30):
                return await waiter
        finally:
            self.done, self.failed = kept

    def close(self) -> None:
        """Close without a word."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def on_header(self, name: bytes, content: bytes) -> None:
        self._headers[name.lower()] = content

    def on_headers_complete(self) -> None:
        self._streams = self._headers.get(b"content-type", b"").startswith(EVENT_STREAM)
        if self.heard is not None:
            self.heard(b"")

    def on_body(self, part: bytes) -> None:
        if self._streams:
            if self.heard is not None:
                self.heard(part)
                return
            self._body.append(part)
            if self._first is None and _has_message(b"".join(self._body)):
                self._first = time.perf_counter()
            return
        self._body.append(part)

    def on_message_complete(self) -> None:
        self._busy = False
        answer = Answer(self._parser.get_status_code(), self._headers, self._body, self._first)
        self._clear()
        if self.done is not None:
            self.done(answer)

    def status(self) -> int:
        """Return the status of the answer that is coming."""
        return self._parser.get_status_code()

    def _clear(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._first: float | None = None
        self._streams = False

    def _fail(self, wrong: Exception) -> None:
        self._busy = False
        if self.failed is not None:
            self.failed(wrong)


def _has_message(stream: bytes) -> bool:
    # A priming event has empty data and is no message.
    start = stream.find(b"data: {")
    return start >= 0 and (stream.find(b"\n\n", start) > 0 or stream.find(b"\r\n\r\n", start) > 0)


def same_json(found: bytes, wanted: bytes) -> bool:
    """Tell whether two messages say the same; equal bytes are the quick case, spelling is free."""
    if found == wanted:
        return True
    try:
        return bool(msgspec.json.decode(found) == msgspec.json.decode(wanted))
    except msgspec.DecodeError:
        return False
