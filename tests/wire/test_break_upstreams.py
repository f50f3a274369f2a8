"""Upstreams that stall, cut and talk nonsense, and clients that leave while they do (I5, I10, I11)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.raw_upstream import EVENTS, RawUpstream, Request, configured, http_request, raw_upstream
from tests.wire.seed_client import BOTH, WAIT, Json, Seed, new_id
from tests.wire.seed_world import started

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENT: Final[Json] = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}
DISCOVERED: Final[Json] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
    "ttlMs": 60_000,
    "cacheScope": "public",
}
TASKS: Final[Json] = {"timeout": "1m", "tools": {"stall_*": {"timeout": "300ms"}}}
LENGTH: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
CHUNKED: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


def good(request: Request) -> bytes:
    """Return the right answer."""
    return json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": {"content": []}}).encode()


def whole(body: bytes) -> bytes:
    """Return a whole JSON answer."""
    return LENGTH % len(body) + body


def reset(request: Request) -> bytes:
    """Let the end of the connection be a reset."""
    sock: socket.socket = request.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return b"HTTP/1.1"


# What each tool sends before its connection ends.
CUTS: Final[dict[str, Callable[[Request], bytes]]] = {
    "nothing": lambda _: b"",
    "half_head": lambda _: b"HTTP/1.1 200 OK\r\ncontent-ty",
    "half_body": lambda _: LENGTH % 100 + b'{"json',
    "half_event": lambda _: (
        EVENTS + b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\ndata: {"js'
    ),
    "no_event": lambda _: EVENTS,
    "error_event": lambda _: EVENTS + b"event: error\ndata: broken\n\n",
    "noise": lambda _: os.urandom(3000),
    "reset": reset,
    "huge_chunk": lambda _: CHUNKED + b"FFFFFFFFFFFFFFFF\r\n",
    "html": lambda _: b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
    "half_json": lambda _: whole(b'{"a'),
    "utf_16": lambda request: whole(good(request).decode().encode("utf-16")),
    "other_id": lambda _: whole(b'{"jsonrpc":"2.0","id":"other","result":{}}'),
    "deep": lambda _: whole(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "status_500": lambda _: b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n",
    "no_content": lambda _: b"HTTP/1.1 204 No Content\r\n\r\n",
    "redirect": lambda _: b"HTTP/1.1 307 Off\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
}


async def behave(request: Request) -> bool:
    """Do what the name of the tool says; hold the head of a GET back for a moment."""
    if request.verb == "GET":
        await asyncio.sleep(0.05)
        request.write(EVENTS)
        await request.gone()
    if request.tool in CUTS:
        request.write(CUTS[request.tool](request))
        request.cut()
    if request.tool == "stall_event":
        request.write(EVENTS + b": on my way\n\n")
    if request.tool == "stall_body":
        request.write(LENGTH % 1000 + b"{")
    if request.tool.startswith("stall"):
        await request.gone()
    return False


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[RawUpstream, Gateway]]:
    """Serve the upstream."""
    async with raw_upstream(behave) as upstream:
        gateway = await started(configured(upstream.url, TASKS), tmp_path_factory.mktemp("raw"))
        yield upstream, gateway
        await asyncio.to_thread(gateway.end)


async def leave_after(gateway: Gateway, request: bytes, upstream: RawUpstream, sign: bytes) -> None:
    """Send a request, wait until the upstream has it and the client has read `sign`, then go."""
    before = upstream.came
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(request)
    await upstream.until(lambda server: server.came > before)
    if sign:
        await asyncio.wait_for(reader.readuntil(sign), WAIT)
    writer.transport.abort()
    await asyncio.sleep(0)


async def settled(upstream: RawUpstream) -> int:
    """Return how many connections are open once idle ones have been closed."""
    await upstream.until(lambda server: server.open == 0)
    return upstream.open


@pytest.mark.parametrize("name", CUTS)
async def test_I5_a_broken_answer_fails_the_task_in_words(
    served: tuple[RawUpstream, Gateway], name: str
) -> None:
    async with Seed(served[1].url()) as seed:
        task = new_id()
        stream = await seed.begin(task, {"name": name, "arguments": {}}, ident=1)
        refused = await stream.response(1)
        record = (await seed.get(task))["result"]
        assert record["status"] == "failed"
        assert record["error"].startswith("Upstream lost: the ")
        assert refused["error"]["message"] == record["error"]
        async with await seed.post({"jsonrpc": "2.0", "id": 2, "method": "ping"}) as plain:
            assert plain.status == 200


@pytest.mark.parametrize("name", ["stall_head", "stall_body", "stall_event"])
async def test_I5_an_answer_that_stalls_ends_with_the_time_limit(
    served: tuple[RawUpstream, Gateway], name: str
) -> None:
    async with Seed(served[1].url()) as seed:
        task = new_id()
        stream = await seed.begin(task, {"name": name, "arguments": {}}, ident=1)
        assert "0.3 s" in (await stream.response(1))["error"]["message"]
        assert "0.3 s" in (await seed.get(task))["result"]["error"]


@pytest.mark.parametrize("sign", [b"", b"keep-alive"])
@pytest.mark.parametrize("session", [True, False])
async def test_I10_session_streams_whose_client_has_gone_leave_no_connection(
    served: tuple[RawUpstream, Gateway], session: bool, sign: bytes
) -> None:
    upstream, gateway = served
    async with Seed(gateway.url()) as seed:
        headers = {"Accept": "text/event-stream"}
        if session:
            headers["Mcp-Session-Id"] = seed.session or ""
        elif sign:
            sign = b"\r\n\r\n"
        for _ in range(5):
            await leave_after(gateway, http_request("GET", "/mcp", headers), upstream, sign)
    assert await settled(upstream) == 0


class Stalled:
    """An upstream of an era whose calls stall: what came of one."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.ident: object = None
        self.called = asyncio.Event()
        self.left = asyncio.Event()
        self.withdrawn: list[object] = []

    async def behave(self, request: Request) -> bool:
        method = request.message.get("method")
        if method == "server/discover" and self.era == "stateless":
            request.result(DISCOVERED)
            return True
        if method == "notifications/cancelled":
            self.withdrawn.append(request.message["params"]["requestId"])
        if not request.tool:
            return await behave(request)
        self.ident = request.message["id"]
        self.called.set()
        try:
            return await behave(request)
        finally:
            self.left.set()


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("name", ["stall_head", "stall_event"])
async def test_I11_closing_a_stateless_request_closes_it_upstream(
    tmp_path: Path, era: str, name: str
) -> None:
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in CLIENT.items()}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": meta}}
    headers = {"Accept": BOTH, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
    body = json.dumps(message).encode()
    stalled = Stalled(era)
    async with raw_upstream(stalled.behave) as upstream:
        gateway = await started(configured(upstream.url, {}), tmp_path)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(http_request("POST", "/mcp", {**headers, "Mcp-Name": name}, body))
            await asyncio.wait_for(stalled.called.wait(), WAIT)
            if (era, name) == ("stateless", "stall_event"):
                await asyncio.wait_for(reader.readuntil(b"on my way"), WAIT)
            writer.transport.abort()
            await asyncio.wait_for(stalled.left.wait(), WAIT)
            # 2026-07-28 "Cancellation": on HTTP the closing says it all. 2025-11-25 wants the words.
            assert stalled.withdrawn == ([] if era == "stateless" else [stalled.ident])
        finally:
            await asyncio.to_thread(gateway.end)
