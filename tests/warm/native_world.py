"""What the tests with stateless upstreams share: scripted and real ones, and messages of the other era."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.aio.clock import SystemClock
from gateway.crossing.port import Caller
from gateway.protocol.headers import Headers
from gateway.upstream.auto import build
from gateway.upstream.options import CommandOptions, UrlOptions
from gateway.upstream.port import Channel, Upstream
from tests.processes import Process, free_port, wait_port
from tests.warm.raw_servers import Play, Request, chunk, plain

SERVER = str(Path(__file__).with_name("native_upstream.py"))
CALLER = Caller(None, b'{"elicitation":{},"roots":{},"sampling":{}}', b'{"name":"t","version":"1"}')
HEADERS: Headers = [("authorization", "Bearer x"), ("mcp-protocol-version", "2025-11-25")]
Json = dict[str, Any]


def message(ident: int | str, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}).encode()


def tool(ident: int | str, name: str, token: int | str | None = None, **arguments: Any) -> bytes:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return message(ident, "tools/call", name=name, arguments=arguments, **meta)


def cancelled(ident: int | str, **more: str) -> bytes:
    params = {"requestId": ident, **more}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()


def answer(asked: Json, result: Json | None = None, error: Json | None = None) -> bytes:
    body = {"result": result} if error is None else {"error": error}
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}).encode()


async def call(channel: Channel, raw: bytes) -> list[Json]:
    """Return all messages of an exchange, in 20 seconds at the most."""
    async with asyncio.timeout(20), aclosing(channel.exchange(raw, HEADERS)) as coming:
        return [json.loads(one) async for one in coming]


async def first(coming: AsyncGenerator[bytes, None]) -> Json:
    async with asyncio.timeout(20):
        return json.loads(await anext(coming))


def scripted(reply: Callable[[Json, Request], Json | None]) -> Play:
    """Answer each request with the result or error that `reply` returns; without one, not at all."""

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        body: Json = json.loads(request.body)
        found = reply(body, request)
        if found is not None:
            writer.write(plain(json.dumps({"jsonrpc": "2.0", "id": body.get("id"), **found}).encode()))

    return play


def event(body: Json) -> bytes:
    return chunk(b"data: " + json.dumps({"jsonrpc": "2.0", **body}).encode() + b"\n\n")


@asynccontextmanager
async def real(carrier: str) -> AsyncGenerator[Upstream]:
    """Run the stateless server over HTTP or as a child."""
    if carrier == "stdio":
        upstream = build(CommandOptions(name="x", command=(sys.executable, SERVER, "stdio")), SystemClock())
        try:
            yield upstream
        finally:
            await upstream.close()
        return
    port = free_port()
    with Process([sys.executable, SERVER, "http", str(port)]) as process:
        await asyncio.to_thread(wait_port, process, port)
        upstream = build(UrlOptions(name="x", url=f"http://127.0.0.1:{port}/mcp"), SystemClock())
        try:
            yield upstream
        finally:
            await upstream.close()
