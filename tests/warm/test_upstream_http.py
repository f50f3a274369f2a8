"""The HTTP client of the upstream room against servers that behave, and servers that do not."""

from __future__ import annotations

import asyncio
import base64
import socket

import pytest

from gateway.protocol.errors import ConfigError, Refusal, UpstreamLost
from tests.warm.raw_servers import (
    END,
    RESULT,
    Request,
    chunk,
    in_turn,
    plain,
    says,
    serve,
    stream_head,
)
from tests.warm.upstream_client import LIMIT, client, lost, post, talking


async def test_I1_a_request_crosses_as_it_is_with_one_host_and_length() -> None:
    async with serve(says(plain(RESULT))) as server:
        http = client(server.url + "?a=b%20c&d")
        reply = await http.forward(
            "POST", [("X-Own", "v"), ("Host", "evil"), ("content-length", "9")], b'{"a": 1.0}'
        )
        assert await reply.read(LIMIT) == RESULT
        (request,) = server.requests
        assert (request.method, request.target, request.body) == ("POST", "/mcp?a=b%20c&d", b'{"a": 1.0}')
        assert request.headers == {
            "host": f"127.0.0.1:{server.port}",
            "x-own": "v",
            "accept-encoding": "identity",
            "content-length": "10",
        }
        assert request.raw_head.lower().count(b"host:") == 1
        assert reply.status == 200
        assert reply.header("content-type") == "application/json"
        await http.close()


async def test_a_small_answer_is_there_whole_when_its_head_is() -> None:
    async with talking(says(plain(RESULT))) as (http, _):
        reply = await http.forward("POST", [], b"{}")
        assert reply.ended
        assert [part async for part in reply.chunks()] == [RESULT]


async def test_connections_are_reused_and_idle_ones_are_few() -> None:
    async with talking(says(plain(RESULT))) as (http, server):
        for _ in range(5):
            await post(http)
        assert server.connections == 1
        await asyncio.gather(*(post(http) for _ in range(8)))
        assert server.connections <= 8


async def test_an_answer_with_connection_close_is_not_followed_by_reuse() -> None:
    async with talking(says(plain(RESULT, extra="connection: close\r\n"))) as (http, server):
        await post(http)
        await post(http)
        assert server.connections == 2


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified", "202 Accepted"])
async def test_answers_without_a_body_end_at_once(status: str) -> None:
    length = "content-length: 0\r\n" if status.startswith("202") else ""
    head = f"HTTP/1.1 {status}\r\n{length}\r\n".encode()
    async with talking(says(head)) as (http, server):
        assert await post(http) == b""
        assert await post(http) == b""
        assert server.connections == 1


async def test_a_head_request_has_no_body_whatever_its_length_says() -> None:
    async with talking(says(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n")) as (http, _):
        reply = await http.forward("HEAD", [], None)
        assert await reply.read(10) == b""


async def test_interim_answers_are_skipped() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with talking(says(interim, plain(RESULT))) as (http, server):
        reply = await http.forward("POST", [], b"{}")
        assert reply.status == 200
        assert reply.header("link") is None
        assert await reply.read(LIMIT) == RESULT
        await post(http)
        assert server.connections == 1


async def test_a_body_may_end_with_the_stream() -> None:
    async with talking(says(b"HTTP/1.1 200 OK\r\n\r\nabc", b"def", close=True)) as (http, _):
        assert await post(http) == b"abcdef"


async def test_chunks_and_trailers_are_taken_off() -> None:
    parts = stream_head() + chunk(b"ab") + chunk(b"cd") + b"0\r\nx-sum: 1\r\n\r\n"
    async with talking(says(parts)) as (http, server):
        assert await post(http) == b"abcd"
        assert await post(http) == b"abcd"
        assert server.connections == 1


async def test_I1_each_event_is_handed_on_when_it_arrives() -> None:
    go = asyncio.Event()

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head() + chunk(b"data: 1\n\n"))
        await go.wait()
        writer.write(chunk(b"data: 2\n\n") + END)

    async with talking(play) as (http, server):
        reply = await http.forward("POST", [], b"{}")
        parts = reply.chunks()
        assert await anext(parts) == b"data: 1\n\n"
        go.set()
        assert await anext(parts) == b"data: 2\n\n"
        assert [part async for part in parts] == []
        await post(http)
        assert server.connections == 1


async def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for host in ("127.0.0.1", "localhost"):
        wrong = await lost(client(f"http://{host}:{port}/"))
        assert str(wrong) == "the upstream refused the connection"
        assert wrong.tell() == f"the upstream refused the connection ({host}:{port})"
        assert not wrong.sent


async def test_a_name_that_does_not_exist_is_named() -> None:
    wrong = await lost(client("http://no-such-host.invalid/"))
    assert wrong.tell() == "the name of the upstream cannot be resolved (no-such-host.invalid:80)"
    assert not wrong.sent


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((), "the upstream closed the connection before it answered"),
        ((b"HTTP/1.1 200",), "the upstream closed the connection before it answered"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), "the upstream sent something that is not HTTP"),
        ((b"\x15\x03\x01\x00\x02\x02\x46",), "the upstream sent something that is not HTTP"),
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",), "the answer was cut short after 4 bytes"),
        ((stream_head() + chunk(b"abc"),), "the answer was cut short after 3 bytes"),
        (
            (b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",),
            "the upstream switched protocols without being asked",
        ),
    ],
)
async def test_I12_an_answer_that_is_none_is_told_in_words(parts: tuple[bytes, ...], words: str) -> None:
    async with talking(says(*parts, close=True)) as (http, _):
        wrong = await lost(http)
        assert str(wrong) == words
        assert wrong.sent


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: 1\r\n" * 20_000 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 400_000,
    ],
)
async def test_I10_the_head_of_an_answer_is_bounded(head: bytes) -> None:
    async with talking(says(head)) as (http, _):
        assert str(await lost(http)) == "the upstream sent headers of more than 65536 bytes"


