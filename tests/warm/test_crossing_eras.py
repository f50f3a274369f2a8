"""Which era an upstream speaks: asked once, and again where the answer proves wrong."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.crossing.port import Wanted
from gateway.protocol.errors import UpstreamLost
from gateway.upstream.options import CommandOptions
from tests.upstreams import fixture_command
from tests.warm.crossing_world import ALICE, call, crossing_to, say, to_url, tool, words
from tests.warm.raw_servers import Play, plain, says, serve
from tests.warm.session_server import session_server
from tests.warm.test_upstream_real import SERVER, serving

CHILD = str(Path(__file__).with_name("crossing_child.py"))
DISCOVERED: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "public",
}


def answers(status: str = "200 OK", **body: Any) -> Play:
    message = {"jsonrpc": "2.0", "id": "gateway-discover", **body}
    return says(plain(json.dumps(message).encode(), status))


def failing(code: int, **data: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no", "data": data}}


@pytest.mark.parametrize(
    ("play", "era"),
    [
        (answers(result=DISCOVERED), "stateless"),
        (answers(result={**DISCOVERED, "supportedVersions": ["2025-11-25"]}), "handshake"),
        (answers(result={}), "handshake"),
        (
            answers("400 Bad Request", **failing(-32022, supported=["2026-07-28"], requested="x")),
            "stateless",
        ),
        (
            answers("400 Bad Request", **failing(-32022, supported=["2025-11-25"], requested="x")),
            "handshake",
        ),
        (answers("400 Bad Request", **failing(-32020)), "stateless"),
        (answers("400 Bad Request", **failing(-32021)), "stateless"),
        (answers("404 Not Found", **failing(-32601)), "handshake"),
        (answers(**failing(-32601)), "handshake"),
        (answers("400 Bad Request", **{**failing(-32000), "id": None}), "handshake"),
        (says(plain(b"", "405 Method Not Allowed")), "handshake"),
        (says(plain(b"<html>", media="text/html")), "handshake"),
        (says(plain(b"", "500 Internal Server Error")), "handshake"),
    ],
)
async def test_the_answer_to_discover_tells_the_era(play: Play, era: str) -> None:
    async with (
        serve(play) as server,
        crossing_to(to_url(server.url, transport="streamable-http")) as crossing,
    ):
        found = await asyncio.gather(*(crossing.era([("authorization", "Bearer x")]) for _ in range(20)))
        assert set(found) == {era}
        (asked,) = server.requests
        assert asked.headers["mcp-method"] == "server/discover"
        assert asked.headers["mcp-protocol-version"] == "2026-07-28"
        assert asked.headers["authorization"] == "Bearer x"
        meta = json.loads(asked.body)["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_a_stateless_server_tells_whether_it_has_tasks() -> None:
    has: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    has_not: dict[str, Any] = {"tasks": {}}
    for capabilities, runs in [(has, True), (has_not, False)]:
        play = answers(result={**DISCOVERED, "capabilities": capabilities})
        async with serve(play) as server, crossing_to(to_url(server.url)) as crossing:
            assert await crossing.runs_tasks([]) is runs


@pytest.mark.parametrize(
    "status", ["401 Unauthorized", "403 Forbidden", "503 Service Unavailable", "302 Found"]
)
async def test_an_answer_that_tells_nothing_of_the_era_is_not_remembered(status: str) -> None:
    async with serve(says(plain(b"", status))) as server, crossing_to(to_url(server.url)) as crossing:
        for _ in range(2):
            with pytest.raises(UpstreamLost) as caught:
                await crossing.era([])
            assert caught.value.status == int(status[:3])
        assert len(server.requests) == 2


async def test_a_server_that_is_away_is_asked_again_when_it_is_back() -> None:
    async with serve(answers(result=DISCOVERED)) as server:
        url = server.url
        async with crossing_to(to_url(url)) as crossing:
            assert await crossing.era([]) == "stateless"
    async with crossing_to(to_url(url)) as crossing:
        with pytest.raises(UpstreamLost):
            await crossing.era([])


async def test_a_call_finds_the_stateless_server_that_took_the_place_of_one_with_sessions() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        assert await crossing.era([]) == "handshake"
        server.play_instead = _stateless
        assert words(await call(crossing, "t")) == "stateless"
        assert await crossing.era([]) == "stateless"
        server.play_instead = None
        (refused,) = await call(crossing, "t")
        assert "session" in refused["error"]["message"]
        assert words(await call(crossing, "t")) == "t"
        assert await crossing.era([]) == "handshake"


async def _stateless(request: Any, writer: asyncio.StreamWriter) -> None:
    message = json.loads(request.body)
    if message["method"] == "server/discover":
        body: dict[str, Any] = {"result": DISCOVERED}
    elif message["method"] == "tools/call":
        text = {"content": [{"type": "text", "text": "stateless"}], "resultType": "complete"}
        body = {"result": text}
    else:
        body = {"error": {"code": -32601, "message": "Method not found"}}
    status = "404 Not Found" if "error" in body else "200 OK"
    writer.write(plain(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **body}).encode(), status))


async def test_a_server_of_both_eras_counts_as_stateless() -> None:
    async with serving("http") as port, crossing_to(to_url(f"http://127.0.0.1:{port}/mcp")) as crossing:
        assert await crossing.era([]) == "stateless"
        assert words(await call(crossing, "count", steps=2)) == "counted to 2"
        assert json.loads(await crossing.opened(ALICE, []))["serverInfo"]["name"] == "fixture"


async def test_a_child_of_both_eras_counts_as_stateless_and_serves_calls_at_once() -> None:
    options = CommandOptions(name="x", command=(sys.executable, SERVER, "stdio"))
    counts: list[int] = []
    async with crossing_to(options, counts=counts) as crossing:
        assert await crossing.era([]) == "stateless"
        found = await asyncio.gather(*(call(crossing, "count", ident=n, steps=1) for n in range(5)))
        assert [words(one) for one in found] == ["counted to 1"] * 5
        assert counts == [1]
    assert counts[-1] == 0


async def test_a_legacy_sse_server_is_of_the_handshake_era_and_found_by_the_fallback() -> None:
    async with serving("sse") as port:
        url = f"http://127.0.0.1:{port}/sse"
        async with crossing_to(to_url(url)) as crossing:
            assert await crossing.era([]) == "handshake"
            assert words(await call(crossing, "count", steps=1)) == "counted to 1"
        async with crossing_to(to_url(url, transport="sse")) as crossing:
            assert await crossing.era([]) == "handshake"
            assert words(await call(crossing, "count", steps=1)) == "counted to 1"


async def test_a_command_that_is_not_there_is_no_answer() -> None:
    async with crossing_to(CommandOptions(name="x", command=("no-such-command-here",))) as crossing:
        for _ in range(2):
            with pytest.raises(UpstreamLost):
                await crossing.era([])


@pytest.mark.parametrize("manner", ["refuses", "ends", "silent"])
async def test_a_child_that_does_not_know_discover_is_of_the_handshake_era(manner: str) -> None:
    options = CommandOptions(name="x", command=(sys.executable, CHILD, manner))
    async with crossing_to(options, start_timeout=1.5) as crossing:
        assert await crossing.era([]) == "handshake"
        channel = crossing.channel(ALICE, drive=False)
        assert words(await say(channel, tool("pid"))).isdigit()


async def test_listening_to_a_child_of_the_stateless_era_hears_of_what_calls_do_there() -> None:
    command = tuple(fixture_command("mcp2", "stdio"))
    watched = Wanted(tools=True, uris=["test://watched"])
    async with crossing_to(CommandOptions(name="x", command=command)) as crossing:
        stream = crossing.listen(ALICE, watched, [])
        async with asyncio.timeout(30):
            assert await anext(stream) == b""
            assert words(await call(crossing, "touch")) == "Told."
            assert json.loads(await anext(stream))["params"] == {"uri": "test://watched"}
            await call(crossing, "add_tool", name="new")
            assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"
        await stream.aclose()
