"""One HTTP/1.1 connection to an upstream (RFC 9112): writes one request, parses one answer at a time.

An own client on top of `httptools`: aiohttp's costs more CPU than the rest of the proxy.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from functools import lru_cache
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.protocol.errors import UpstreamLost
from gateway.upstream.answer import HIGH_WATER, Answer

MAX_HEAD: Final = 64 * 1024
_ONE_WRITE: Final = 64 * 1024
_SLICE: Final = 256 * 1024
NOT_HTTP: Final = "the upstream sent something that is not HTTP"
_NO_PARSER: Final = HttpResponseParser(object())
CLOSED: Final = "the upstream closed the connection before it answered"
RESET: Final = "the connection to the upstream broke before it answered"


class Connection(asyncio.Protocol):
    """A connection of a pool: `ready` hears of it when it is free, `gone` when it has ended."""

    def __init__(self, ready: Callable[[Connection], None], gone: Callable[[Connection], None]) -> None:
        self._ready = ready
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poll: select.poll | None = None
        self._parser = HttpResponseParser(self)
        self._answer: Answer | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._keep = False
        self._interim = False
        self._done = False
        self._moved = False
        self._still = 0
        self._oversize = False
        self._paused = False
        self._room: asyncio.Event | None = None
        self.silent = True
        self.free_since = 0.0
        self.free_for: float | None = None

    def __repr__(self) -> str:
        state = "closed" if self._transport is None or self._transport.is_closing() else "open"
        return f"<Connection {state}, {'busy' if self._answer else 'free'}>"

    def usable(self) -> bool:
        """Tell whether a request may be sent: open, and no end of stream (or junk) waits to be read."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._answer is not None:
            return False
        return self._poll is None or not self._poll.poll(0)

    async def ask(self, method: str, head: bytes, body: bytes | None) -> Answer:
        """Send a request and return its answer once the head is in; raise `UpstreamLost`.

        The error says `sent=False` only where surely no byte of the request left.
        """
        answer = self._answer = Answer(method, self, self._loop)
        self.silent = True
        transport = self._transport
        try:
            if transport is None:
                raise UpstreamLost(CLOSED, sent=False)
            if body is None or len(body) <= _ONE_WRITE:
                transport.write(head if body is None else head + body)
            else:
                transport.write(head)
            if transport.is_closing():
                raise UpstreamLost(CLOSED, sent=False)
            if body is not None and len(body) > _ONE_WRITE:
                await self._write_large(transport, answer, body)
            await answer.head()
        except BaseException:
            answer.abandon()
            raise
        return answer

    def resume(self) -> None:
        """Read on after the consumer has made room."""
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def drop(self) -> None:
        """Close at once; what is in flight fails."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle what was in flight: complete where the end of stream ends the body, else lost."""
        self._transport, self._poll, self._parser = None, None, _NO_PARSER
        self._set_room()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.ended:
            if not answer.status:
                answer.fail(UpstreamLost(CLOSED if exc is None else RESET))
            elif exc is None and _ends_with_stream(answer):
                answer.finish()
            else:
                answer.fail(UpstreamLost(f"the answer was cut short after {answer.received} bytes"))
        self._gone(self)

    def eof_received(self) -> None:
        """Close our side too: a half-closed connection is of no use."""

    def pause_writing(self) -> None:
        """Let a large body wait."""
        self._room = asyncio.Event()

    def resume_writing(self) -> None:
        """Let a large body go on."""
        self._set_room()

    def data_received(self, data: bytes) -> None:
        """Parse what came and tell the consumer once."""
        answer = self._answer
        if answer is None:
            self.drop()
            return
        self._moved = self.silent = False
        try:
            self._parser.feed_data(data)
            wrong = ""
        except HttpParserUpgrade:
            wrong = "the upstream switched protocols without being asked"
        except HttpParserError:
            wrong = NOT_HTTP
        self._still = 0 if self._moved else self._still + len(data)
        if self._done:
            self._finish(answer, broken=bool(wrong))
        elif self._oversize or (self._still > MAX_HEAD and not wrong):
            answer.fail(UpstreamLost(f"the upstream sent headers of more than {MAX_HEAD} bytes"))
        elif wrong:
            answer.fail(UpstreamLost(wrong))
        else:
            if answer.buffered > HIGH_WATER and self._transport is not None and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            if self._moved:
                answer.wake()

    def on_header(self, name: bytes, content: bytes) -> None:
        """Take a header; trailers are dropped (RFC 9110 section 6.5.1)."""
        answer = self._answer
        if answer is not None and not answer.status:
            self._fields.append((name, content))

    def on_headers_complete(self) -> None:
        """Take the head; interim ones (RFC 9110 section 15.2) are dropped."""
        answer, fields = self._answer, self._fields
        self._fields = []
        if answer is None or answer.status:
            raise ValueError
        if sum(len(name) + len(content) + 4 for name, content in fields) > MAX_HEAD:
            self._oversize = True
            raise ValueError
        self._moved = True
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            return
        self._keep = self._parser.should_keep_alive()
        answer.headers = [(_name(name), _text(content)) for name, content in fields]
        answer.status = status
        self._set_room()
        if answer.method == "HEAD":
            self._done, self._keep = True, False

    def on_body(self, data: bytes) -> None:
        """Take a part of the body."""
        if self._answer is not None and not self._done:
            self._moved = True
            self._answer.add(data)

    def on_message_complete(self) -> None:
        """Take the end of the answer."""
        self._moved = True
        if not self._interim:
            self._done = True

    def _finish(self, answer: Answer, *, broken: bool) -> None:
        self._answer, self._done = None, False
        transport = self._transport
        answer.finish()
        if transport is None:
            return
        if broken or not self._keep or transport.get_write_buffer_size():
            self.drop()
            return
        self.resume()
        self.free_for = _keep_alive_seconds(answer)
        self._ready(self)

    async def _write_large(self, transport: asyncio.Transport, answer: Answer, body: bytes) -> None:
        """Write slice by slice; once an answer begins, without waiting: it may be all that is read."""
        view = memoryview(body)
        for start in range(0, len(body), _SLICE):
            if answer.ended:
                return
            transport.write(view[start : start + _SLICE])
            if self._room is not None and not answer.status:
                await self._room.wait()

    def _set_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()


def _ends_with_stream(answer: Answer) -> bool:
    """Tell whether the body has no other end than the stream's (RFC 9112 section 6.3, rule 8)."""
    if answer.header("content-length") is not None:
        return False
    codings = [content for name, content in answer.headers if name == "transfer-encoding"]
    return not codings or not codings[-1].lower().rstrip().endswith("chunked")


def _keep_alive_seconds(answer: Answer) -> float | None:
    announced = answer.header("keep-alive")
    if announced is None:
        return None
    for part in announced.split(","):
        name, _, number = part.strip().partition("=")
        if name.lower() == "timeout" and number.isdigit() and len(number) < 10:
            return float(number)
    return None


@lru_cache(maxsize=512)
def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
