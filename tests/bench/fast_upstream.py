"""A fast MCP upstream: raw protocol and httptools, so that it is never what limits a measurement.

Run as `python -m tests.bench.fast_upstream PORT`; prints `ready` when it listens.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from typing import Final, cast

import httptools
import msgspec
import uvloop

from tests.bench import payloads

SSE_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
TOOLS: Final = msgspec.json.encode(
    {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in payloads.RESULTS]}
)


class _Meta(msgspec.Struct):
    progress_token: msgspec.Raw = msgspec.field(name="progressToken", default=msgspec.Raw(b"0"))


class _Params(msgspec.Struct):
    name: str = ""
    meta: _Meta = msgspec.field(name="_meta", default_factory=_Meta)
    protocol_version: str = msgspec.field(name="protocolVersion", default=payloads.PROTOCOL_VERSION)


class _Message(msgspec.Struct):
    method: str = ""
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: _Params = msgspec.field(default_factory=_Params)


_decode: Final = msgspec.json.Decoder(_Message).decode
_sessions: Final[set[bytes]] = set()
_listeners: Final[set[Connection]] = set()
_held: Final[list[tuple[Connection, bytes]]] = []
_holding: Final[set[str]] = set()
_numbers: Final = itertools.count(1)


class Connection(asyncio.Protocol):
    """One connection of a client or a proxy."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._session = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        _listeners.discard(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._session = b""
        self._body = []

    def on_header(self, name: bytes, content: bytes) -> None:
        if name.lower() == b"mcp-session-id":
            self._session = content

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        method = self._parser.get_method()
        if method == b"POST":
            self._post(b"".join(self._body))
        elif self._session not in _sessions:
            self._answer(b"", b"404 Not Found")
        elif method == b"GET":
            self.write(SSE_HEAD)
            _listeners.add(self)
        else:
            _sessions.discard(self._session)
            self._answer(b"")

    def write(self, data: bytes) -> None:
        """Send bytes unless the peer has gone."""
        if self._transport is not None:
            self._transport.write(data)

    def _post(self, body: bytes) -> None:
        message = _decode(body)
        if message.method == "initialize":
            self._initialize(message)
        elif self._session not in _sessions:
            self._answer(b"", b"404 Not Found")
        elif isinstance(message.id, msgspec.UnsetType):
            self._answer(b"", b"202 Accepted")
        elif message.method == "tools/call" and message.params.name in payloads.RESULTS:
            self._call(bytes(message.id), message.params)
        elif message.method in ("tools/list", "ping"):
            result = TOOLS if message.method == "tools/list" else b"{}"
            self._answer(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (message.id, result))
        else:
            error = b'{"code":-32601,"message":"Method not found"}'
            self._answer(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (message.id, error))

    def _initialize(self, message: _Message) -> None:
        session = b"bench-%08d" % next(_numbers)
        _sessions.add(session)
        result = msgspec.json.encode(
            {
                "protocolVersion": message.params.protocol_version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            }
        )
        ident = b"null" if isinstance(message.id, msgspec.UnsetType) else bytes(message.id)
        body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (ident, result)
        self._answer(body, extra=b"Mcp-Session-Id: %b\r\n" % session)

    def _call(self, ident: bytes, params: _Params) -> None:
        if params.name not in payloads.STREAMED:
            self._once(ident, params.name)
            return
        messages = payloads.events(ident, bytes(params.meta.progress_token), params.name)
        wait = payloads.FIRST_WAIT if params.name == "first" else 0.0
        self.write(SSE_HEAD + _event(messages[0]))
        self._later(wait, lambda: self._stream(messages[1:]))

    def _once(self, ident: bytes, tool: str) -> None:
        if tool == "slow":
            answer = payloads.answer(ident, tool)
            self._later(payloads.FIRST_WAIT, lambda: self._answer(answer))
        elif tool == "told":
            self._later(
                payloads.FIRST_WAIT, lambda: self._answer(payloads.told(ident, time.perf_counter()))
            )
        elif tool in _holding:
            _held.append((self, ident))
        else:
            _SIDE.get(tool, _nothing)()
            self._result(ident, payloads.RESULTS[tool])

    def let_go(self, ident: bytes) -> None:
        """Answer a call that was held."""
        self._result(ident, payloads.RESULTS["held"])

    def _result(self, ident: bytes, result: bytes) -> None:
        start = b'{"jsonrpc":"2.0","id":%b,"result":' % ident
        length = len(start) + len(result) + 1
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length
        if self._transport is None:
            return
        if length < 65_536:
            self._transport.write(b"%b%b%b}" % (head, start, result))
        else:
            # In pieces: a large result is not copied for each call.
            self._transport.writelines([head + start, result, b"}"])

    def _stream(self, rest: list[bytes]) -> None:
        if len(rest) == 1:
            self.write(_event(rest[0]) + b"0\r\n\r\n")
            return
        self.write(_event(rest[0]))
        self._later(0.0, lambda: self._stream(rest[1:]))

    def _later(self, wait: float, work: Callable[[], None]) -> None:
        # A turn of the loop between events: each leaves in a packet of its own, as from a real server.
        if wait:
            self._loop.call_later(wait, work)
        else:
            self._loop.call_soon(work)

    def _answer(self, body: bytes, status: bytes = b"200 OK", extra: bytes = b"") -> None:
        kind = b"Content-Type: application/json\r\n" if body else b""
        head = b"HTTP/1.1 %b\r\n%b%bContent-Length: %d\r\n\r\n" % (status, kind, extra, len(body))
        self.write(head + body)


def _nothing() -> None:
    pass


def _nudge() -> None:
    for listener in _listeners:
        listener.write(_event(payloads.NUDGE))


def _hold() -> None:
    _holding.add("held")


def _release() -> None:
    """Answer all calls that are held, and at once those that come now."""
    held = list(_held)
    _held.clear()
    _holding.clear()
    for connection, ident in held:
        connection.let_go(ident)


_SIDE: Final[dict[str, Callable[[], None]]] = {"nudge": _nudge, "hold": _hold, "release": _release}


def _event(message: bytes) -> bytes:
    event = b"event: message\ndata: " + message + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


async def serve(port: int) -> None:
    """Listen on loopback until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=2048)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
