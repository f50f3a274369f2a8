"""A server on the official package of the handshake era, crossed to over HTTP and as a child."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal

import pytest

from gateway.crossing.crossing import UpstreamCrossing
from gateway.crossing.port import Caller, Wanted
from gateway.upstream.options import CommandOptions
from tests.processes import free_port
from tests.upstreams import fixture_command
from tests.warm.crossing_world import ALICE, ASKED, BOB, call, crossing_to, to_url, tool, words

WATCHED = "test://watched"
LOGGING = Caller("alice", b'{"elicitation":{}}', log_level="info")


@asynccontextmanager
async def mcp1(transport: Literal["http", "stdio"]) -> AsyncGenerator[UpstreamCrossing]:
    if transport == "stdio":
        command = fixture_command("mcp1", "stdio")
        async with crossing_to(CommandOptions(name="x", command=tuple(command))) as crossing:
            yield crossing
    else:
        port = free_port()
        async with server(port), crossing_to(to_url(f"http://127.0.0.1:{port}/mcp")) as crossing:
            yield crossing


@asynccontextmanager
async def server(port: int, *options: str) -> AsyncGenerator[None]:
    process = await asyncio.create_subprocess_exec(
        *fixture_command("mcp1", "http", str(port), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert (await process.stdout.readline()).startswith(b"ready")
        yield
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_handshake_server_serves_stateless_callers_in_full(
    transport: Literal["http", "stdio"],
) -> None:
    async with mcp1(transport) as crossing:
        assert await crossing.era([]) == "handshake"
        assert json.loads(await crossing.opened(ALICE, []))["serverInfo"]["name"] == "fixture"
        await _progress(crossing)
        await _questions(crossing)
        await _logs(crossing)
        await _changes(crossing)


async def _progress(crossing: UpstreamCrossing) -> None:
    message = json.loads(tool("slow_count", "p", seconds=0.2, steps=2))
    message["params"]["_meta"] = {"progressToken": "mine"}
    channel = crossing.channel(ALICE, drive=False)
    async with aclosing(channel.exchange(json.dumps(message).encode(), [])) as coming:
        *steps, last = [json.loads(raw) async for raw in coming]
    assert [one["params"]["progress"] for one in steps] == [0, 1, 2]
    assert {one["params"]["progressToken"] for one in steps} == {"mine"}
    assert last["id"] == "p"


async def _questions(crossing: UpstreamCrossing) -> None:
    async def greet(name: str) -> str:
        channel = crossing.channel(ASKED, drive=False)
        async with aclosing(channel.exchange(tool("ask_name", name), [])) as coming:
            async for raw in coming:
                one = json.loads(raw)
                if one.get("method") == "elicitation/create":
                    result = {"action": "accept", "content": {"name": name}}
                    answer = {"jsonrpc": "2.0", "id": one["id"], "result": result}
                    await channel.send(json.dumps(answer).encode(), [])
                elif "result" in one:
                    return words([one])
        raise AssertionError

    names = ["Ada", "Grace", "Edsger"]
    assert await asyncio.gather(*map(greet, names)) == [f"Hello, {name}!" for name in names]


async def _logs(crossing: UpstreamCrossing) -> None:
    *logs, _ = await call(crossing, "log_lines", LOGGING, n=3)
    assert [one["params"]["data"] for one in logs] == ["line 0", "line 1", "line 2"]
    assert len(await call(crossing, "log_lines", BOB, n=3)) == 1


async def _changes(crossing: UpstreamCrossing) -> None:
    stream = crossing.listen(ALICE, Wanted(tools=True, uris=[WATCHED]), [])
    assert await anext(stream) == b""
    assert words(await call(crossing, "touch", ALICE)) == "Told."
    assert await _next(stream) == {"uri": WATCHED}
    await call(crossing, "add_tool", ALICE, name="new")
    async with asyncio.timeout(20):
        assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"
    await stream.aclose()


async def _next(stream: AsyncGenerator[bytes, None]) -> Any:
    async with asyncio.timeout(20):
        return json.loads(await anext(stream))["params"]


async def test_I3_a_server_that_was_restarted_gets_the_call_once() -> None:
    port = free_port()
    async with crossing_to(to_url(f"http://127.0.0.1:{port}/mcp")) as crossing:
        async with server(port):
            await call(crossing, "echo_meta", ASKED)
        async with server(port):
            found = await asyncio.gather(*(call(crossing, "echo_meta", ASKED, ident=n) for n in range(5)))
            assert [one[-1]["id"] for one in found] == list(range(5))
            assert all("result" in one[-1] for one in found)


async def test_a_server_without_sessions_is_served() -> None:
    port = free_port()
    async with (
        server(port, "--stateless", "--json"),
        crossing_to(to_url(f"http://127.0.0.1:{port}/mcp")) as crossing,
    ):
        assert await crossing.era([]) == "handshake"
        found = await asyncio.gather(*(call(crossing, "echo_meta", ident=n) for n in range(5)))
        assert [one[-1]["id"] for one in found] == list(range(5))
