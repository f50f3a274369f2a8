"""Upstreams that say exactly the bytes they are told to say."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

REQUEST = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}'
RESULT = b'{"jsonrpc":"2.0","id":7,"result":{"ok":true}}'


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    raw_head: bytes


Play = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawServer:
    """Runs a script for each request; a script that returns keeps the connection open."""

    port: int = 0
    requests: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    open: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def of(self, method: str) -> list[Request]:
        return [one for one in self.requests if one.method == method]


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body, head)


async def until(holds: Callable[[], object]) -> None:
    """Wait until something that nobody announces holds; fail after a time."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 there is no event to wait for
            await asyncio.sleep(0.002)


@asynccontextmanager
async def serve(play: Play, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawServer]:
    server = RawServer()
    running: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        server.open += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while not writer.is_closing():
                    request = await read_request(reader)
                    server.requests.append(request)
                    await play(request, writer)
                    await writer.drain()
        finally:
            server.open -= 1
            server.closed.set()
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(one(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def plain(body: bytes, status: str = "200 OK", media: str = "application/json", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def stream_head() -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"


def says(*parts: bytes, close: bool = False) -> Play:
    """Return a script that writes these bytes for each request."""

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if close:
            writer.close()

    return play


def in_turn(*plays: Play) -> Play:
    """Return a script that plays one after the other, the last one for all that follow."""
    left = list(plays)

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, writer)

    return play


class LeapClock:
    """A clock whose waiting is over at once; it keeps what was waited for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
