"""An upstream on bare sockets that answers with the bytes a test gives it, or holds them back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.wire.seed_client import PAUSE, WAIT, Json

EVENTS: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
ACCEPTED: Final = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
NO_STREAM: Final = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Request:
    """One request as it came, and the connection to answer on."""

    def __init__(
        self, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.head = head.decode("latin-1")
        self.verb = head.split(b" ", 1)[0].decode()
        self.message: Json = json.loads(body) if body else {}
        self.reader = reader
        self.writer = writer

    @property
    def tool(self) -> str:
        """The tool that is called, empty for any other request."""
        params = self.message.get("params", {})
        return str(params.get("name", "")) if self.message.get("method") == "tools/call" else ""

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.writer.write(data)

    def json(self, value: object, status: str = "200 OK", headers: str = "") -> None:
        """Answer with a JSON body."""
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}"
        self.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def result(self, result: Json) -> None:
        """Answer the request with a result."""
        self.json({"jsonrpc": "2.0", "id": self.message["id"], "result": result})

    def cut(self) -> None:
        """End the connection once what was written has left."""
        self.writer.close()
        raise ConnectionError

    async def gone(self) -> None:
        """Wait until the other side has closed, then end the connection."""
        while await self.reader.read(65536):
            pass
        self.cut()


Behave = Callable[[Request], Awaitable[bool]]


class RawUpstream:
    """The server; `behave` answers what it wants to and says whether it did, the rest is answered here."""

    def __init__(self, behave: Behave) -> None:
        self.url = ""
        self.open = 0
        self.came = 0
        self._behave = behave
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/mcp"

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def until(self, wanted: Callable[[RawUpstream], bool], seconds: float = WAIT) -> None:
        """Wait until something is true of the server; raise `TimeoutError`."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: wanted(self))

    async def _tell(self, opened: int, came: int = 0) -> None:
        async with self._changed:
            self.open += opened
            self.came += came
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._tell(1)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                request = Request(head, body, reader, writer)
                await self._tell(0, 1)
                if not await self._behave(request):
                    _answer(request)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()
            await self._tell(-1)


def _answer(request: Request) -> None:
    message = request.message
    if request.verb != "POST":
        request.write(NO_STREAM)
    elif message.get("method") == "initialize":
        version = message.get("params", {}).get("protocolVersion")
        welcome = {
            "protocolVersion": version,
            "capabilities": {},
            "serverInfo": {"name": "raw", "version": "1"},
        }
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": welcome}
        request.json(answer, headers="mcp-session-id: of-the-upstream\r\n")
    elif "id" in message and "method" in message:
        request.result({})
    else:
        request.write(ACCEPTED)


@asynccontextmanager
async def raw_upstream(behave: Behave) -> AsyncGenerator[RawUpstream]:
    """Serve for as long as the block runs."""
    upstream = RawUpstream(behave)
    await upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()


async def soon(true: Callable[[], bool]) -> None:
    """Look until something is true that nobody tells of; raise `TimeoutError`."""
    async with asyncio.timeout(WAIT):
        while True:
            if true():
                return
            await asyncio.sleep(PAUSE)


def http_request(verb: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return an HTTP request to this machine as bytes."""
    fields = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {content}\r\n" for name, content in fields.items())
    return f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def nothing(request: Request) -> bool:
    """Leave all answers to the server."""
    del request
    return False


def configured(url: str, tasks: Json, **more: Any) -> Json:
    """Return a configuration with one upstream."""
    return {
        "store": {"url": "memory://"},
        "secret": "a secret that both replicas know",
        "upstreams": {"main": {"url": url, "transport": "streamable-http", "tasks": tasks}},
        "drain": "1s",
        "lease": "2s",
        **more,
    }
