"""The whole house in this process, its HTTP door on a socket, an upstream on bare sockets behind it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from gateway.app import House
from gateway.config.model import Config
from gateway.doors import HttpFront
from tests.wire.raw_upstream import Behave, RawUpstream, http_request, raw_upstream
from tests.wire.seed_client import BOTH, WAIT, Json

PING: Final = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Answer:
    """What came back for one request."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Code and words of the JSON-RPC error."""
        found = self.json["error"]
        return found["code"], found["message"]


class Line:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def answer(self, *, body: bool = True) -> Answer:
        """Read one whole answer; without `body` only its head."""
        async with asyncio.timeout(WAIT):
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.strip().lower(): content.strip()
                for name, _, content in (line.partition(":") for line in lines[1:] if line)
            }
            data = b""
            if body and "content-length" in headers:
                data = await self.reader.readexactly(int(headers["content-length"]))
            elif body and headers.get("transfer-encoding") == "chunked":
                data = await self._chunks()
        return Answer(int(lines[0].split(" ")[1]), headers, data)

    async def until(self, sign: bytes) -> bytes:
        """Read up to some bytes."""
        async with asyncio.timeout(WAIT):
            return await self.reader.readuntil(sign)

    async def closed(self) -> bytes:
        """Wait until the other side has closed and return what came before."""
        async with asyncio.timeout(WAIT):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def drop(self) -> None:
        """Vanish."""
        self.writer.transport.abort()
        await asyncio.sleep(0)

    async def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
            chunk = await self.reader.readexactly(size + 2)
            if not size:
                return b"".join(parts)
            parts.append(chunk[:-2])


class Door:
    """A running house."""

    def __init__(self, house: House, front: HttpFront, upstream: RawUpstream) -> None:
        self.house = house
        self.front = front
        self.upstream = upstream
        self._lines: list[Line] = []

    async def line(self) -> Line:
        """Connect."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.front.port, limit=2**24)
        self._lines.append(Line(reader, writer))
        return self._lines[-1]

    async def ask(
        self, verb: str, body: bytes = b"", headers: Mapping[str, str] | None = None, path: str = "/mcp"
    ) -> Answer:
        """Send one request on a connection of its own and return the answer."""
        line = await self.line()
        line.write(http_request(verb, path, {"Accept": BOTH, **(headers or {})}, body))
        try:
            return await line.answer(body=verb != "HEAD")
        finally:
            await line.drop()

    async def session(self, headers: Mapping[str, str] | None = None) -> dict[str, str]:
        """Open a session and return the headers that name it."""
        info = {"name": "front", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await self.ask("POST", json.dumps(message).encode(), headers)
        assert answer.status == 200, answer.body
        return {"Mcp-Session-Id": answer.headers["mcp-session-id"], "Accept": BOTH, **(headers or {})}

    async def hang_up(self) -> None:
        """Drop all connections."""
        for line in self._lines:
            await line.drop()


@asynccontextmanager
async def opened(behave: Behave, **more: Any) -> AsyncGenerator[Door]:
    """Serve an upstream; `more` is of the configuration, `tasks` of the upstream."""
    tasks: Json = more.pop("tasks", {})
    async with raw_upstream(behave) as upstream:
        given = {"url": upstream.url, "transport": "streamable-http", "tasks": tasks}
        listen = {"port": 0, **more.pop("listen", {})}
        config = Config.model_validate(
            {"upstreams": {"main": given}, "admin": False, "drain": "0s", "listen": listen, **more}
        )
        house = House(config)
        front = HttpFront(house)
        await house.start()
        await front.open()
        door = Door(house, front, upstream)
        try:
            yield door
        finally:
            await door.hang_up()
            await front.close()
            await house.stop()
