"""Crossings as the tests build them, and calls through them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from gateway.aio.clock import Clock, SystemClock
from gateway.crossing.crossing import UpstreamCrossing
from gateway.crossing.port import Caller
from gateway.protocol.headers import Headers
from gateway.upstream.auto import build
from gateway.upstream.options import CommandOptions, UrlOptions
from gateway.upstream.port import Channel

Json = dict[str, Any]

INFO: Final = b'{"name":"gateway","version":"1"}'
ALICE: Final = Caller("alice")
BOB: Final = Caller("bob")
ASKED: Final = Caller("alice", b'{"elicitation":{},"roots":{},"sampling":{}}')
NO_HEADERS: Final[Headers] = []


@asynccontextmanager
async def crossing_to(
    options: UrlOptions | CommandOptions,
    clock: Clock | None = None,
    *,
    max_sessions: int = 10,
    idle: float = 600.0,
    start_timeout: float = 20.0,
    counts: list[int] | None = None,
) -> AsyncGenerator[UpstreamCrossing]:
    clock = clock or SystemClock()
    upstream = build(options, clock)
    crossing = UpstreamCrossing(
        upstream,
        clock,
        max_sessions=max_sessions,
        idle=idle,
        start_timeout=start_timeout,
        info=INFO,
        on_sessions=None if counts is None else counts.append,
    )
    try:
        yield crossing
    finally:
        await crossing.close()
        await upstream.close()


def to_url(url: str, **more: Any) -> UrlOptions:
    return UrlOptions(name="x", url=url, **more)


def tool(name: str, ident: int | str = 1, /, **arguments: object) -> bytes:
    params = {"name": name, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}).encode()


async def say(channel: Channel, message: bytes, headers: Headers = NO_HEADERS) -> list[Json]:
    async with aclosing(channel.exchange(message, headers)) as coming:
        return [json.loads(raw) async for raw in coming]


async def call(
    crossing: UpstreamCrossing,
    name: str,
    /,
    caller: Caller = ALICE,
    ident: int | str = 1,
    headers: Headers = NO_HEADERS,
    **arguments: object,
) -> list[Json]:
    return await say(crossing.channel(caller, drive=False), tool(name, ident, **arguments), headers)


def words(messages: list[Json]) -> str:
    return str(messages[-1]["result"]["content"][0]["text"])
