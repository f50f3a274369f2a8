"""Servers that nobody wrote for us: the `mcp` package over stdio, Streamable HTTP and legacy SSE."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.aio.clock import SystemClock
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.auto import build
from gateway.upstream.options import CommandOptions, UrlOptions
from gateway.upstream.port import Channel, Upstream

SERVER = str(Path(__file__).with_name("upstream_mcp_server.py"))
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
VERSION: Headers = [("mcp-protocol-version", "2025-11-25")]


def tool(ident: int, name: str, **arguments: object) -> bytes:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": ident}}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}).encode()


async def call(channel: Channel, message: bytes) -> list[dict[str, Any]]:
    return [json.loads(raw) async for raw in channel.exchange(message, VERSION)]


@asynccontextmanager
async def serving(transport: str) -> AsyncGenerator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        SERVER,
        transport,
        str(port),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield port
    finally:
        process.kill()
        await process.wait()


async def opened(upstream: Upstream) -> Channel:
    if upstream.prefers_links:
        assert upstream.links is not None
        link, answer = await upstream.links.open("t", INITIALIZE, [])
        assert json.loads(answer)["result"]["serverInfo"]["name"] == "fixture"
        await link.send(INITIALIZED, VERSION)
        return link
    assert upstream.http is not None
    accept = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
    reply = await upstream.http.forward("POST", accept, INITIALIZE)
    assert b'"serverInfo"' in await reply.read(100_000)
    channel = upstream.http.channel(reply.header("mcp-session-id"), VERSION)
    await channel.send(INITIALIZED, VERSION)
    return channel


async def exercise(channel: Channel) -> None:
    *steps, last = await call(channel, tool(1, "count", steps=3))
    assert [one["params"]["progress"] for one in steps] == [1, 2, 3]
    assert last["result"]["content"][0]["text"] == "counted to 3"
    (failed,) = await call(channel, tool(2, "fail"))
    assert failed["result"]["isError"] is True
    both = await asyncio.gather(
        call(channel, tool(3, "wait", seconds=0.3)), call(channel, tool(4, "count", steps=1))
    )
    assert [one[-1]["id"] for one in both] == [3, 4]
    (unknown,) = await call(channel, b'{"jsonrpc":"2.0","id":"a","method":"no/such"}')
    assert unknown["error"]["code"] == -32601


async def test_an_mcp_server_over_stdio() -> None:
    options = CommandOptions(name="x", command=(sys.executable, SERVER, "stdio"))
    upstream = build(options, SystemClock())
    await exercise(await opened(upstream))
    await upstream.close()


async def test_an_mcp_server_over_streamable_http() -> None:
    async with serving("http") as port:
        upstream = build(UrlOptions(name="x", url=f"http://localhost:{port}/mcp"), SystemClock())
        assert await upstream.check() is None
        channel = await opened(upstream)
        await exercise(channel)
        await channel.close()
        with pytest.raises(UpstreamLost, match="no longer knows the session") as caught:
            await call(channel, tool(9, "count", steps=1))
        assert caught.value.status == 404
        await upstream.close()


async def test_an_mcp_server_over_legacy_sse() -> None:
    async with serving("sse") as port:
        url = f"http://127.0.0.1:{port}/sse"
        upstream = build(UrlOptions(name="x", url=url, transport="sse"), SystemClock())
        await exercise(await opened(upstream))
        await upstream.close()
        found = build(UrlOptions(name="x", url=url), SystemClock())
        assert await found.fall_back("t", INITIALIZE, []) is not None
        assert found.prefers_links
        await found.close()
