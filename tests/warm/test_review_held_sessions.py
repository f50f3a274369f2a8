"""Held sessions whose upstream loses them, does not answer, or is asked more than it must be."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from gateway.crossing.port import Caller, Wanted
from gateway.crossing.tools import tool_support_over
from tests.warm.crossing_world import ALICE, BOB, call, crossing_to, to_url, words
from tests.warm.raw_servers import Request, plain, serve, until
from tests.warm.session_server import SessionServer, session_server

LOUD = Caller("alice", log_level="debug")
WATCHED = Wanted(uris=("test://watched",))


class HalfDone(SessionServer):
    """Runs a tool until it is let go, and has it fail then."""

    async def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if message["method"] != "tools/call":
            await super()._answer(message, writer)
            return
        await self.go_on.wait()
        error = {"code": -32603, "message": "half of it is done"}
        writer.write(plain(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()))


def hanging(server: SessionServer, method: str, times: int = 1000) -> None:
    """Have the first requests of a method never answered."""
    left = times

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        if request.method == "POST" and json.loads(request.body).get("method") == method and left:
            left -= 1
            await writer.wait_closed()
        server.play_instead = None
        try:
            await server.play(request, writer)
        finally:
            server.play_instead = play

    server.play_instead = play


async def test_I3_a_call_that_fails_while_its_session_is_lost_is_not_sent_again() -> None:
    server = HalfDone()
    async with serve(server.play) as server.raw, crossing_to(to_url(server.raw.url)) as crossing:
        listening = crossing.listen(ALICE, Wanted(tools=True), [])
        assert await anext(listening) == b""
        calling = asyncio.ensure_future(call(crossing, "t"))
        await server.came("tools/call")
        # The stream beside the calls ends, and its session is known no more.
        server.restart()
        async with asyncio.timeout(20):
            assert b"list_changed" in await anext(listening)
        await listening.aclose()
        server.go_on.set()
        (last,) = await calling
        assert last["error"]["message"] == "half of it is done"
        assert len(server.of("tools/call")) == 1


async def test_the_refusal_of_a_new_session_is_the_answer() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        refused = 0

        async def play(request: Request, writer: asyncio.StreamWriter) -> None:
            nonlocal refused
            message = json.loads(request.body or b"{}")
            if message.get("method") == "tools/call":
                refused += 1
                error = {"code": -32602, "message": "no such session type"}
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
                writer.write(plain(body, "400 Bad Request"))
                return
            server.play_instead = None
            try:
                await server.play(request, writer)
            finally:
                server.play_instead = play

        server.play_instead = play
        (last,) = await call(crossing, "t")
        assert last["error"]["message"] == "no such session type"
        assert refused == 2


async def test_I10_a_subscription_that_is_not_answered_blocks_no_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.crossing.held._ASK_SECONDS", 0.3)
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        hanging(server, "resources/subscribe")

        async def listen() -> None:
            async with aclosing(crossing.listen(ALICE, WATCHED, [])) as coming:
                async for _ in coming:
                    pass

        listening = asyncio.ensure_future(listen())
        await until(lambda: any(b"subscribe" in one.body for one in server.raw.requests))
        async with asyncio.timeout(5):
            assert words(await call(crossing, "t", LOUD)) == "t"
        listening.cancel()
        await asyncio.wait([listening])


async def test_I7_nobody_waits_for_a_list_of_tools_that_another_asked_for() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        await call(crossing, "a", ALICE)
        await call(crossing, "b", BOB)
        hanging(server, "tools/list", times=1)
        asking = asyncio.ensure_future(crossing.tool_schema(ALICE, "t", []))
        await until(lambda: any(b"tools/list" in one.body for one in server.raw.requests))
        async with asyncio.timeout(5):
            assert await crossing.tool_schema(BOB, "t", []) is None
        asking.cancel()
        await asyncio.wait([asking])


async def test_I10_a_list_of_tools_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.crossing.tools._LIST_SECONDS", 0.3)
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        hanging(server, "tools/list")
        async with asyncio.timeout(5):
            found = await asyncio.gather(*(crossing.tool_schema(ALICE, "t", []) for _ in range(50)))
        assert set(found) == {None}
        assert sum(b"tools/list" in one.body for one in server.raw.requests) == 1


async def test_all_tools_are_known_that_an_upstream_lists() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        tools = [{"name": "plain"}, {"name": "slow", "execution": {"taskSupport": "required"}}]
        server.results["tools/list"] = {"tools": tools}
        found = await tool_support_over(crossing.channel(ALICE, drive=False), [])
        assert found == {"plain": "forbidden", "slow": "required"}


@pytest.mark.parametrize(
    "name",
    [
        "X-Forwarded-Email",
        "X-Forwarded-Client-Cert",
        "Cf-Access-Jwt-Assertion",
        "X-Org-Id",
        "X-Workspace-Id",
        "Tailscale-User-Login",
        "X-Client-Id",
    ],
)
async def test_I7_whoever_a_proxy_names_has_a_session_of_his_own(name: str) -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        for who in ("ada", "bob", "ada"):
            await call(crossing, "t", headers=[(name.lower(), who)])
        assert server.sessions_of("tools/call") == ["s1", "s2", "s1"]


@pytest.mark.parametrize(
    "name", ["X-Request-Id", "Traceparent", "X-Forwarded-For", "Forgery", "X-Signature"]
)
async def test_a_header_that_says_nothing_of_who_asks_costs_no_session(name: str) -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        for content in ("1", "2"):
            await call(crossing, "t", headers=[(name.lower(), content)])
        assert server.opened == 1
