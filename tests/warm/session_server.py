"""A small handshake-era server over HTTP, whose memory and answers a test decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.warm.raw_servers import Play, RawServer, Request, chunk, plain, serve, stream_head, until

Json = dict[str, Any]

TELLING: Json = {
    "logging": {},
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def event(message: Json, place: str = "") -> bytes:
    number = f"id: {place}\n" if place else ""
    return chunk(f"{number}data: {json.dumps(message)}\n\n".encode())


@dataclass
class SessionServer:
    """Knows sessions until `restart`; keeps each message that came, with its session."""

    raw: RawServer = field(default_factory=RawServer)
    capabilities: Json = field(default_factory=lambda: dict(TELLING))
    sessions: list[str] = field(default_factory=list[str])
    opened: int = 0
    refuse_with: str = "404 Not Found"
    sessionless: bool = False
    answers_get: bool = True
    away: bool = False
    cut_lists: bool = False
    play_instead: Play | None = None
    heard: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    results: dict[str, Json] = field(default_factory=dict[str, Json])
    ended: list[str] = field(default_factory=list[str])
    streams: dict[str, asyncio.StreamWriter] = field(default_factory=dict[str, asyncio.StreamWriter])
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, method: str) -> list[Json]:
        """Return the messages of a method."""
        return [message for _, message in self.heard if message.get("method") == method]

    def sessions_of(self, method: str) -> list[str]:
        """Return the sessions in which a method came."""
        return [session for session, message in self.heard if message.get("method") == method]

    def answers(self) -> list[Json]:
        """Return the responses of the client."""
        return [message for _, message in self.heard if "method" not in message]

    def restart(self) -> None:
        """Forget all sessions, and cut their streams."""
        self.sessions.clear()
        for writer in self.streams.values():
            writer.close()
        self.streams.clear()

    def say(self, message: Json) -> None:
        """Say something on all GET streams."""
        for writer in self.streams.values():
            writer.write(event({"jsonrpc": "2.0", **message}))

    async def came(self, method: str, times: int = 1) -> list[Json]:
        """Wait until a method has come so many times."""
        await until(lambda: len(self.of(method)) >= times)
        return self.of(method)

    async def play(self, request: Request, writer: asyncio.StreamWriter) -> None:
        session = request.headers.get("mcp-session-id", "")
        if self.away:
            writer.close()
            return
        if self.play_instead is not None:
            await self.play_instead(request, writer)
            return
        if request.method == "DELETE":
            self.ended.append(session)
            writer.write(plain(b"", "405 Method Not Allowed"))
        elif request.method == "GET":
            await self._stream(session, writer)
        else:
            await self._post(json.loads(request.body), session, writer)

    async def _stream(self, session: str, writer: asyncio.StreamWriter) -> None:
        if not self._knows(session):
            writer.write(plain(b"", self.refuse_with))
        elif not self.answers_get:
            writer.write(plain(b"", "405 Method Not Allowed"))
        else:
            writer.write(stream_head())
            await writer.drain()
            self.streams[session] = writer
            await writer.wait_closed()

    async def _post(self, message: Json, session: str, writer: asyncio.StreamWriter) -> None:
        method = message.get("method")
        if method == "initialize":
            self.heard.append((session, message))
            await self._initialize(message, writer)
            return
        if method == "server/discover" or not self._knows(session):
            words = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            body = json.dumps({"jsonrpc": "2.0", "id": None, "error": words}).encode()
            status = self.refuse_with if self._knows(session) or session else "400 Bad Request"
            writer.write(plain(body, status))
            return
        self.heard.append((session, message))
        if "id" not in message or method is None:
            writer.write(plain(b"", "202 Accepted"))
            return
        await self._answer(message, writer)

    def _knows(self, session: str) -> bool:
        return session in self.sessions or (self.sessionless and not session)

    async def _initialize(self, message: Json, writer: asyncio.StreamWriter) -> None:
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": self.capabilities,
            "serverInfo": {"name": "sessions", "version": "1"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.opened += 1
        extra = ""
        if not self.sessionless:
            self.sessions.append(f"s{self.opened}")
            extra = f"mcp-session-id: s{self.opened}\r\n"
        writer.write(plain(body, extra=extra))

    async def _answer(self, message: Json, writer: asyncio.StreamWriter) -> None:
        name = message.get("params", {}).get("name", "")
        result: Json = {"content": [{"type": "text", "text": name}]}
        if name == "slow":
            await self.go_on.wait()
        if name == "cut" or (self.cut_lists and message["method"] == "tools/list"):
            writer.close()
            return
        if message["method"] in self.results:
            result = self.results[message["method"]]
        if name in ("logs", "numbered logs"):
            writer.write(stream_head())
            for level in ("debug", "info", "error"):
                params = {"level": level, "data": level}
                said = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
                writer.write(event(said, f"at {level}" if name == "numbered logs" else ""))
            writer.write(event({"jsonrpc": "2.0", "id": message["id"], "result": result}) + b"0\r\n\r\n")
            return
        writer.write(plain(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()))


@asynccontextmanager
async def session_server() -> AsyncGenerator[SessionServer]:
    server = SessionServer()
    async with serve(server.play) as raw:
        server.raw = raw
        yield server