async def test_I10_a_trailer_without_end_is_bounded() -> None:
    async with talking(says(stream_head() + b"0\r\nx: ", *[b"a" * 65536] * 4)) as (http, _):
        assert "more than 65536 bytes" in str(await lost(http))


async def test_I10_a_body_longer_than_asked_for_is_refused() -> None:
    async with talking(says(plain(b"x" * 2000))) as (http, _):
        reply = await http.forward("POST", [], b"{}")
        with pytest.raises(UpstreamLost, match="longer than 1999 bytes"):
            await reply.read(1999)


async def test_a_connection_that_the_server_closed_while_idle_is_replaced_before_use() -> None:
    async with talking(says(plain(RESULT), close=True)) as (http, server):
        await post(http)
        # Our loop has not seen the end of stream yet: the socket itself is asked.
        await server.closed.wait()
        assert await post(http) == RESULT
        assert server.connections == 2


async def test_I3_a_post_whose_connection_breaks_after_it_was_sent_is_not_sent_again() -> None:
    plays = in_turn(says(plain(RESULT)), says(close=True), says(plain(RESULT)))
    async with talking(plays) as (http, server):
        await post(http)
        wrong = await lost(http)
        assert wrong.sent
        assert len(server.requests) == 2


async def test_a_get_on_a_reused_connection_that_breaks_is_sent_again_once() -> None:
    plays = in_turn(says(plain(RESULT)), says(close=True), says(plain(RESULT)))
    async with talking(plays) as (http, server):
        for _ in range(2):
            reply = await http.forward("GET", [], None)
            assert await reply.read(LIMIT) == RESULT
        assert [one.method for one in server.requests] == ["GET"] * 3
        assert server.connections == 2


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async with talking(says(plain(RESULT) + plain(b"second"))) as (http, server):
        assert await post(http) == RESULT
        assert await post(http) == RESULT
        assert server.connections == 2


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\0b"])
async def test_I12_a_header_cannot_carry_another_one_in(value: str) -> None:
    async with talking(says(plain(RESULT))) as (http, server):
        with pytest.raises(Refusal, match="line break"):
            await http.forward("POST", [("x-name", value)], b"{}")
        with pytest.raises(Refusal):
            await http.forward("POST", [("x: y\r\nz", "v")], b"{}")
        assert server.requests == []
    with pytest.raises(ConfigError):
        client("http://h/", headers={"x": value})


async def test_configured_headers_win_and_credentials_of_the_url_give_way_to_the_clients() -> None:
    async with serve(says(plain(RESULT))) as server:
        url = f"http://us%40er:p%3Aw@127.0.0.1:{server.port}/mcp"
        http = client(url, headers={"X-Key": "mine"})
        await post(http, headers=[("x-key", "theirs")])
        await post(http, headers=[("Authorization", "Bearer c")])
        first, second = server.requests
        assert first.headers["x-key"] == "mine"
        assert first.headers["authorization"] == "Basic " + base64.b64encode(b"us@er:p:w").decode()
        assert second.headers["authorization"] == "Bearer c"
        assert "us@er" not in repr(http)
        await http.close()


@pytest.mark.parametrize("url", ["ftp://h/", "http://", "localhost:80", "http://h:99999/", ""])
def test_a_url_that_cannot_be_used_is_a_mistake_of_the_configuration(url: str) -> None:
    with pytest.raises(ConfigError, match="the URL of the upstream"):
        client(url)
