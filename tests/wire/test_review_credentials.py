"""Clients of the stateless era whose upstream wants other credentials: they hear of it as HTTP says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.warm.front_world import Answer, Door, opened
from tests.wire.raw_upstream import Request

GOOD: Final = "Bearer good"
CHALLENGE: Final = 'Bearer resource_metadata="https://auth.example/.well-known/oauth-protected-resource"'
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
METHODS: Final = ("server/discover", "tools/call", "tools/list")


class Guarded:
    """A handshake server that asks for a credential with each request, or only with calls."""

    def __init__(self, status: str = "401 Unauthorized") -> None:
        self.status = status
        self.revoked = False
        self.probes = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    async def behave(self, request: Request) -> bool:
        if request.verb != "POST":
            return False
        if request.message.get("method") == "server/discover":
            self.probes.set()
            await self.hold.wait()
        if self.revoked or GOOD not in request.head:
            challenge = f"www-authenticate: {CHALLENGE}\r\n"
            request.json({"error": "invalid_token"}, self.status, challenge)
            return True
        if request.message.get("method") == "tools/call":
            request.result({"content": [{"type": "text", "text": "done"}]})
            return True
        return False


@asynccontextmanager
async def guarded(**more: Any) -> AsyncGenerator[tuple[Door, Guarded]]:
    server = Guarded(**more)
    async with opened(server.behave) as door:
        yield door, server


async def ask(door: Door, method: str, credential: str | None) -> Answer:
    params: dict[str, Any] = {"_meta": META}
    if method == "tools/call":
        params["name"] = "t"
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    if method == "tools/call":
        headers["Mcp-Name"] = "t"
    if credential is not None:
        headers["Authorization"] = credential
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    return await door.ask("POST", body.encode(), headers)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_I1_a_client_without_the_right_credential_is_told_where_to_get_it(
    method: str, status: str
) -> None:
    async with guarded(status=status) as (door, _):
        for credential in (None, "Bearer old"):
            answer = await ask(door, method, credential)
            assert answer.status == int(status[:3])
            assert answer.headers["www-authenticate"] == CHALLENGE
            assert answer.json["id"] == 1
            assert answer.error[0] == -32603


@pytest.mark.parametrize("method", METHODS[1:])
async def test_I1_a_credential_that_is_good_no_more_is_answered_so(method: str) -> None:
    async with guarded() as (door, server):
        assert (await ask(door, "tools/call", GOOD)).status == 200
        server.revoked = True
        answer = await ask(door, method, GOOD)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, CHALLENGE)


async def test_I7_one_clients_bad_credential_is_not_held_against_another() -> None:
    async with guarded() as (door, server):
        server.hold.clear()
        bad = asyncio.ensure_future(ask(door, "tools/call", "Bearer bad"))
        await server.probes.wait()
        good = asyncio.ensure_future(ask(door, "tools/call", GOOD))
        await asyncio.sleep(0.1)
        server.hold.set()
        assert (await bad).status == 401
        assert (await good).status == 200
