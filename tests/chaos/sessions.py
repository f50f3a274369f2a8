"""Users of the handshake era: a session at a time, opened anew when it has gone; and plain calls."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.chaos.users import PAUSE, TRIES, Call, Headers, User
from tests.chaos.wire import Reply, Subject
from tests.wire.answers import Json


class Sessions(User):
    """A client of the handshake era."""

    version = "2025-06-18"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.session: str | None = None
        self._opens = 0
        self._opening = asyncio.Lock()

    def headers(self) -> Headers:
        """Return the headers of a request of the session."""
        return {"Mcp-Session-Id": self.session or "", "MCP-Protocol-Version": self.version}

    async def ready(self) -> bool:
        """Open a session if there is none; `False` where that does not succeed for long."""
        async with self._opening:
            for _ in range(TRIES * 4):
                if self.session is not None:
                    return True
                await self._open()
                if self.session is None:
                    await asyncio.sleep(PAUSE)
        return self.session is not None

    async def message(self, method: str, params: Json, base: str = "") -> Reply:
        if not await self.ready():
            return Reply("lost", words="no session")
        message = {"jsonrpc": "2.0", "id": self.wire.ident(), "method": method, "params": params}
        session = self.session
        reply = await self.wire.ask(self.upstream, self.headers(), message, base=base)
        self.noticed(reply.http, session)
        return reply

    async def notify(self, message: Json) -> Reply:
        """Send a notification or an answer."""
        if not await self.ready():
            return Reply("lost", words="no session")
        return await self.wire.ask(self.upstream, self.headers(), {"jsonrpc": "2.0", **message})

    def noticed(self, http: int, session: str | None) -> None:
        """Take a 404 as the end of a session."""
        if http == 404 and self.session == session:
            self.session = None

    async def plain(self, call: Call) -> None:
        if not await self.ready():
            return
        params = {"name": call.tool, "arguments": call.arguments}
        message = {"jsonrpc": "2.0", "id": self.wire.ident(), "method": "tools/call", "params": params}
        await plainly(self, call, self.headers(), message)

    async def _open(self) -> None:
        self._opens += 1
        subject = Subject(
            self.name, self.scope, self.dialect, self.upstream, "", f"{self.name}-opens-{self._opens}"
        )
        params: Json = {
            "protocolVersion": self.version,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "chaos", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": self.wire.ident(), "method": "initialize", "params": params}
        sent = time.time()
        reply = await self.wire.ask(self.upstream, {}, message)
        if reply.result is None or reply.session is None:
            self.wire.failed(subject, "open", sent, reply)
            return
        self.session = reply.session
        self.wire.record(subject, "open", sent, "ok", http=reply.http)
        started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        sent = time.time()
        reply = await self.wire.ask(self.upstream, self.headers(), started)
        if reply.came != "ok":
            self.wire.failed(subject, "open", sent, reply)


async def plainly(user: User, call: Call, headers: Headers, message: Json) -> None:
    """Send a plain call once: clients do not repeat what may have run."""
    sent = time.time()
    patience = user.dice.uniform(0, 0.3) if user.dice.random() < 0.1 else None
    reply = await user.wire.ask(user.upstream, headers, message, patience=patience)
    if isinstance(user, Sessions):
        user.noticed(reply.http, headers["Mcp-Session-Id"])
    if reply.came == "late" and patience is not None:
        user.wire.record(call, "plain", sent, "left")
    elif reply.result is not None:
        user.got(call, "plain", sent, reply.result, http=reply.http)
    else:
        user.wire.failed(call, "plain", sent, reply)
