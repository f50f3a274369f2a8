"""How connections to an upstream are shared, held back and given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from gateway.protocol.errors import UpstreamLost
from tests.warm.raw_servers import (
    RESULT,
    Request,
    chunk,
    plain,
    says,
    stream_head,
    until,
)
from tests.warm.upstream_client import LIMIT, client, lost, post, talking


async def test_I10_the_number_of_connections_is_bounded_and_the_waiting_are_served_in_order() -> None:
    gates = [asyncio.Event() for _ in range(4)]

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        await gates[int(request.body)].wait()
        writer.write(plain(request.body))

    async with talking(play, max_connections=1) as (http, server):
        done: list[bytes] = []

        async def call(number: int) -> None:
            done.append(await post(http, b"%d" % number))

        calls = [asyncio.create_task(call(number)) for number in range(3)]
        await until(lambda: server.requests)
        calls[1].cancel()
        for gate in gates:
            gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert done == [b"0", b"2"]
        assert server.connections == 1


async def test_I10_a_pool_that_stays_full_is_told_in_words() -> None:
    async with talking(says(stream_head()), max_connections=1, connect_timeout=0.05) as (http, _):
        stream = await http.forward("POST", [], b"{}")
        wrong = await lost(http)
        assert str(wrong).startswith("all 1 connections to the upstream are busy")
        assert not wrong.sent
        await stream.close()


async def test_I10_who_finds_too_many_waiting_is_refused_at_once() -> None:
    async with talking(says(stream_head()), max_connections=1, connect_timeout=30) as (http, _):
        stream = await http.forward("POST", [], b"{}")
        waiting = [asyncio.create_task(lost(http)) for _ in range(100)]
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            wrong = await lost(http)
        assert (wrong.busy, wrong.sent) == (1, False)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        await stream.close()


async def test_I10_streams_do_not_take_the_connections_that_calls_need() -> None:
    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head() if request.method == "GET" else plain(b"{}"))

    async with talking(play, max_connections=1, max_streams=2, connect_timeout=0.05) as (http, _):
        streams = [await http.forward("GET", [], None) for _ in range(2)]
        assert await post(http, b"{}") == b"{}"
        with pytest.raises(UpstreamLost, match="all 2 connections to the upstream are busy"):
            await http.forward("GET", [], None)
        for stream in streams:
            await stream.close()


async def test_closing_an_answer_early_drops_its_connection_and_gives_back_the_place() -> None:
    async with talking(says(stream_head() + chunk(b"x")), max_connections=1) as (http, server):
        for _ in range(3):
            reply = await http.forward("GET", [], None)
            await reply.close()
            await server.closed.wait()
            server.closed.clear()
        assert server.connections == 3


async def test_a_cancelled_request_drops_its_connection() -> None:
    async with talking(says()) as (http, server):
        call = asyncio.create_task(http.forward("POST", [], b"{}"))
        await until(lambda: server.requests)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await server.closed.wait()
        assert server.open == 0


async def test_I10_a_slow_reader_holds_the_upstream_back() -> None:
    written = 0

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n")
        for _ in range(1024):
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536

    async with talking(play) as (http, _):
        reply = await http.forward("GET", [], None)
        seen = -1
        while seen != written:
            seen = written
            await asyncio.sleep(0.05)
        # What is not ours is in the kernel's socket buffers.
        assert reply.buffered <= 1024 * 1024
        assert written < 32 * 1024 * 1024
        assert sum([len(part) async for part in reply.chunks()]) == 67108864


async def test_a_large_body_goes_out_whole_and_an_early_refusal_is_heard() -> None:
    body = b"x" * 8_000_000
    async with talking(says(plain(RESULT))) as (http, server):
        assert await post(http, body) == RESULT
        assert server.requests[0].body == body

    over = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(plain(b"too large", status="413 Content Too Large"))
        # Reads on, as servers do so that the answer is not lost to a reset.
        with suppress(ConnectionError):
            while await reader.read(1_000_000):
                pass
        writer.close()
        over.set()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    http = client(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/")
    reply = await http.forward("POST", [], body)
    assert (reply.status, await reply.read(100)) == (413, b"too large")
    await http.close()
    await over.wait()
    listener.close()


@asynccontextmanager
async def aiohttp_server(app: web.Application) -> AsyncGenerator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def test_a_good_server_is_spoken_to_with_all_kinds_of_bodies() -> None:
    big = bytes(range(256)) * 4096

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.headers["x-kind"] == "length":
            return web.Response(body=body)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for start in range(0, len(body), 100_000):
            await response.write(body[start : start + 100_000])
        return response

    app = web.Application(client_max_size=LIMIT)
    app.router.add_post("/mcp", answer)
    async with aiohttp_server(app) as url:
        http = client(url)
        for kind in ("length", "chunked"):
            for body in (b"", b"{}", big):
                assert await post(http, body, [("x-kind", kind)]) == body
        results = await asyncio.gather(*(post(http, big, [("x-kind", "chunked")]) for _ in range(8)))
        assert all(one == big for one in results)
        assert http.connections <= 8
        await http.close()
