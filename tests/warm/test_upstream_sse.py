"""The legacy HTTP+SSE transport, and how a URL is found to speak it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from gateway.aio.clock import SystemClock
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.upstream.auto import UrlUpstream
from gateway.upstream.link import MessageLink
from gateway.upstream.options import UrlOptions
from tests.warm.raw_servers import (
    END,
    REQUEST,
    RESULT,
    RawServer,
    Request,
    chunk,
    plain,
    says,
    serve,
    stream_head,
    until,
)

INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}'
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
HEADERS = [("authorization", "Bearer c")]


class Legacy:
    """A legacy server: one stream a connection, answers on it; `endpoint` may hold `{port}`."""

    def __init__(self, endpoint: str = "/messages?session_id=1", accepted: bytes = b"") -> None:
        self.endpoint = endpoint
        self.accepted = accepted or plain(b"Accepted", "202 Accepted", "text/plain")
        self.streams: list[asyncio.StreamWriter] = []
        self.port = 0

    def emit(self, data: bytes, name: str = "message") -> None:
        self.streams[-1].write(chunk(b"event: %s\r\ndata: %s\r\n\r\n" % (name.encode(), data)))

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET":
            self.streams.append(writer)
            writer.write(stream_head() + chunk(b": hello\n\n"))
            self.emit(self.endpoint.format(port=self.port).encode(), "endpoint")
        elif request.target == "/mcp":
            writer.write(plain(b"", "405 Method Not Allowed"))
        else:
            message = json.loads(request.body)
            if "id" in message and "method" in message and message["method"] != "silent":
                self.emit(b'{"jsonrpc":"2.0","id":%d,"result":{"ok":true}}' % message["id"])
            writer.write(self.accepted)


@asynccontextmanager
async def talking(
    legacy: Legacy, transport: str = "sse", **more: object
) -> AsyncGenerator[tuple[UrlUpstream, RawServer]]:
    async with serve(legacy) as server:
        legacy.port = server.port
        options = UrlOptions(name="x", url=server.url, transport=transport, **more)  # pyright: ignore[reportArgumentType]
        built = UrlUpstream(options, SystemClock())
        try:
            yield built, server
        finally:
            await built.close()
            await until(lambda: not (server.open))


async def begin(built: UrlUpstream, tag: str = "t") -> MessageLink:
    assert built.links is not None
    link, answer = await built.links.open(tag, INITIALIZE, HEADERS)
    assert json.loads(answer) == {"jsonrpc": "2.0", "id": 0, "result": {"ok": True}}
    return link


async def call(link: MessageLink, message: bytes = REQUEST) -> list[bytes]:
    return [raw async for raw in link.exchange(message, HEADERS)]


@pytest.mark.parametrize(
    "endpoint", ["/messages?session_id=1", "http://127.0.0.1:{port}/messages?session_id=1"]
)
async def test_messages_go_to_the_endpoint_and_come_on_the_stream(endpoint: str) -> None:
    legacy = Legacy(endpoint)
    async with talking(legacy) as (built, server):
        assert built.http is None
        assert built.prefers_links
        link = await begin(built)
        assert await call(link) == [RESULT]
        get, *posts = server.requests
        assert (get.method, get.headers["accept"]) == ("GET", "text/event-stream")
        for post in posts:
            assert post.target == "/messages?session_id=1"
            assert post.headers["content-type"] == "application/json"
        assert all(one.headers["authorization"] == "Bearer c" for one in server.requests)
        assert [one.body for one in posts] == [INITIALIZE, REQUEST]


async def test_I1_posts_leave_in_the_order_of_their_calls() -> None:
    legacy = Legacy()
    async with talking(legacy) as (built, server):
        link = await begin(built)
        notes = [b'{"jsonrpc":"2.0","method":"n%d"}' % number for number in range(30)]
        await asyncio.gather(*(link.send(note, HEADERS) for note in notes))
        assert [one.body for one in server.of("POST")][1:] == notes


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:1/m", "//evil.example/m", "https://127.0.0.1:{port}/m"]
)
async def test_an_endpoint_of_another_origin_is_refused(endpoint: str) -> None:
    async with talking(Legacy(endpoint)) as (built, server):
        with pytest.raises(UpstreamLost, match="the upstream named an endpoint of another origin"):
            await begin(built)
        assert server.of("POST") == []


async def test_I5_calls_fail_when_the_stream_ends() -> None:
    legacy = Legacy()
    async with talking(legacy) as (built, _):
        link = await begin(built)
        running = asyncio.create_task(call(link, b'{"jsonrpc":"2.0","id":5,"method":"silent"}'))
        await asyncio.sleep(0)
        legacy.streams[-1].write(END)
        with pytest.raises(UpstreamLost, match=r"^the upstream closed its event stream during the call$"):
            await running
        assert not link.alive
        assert len(built.links or []) == 0


async def test_a_message_that_is_not_accepted_fails_its_call() -> None:
    legacy = Legacy()
    async with talking(legacy) as (built, _):
        link = await begin(built)
        legacy.accepted = plain(b"no", "404 Not Found")
        with pytest.raises(UpstreamLost, match="answered a message with status 404") as caught:
            await link.send(INITIALIZED, HEADERS)
        assert caught.value.status == 404
        with pytest.raises(UpstreamLost, match="status 404"):
            await call(link, b'{"jsonrpc":"2.0","id":5,"method":"silent"}')
        assert link.alive


async def test_I10_an_upstream_that_names_no_endpoint_is_given_up() -> None:
    async with serve(says(stream_head() + chunk(b": hello\n\n"))) as server:
        options = UrlOptions(name="x", url=server.url, transport="sse", start_timeout=0.1)
        built = UrlUpstream(options, SystemClock())
        with pytest.raises(UpstreamLost, match=r"named no endpoint within 0\.1 s"):
            await begin(built)
        await built.close()
        built = UrlUpstream(UrlOptions(name="x", url=server.url, start_timeout=0.1), SystemClock())
        assert await built.fall_back("t", INITIALIZE, HEADERS) is None
        await built.close()


async def test_what_is_no_event_stream_is_told_in_words() -> None:
    async with serve(says(plain(b"<html>", media="text/html"))) as server:
        built = UrlUpstream(UrlOptions(name="x", url=server.url, transport="sse"), SystemClock())
        with pytest.raises(UpstreamLost, match="answered 200 instead of an event stream"):
            await begin(built)
        await built.close()


async def test_auto_falls_back_to_a_legacy_server_and_remembers() -> None:
    legacy = Legacy()
    async with talking(legacy, "auto") as (built, _):
        assert not built.prefers_links
        assert built.http is not None
        reply = await built.http.forward("POST", HEADERS, INITIALIZE)
        assert reply.status == 405
        await reply.close()
        fallen = await built.fall_back("t", INITIALIZE, HEADERS)
        assert fallen is not None
        assert await call(fallen[0]) == [RESULT]
        assert built.prefers_links


@pytest.mark.parametrize("answer", [plain(b"", "405 No"), plain(b"{}"), stream_head() + END])
async def test_auto_does_not_fall_back_to_what_is_no_legacy_server(answer: bytes) -> None:
    async with serve(says(answer)) as server:
        built = UrlUpstream(UrlOptions(name="x", url=server.url), SystemClock())
        assert await built.fall_back("t", INITIALIZE, HEADERS) is None
        assert not built.prefers_links
        await built.close()


async def test_I10_the_number_of_legacy_connections_is_bounded() -> None:
    async with talking(Legacy(), max_links=1) as (built, _):
        await begin(built)
        with pytest.raises(Refusal, match="Limit reached: links"):
            await begin(built, "other")


async def test_a_url_is_checked_by_connecting() -> None:
    async with serve(says()) as server:
        built = UrlUpstream(UrlOptions(name="x", url=server.url), SystemClock())
        assert await built.check() is None
        await built.close()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    built = UrlUpstream(UrlOptions(name="x", url=f"http://127.0.0.1:{port}/"), SystemClock())
    assert await built.check() == f"the upstream refused the connection (127.0.0.1:{port})"
    await built.close()
