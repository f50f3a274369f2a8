"""The HTTP client of the upstream room, as its tests use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from gateway.aio.clock import SystemClock
from gateway.protocol.errors import UpstreamLost
from gateway.upstream.http import Http
from gateway.upstream.options import UrlOptions
from tests.warm.raw_servers import Play, RawServer, serve

LIMIT = 64 * 1024 * 1024


def client(url: str, **more: object) -> Http:
    return Http(UrlOptions(name="x", url=url, **more), SystemClock())  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def talking(play: Play, **more: object) -> AsyncGenerator[tuple[Http, RawServer]]:
    async with serve(play) as server:
        http = client(server.url, **more)
        try:
            yield http, server
        finally:
            await http.close()
            await asyncio.sleep(0)
            assert http.connections == 0


async def post(http: Http, body: bytes = b"{}", headers: list[tuple[str, str]] | None = None) -> bytes:
    reply = await http.forward("POST", headers or [], body)
    try:
        return await reply.read(LIMIT)
    finally:
        await reply.close()


async def lost(http: Http, method: str = "POST") -> UpstreamLost:
    with pytest.raises(UpstreamLost) as caught:
        reply = await http.forward(method, [], b"{}" if method == "POST" else None)
        await reply.read(LIMIT)
    return caught.value
