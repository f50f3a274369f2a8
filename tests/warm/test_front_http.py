"""The HTTP door: what it refuses, how much it takes, and what becomes of a request whose client goes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping

import pytest

from tests.warm.front_world import PING, Door, opened
from tests.wire.raw_upstream import EVENTS, Request, http_request
from tests.wire.seed_client import BOTH, WAIT, Json, augmented

LIMIT = 20_000


async def behave(request: Request) -> bool:
    """Answer tools by their names."""
    match request.tool:
        case "silent":
            await request.gone()
        case "slow_events":
            request.write(EVENTS + b": here\n\n")
            await request.gone()
        case "half":
            request.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000000\r\n\r\n{"
            )
            await request.gone()
        case "echo":
            request.result({"content": [], "saw": request.message["params"]})
        case _:
            return False
    return True


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for requests that never end, when the door closes."""
    monkeypatch.setattr("gateway.front.site._GOODBYE_SECONDS", 0.05)


@pytest.fixture
async def door(hasty: None) -> AsyncIterator[Door]:
    async with opened(behave, limits={"request_bytes": LIMIT}, tasks={"timeout": "30s"}) as one:
        yield one


def call(tool: str, ident: int = 1) -> bytes:
    """Return a plain call."""
    params: Json = {"name": tool, "arguments": {}}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}).encode()


def padded(size: int) -> bytes:
    """Return a request of a size."""
    frame = len(call("echo")) - len("{}") + len('{"x": ""}')
    params = {"name": "echo", "arguments": {"x": "y" * (size - frame)}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


@pytest.mark.parametrize(
    "path", ["/", "/main", "/mcp/", "/main/mcp/x", "/other/mcp", "//mcp", "/MCP", "/%2e/mcp"]
)
async def test_I12_another_path_is_answered_404_in_words(door: Door, path: str) -> None:
    answer = await door.ask("POST", PING, path=path)
    assert answer.status == 404
    assert answer.error[0] == -32600
    assert "No MCP endpoint" in answer.error[1]


@pytest.mark.parametrize("path", ["/mcp", "/main/mcp", "/mcp?x=1"])
async def test_the_paths_of_the_only_upstream(door: Door, path: str) -> None:
    assert (await door.ask("POST", PING, await door.session(), path)).status == 200


@pytest.mark.parametrize("verb", ["HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "BREW"])
async def test_I12_another_verb_is_answered_405_with_what_is_allowed(door: Door, verb: str) -> None:
    answer = await door.ask(verb, b"" if verb == "HEAD" else b"body")
    assert answer.status == 405 if verb != "BREW" else answer.status in (400, 405)
    if answer.status == 405:
        assert answer.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize(("size", "fits"), [(LIMIT, True), (LIMIT + 1, False)])
@pytest.mark.parametrize("chunked", [True, False])
async def test_I10_the_bound_of_a_body_is_exact_whichever_way_it_comes(
    door: Door, chunked: bool, size: int, fits: bool
) -> None:
    body, headers = padded(size), await door.session()
    assert len(body) == size
    line = await door.line()
    if chunked:
        fields = "".join(f"{name}: {content}\r\n" for name, content in headers.items())
        line.write(
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n{fields}\r\n".encode()
        )
        for start in range(0, size, 999):
            part = body[start : start + 999]
            line.write(b"%x\r\n%b\r\n" % (len(part), part))
        line.write(b"0\r\n\r\n")
    else:
        line.write(http_request("POST", "/mcp", headers, body))
    answer = await line.answer()
    assert answer.status == (200 if fits else 413)
    if not fits:
        assert answer.error == (
            -32600,
            f"Limit reached: the body is larger than request_bytes ({LIMIT} bytes)",
        )
        assert answer.json["error"]["data"] == {"limit": "request_bytes", "max": LIMIT}


async def test_I10_an_announced_body_that_is_too_large_is_refused_before_it_comes(door: Door) -> None:
    line = await door.line()
    line.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n")
    answer = await line.answer()
    assert answer.status == 413
    assert answer.headers["connection"] == "close"


async def test_a_body_that_comes_in_drops_is_taken(door: Door) -> None:
    line, headers = await door.line(), await door.session()
    for byte in http_request("POST", "/mcp", headers, PING):
        line.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await line.answer()).status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(3_000)) + b"\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"HELLO\r\n\r\n",
    ],
)
async def test_I12_what_is_not_http_is_answered_in_json_and_leaves_no_trace_in_the_log(
    door: Door, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    line = await door.line()
    line.write(data)
    answer = await line.answer()
    assert 400 <= answer.status < 500
    assert answer.error[0] == -32600
    await line.closed()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (await door.ask("POST", PING, await door.session())).status == 200


@pytest.mark.parametrize(
    ("headers", "good"),
    [
        ({"Origin": "http://localhost:3000"}, True),
        ({"Origin": "http://127.0.0.1"}, True),
        ({"Origin": "http://[::1]:9"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://localhost.evil.example"}, False),
        ({"Origin": "http://[::1"}, False),
        ({"Origin": "http://localhost@evil.example"}, False),
        ({"Host": "localhost:1"}, True),
        ({"Host": "[::1]:8080"}, True),
        ({"Host": "evil.example"}, False),
        ({"Host": "127.0.0.1.evil.example"}, False),
        ({"Host": "[::1"}, False),
        ({"Host": "127.0.0.1@evil.example"}, False),
    ],
)
async def test_a_browser_that_was_lured_here_is_refused(
    door: Door, headers: Mapping[str, str], good: bool
) -> None:
    answer = await door.ask("POST", PING, {**await door.session(), **headers})
    assert answer.status == (200 if good else 403)
    if not good:
        assert answer.error[0] == -32600


async def test_pipelined_requests_are_answered_in_order(door: Door) -> None:
    headers = await door.session()
    line = await door.line()
    line.write(b"".join(http_request("POST", "/mcp", headers, call("echo", n)) for n in range(20)))
    assert [(await line.answer()).json["id"] for _ in range(20)] == list(range(20))


async def test_a_refusal_leaves_the_connection_good(door: Door) -> None:
    headers = await door.session()
    line = await door.line()
    for body, status in (
        (b"{", 400),
        (b"[]", 400),
        (PING, 200),
        (b'{"jsonrpc":"2.0","id":1}', 400),
        (PING, 200),
    ):
        line.write(http_request("POST", "/mcp", headers, body))
        assert (await line.answer()).status == status


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 30])
@pytest.mark.parametrize("kind", ["task", "plain", "stream", "body"])
async def test_a_client_may_leave_in_any_phase(
    door: Door, caplog: pytest.LogCaptureFixture, kind: str, turns: int
) -> None:
    headers = await door.session()
    line = await door.line()
    task = json.dumps(augmented("t", {"name": "echo", "arguments": {}}, "tools/call", 1)).encode()
    data = {
        "task": http_request("POST", "/mcp", headers, task),
        "plain": http_request("POST", "/mcp", headers, call("echo")),
        "stream": http_request("GET", "/mcp", headers),
        "body": http_request("POST", "/mcp", headers, call("echo"))[:-5],
    }
    line.write(data[kind])
    for _ in range(turns):
        await asyncio.sleep(0)
    await line.drop()
    assert (await door.ask("POST", PING, headers)).status == 200
    await door.upstream.until(lambda server: server.open <= 2)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("tool", ["silent", "half", "slow_events"])
async def test_I10_a_request_that_was_left_alone_is_given_up_in_the_end(tool: str) -> None:
    limit = {"timeout": "200ms"}
    async with opened(behave, tasks={**limit, "tools": {"*": limit}}) as door:
        line, headers = await door.line(), await door.session()
        line.write(http_request("POST", "/mcp", headers, call(tool)))
        await door.upstream.until(lambda server: server.came == 2)
        await line.drop()
        await door.upstream.until(lambda server: server.open == 0)


async def test_I11_a_request_whose_client_has_gone_still_reaches_its_end(door: Door) -> None:
    line, headers = await door.line(), await door.session()
    line.write(http_request("POST", "/mcp", headers, call("slow_events")))
    await line.until(b": here")
    await line.drop()
    for _ in range(50):
        await asyncio.sleep(0)
    assert (await door.ask("POST", PING, headers)).status == 200
    assert door.upstream.open == 2


async def test_a_session_stream_says_at_once_that_it_is_there_and_then_that_it_still_is(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.session.streams.KEEP_ALIVE_SECONDS", 0.01)
    line, headers = await door.line(), await door.session()
    line.write(http_request("GET", "/mcp", {**headers, "Accept": "text/event-stream"}))
    head = await line.answer(body=False)
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
    assert head.headers["cache-control"].startswith("no-cache")
    for _ in range(3):
        await line.until(b": keep-alive\n\n")


async def test_I10_a_connection_that_sends_no_whole_head_is_closed(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.front.watched.HEAD_SECONDS", 0.05)
    silent, half = await door.line(), await door.line()
    half.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
    assert await silent.closed() == b""
    assert await half.closed() == b""


async def test_I10_more_connections_than_may_be_are_told_so_and_make_room_again() -> None:
    async with opened(behave, limits={"connections": 2}) as door:
        first, second = await door.line(), await door.line()
        for line in (first, second):
            line.write(http_request("POST", "/mcp", {"Accept": BOTH}, PING))
            await line.answer()
        third = await door.line()
        third.write(http_request("POST", "/mcp", {"Accept": BOTH}, PING))
        answer = await third.answer()
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert json.loads(answer.body)["error"]["data"]["limit"] == "connections"
        assert await third.closed() == b""
        # Who came in time goes on.
        first.write(http_request("POST", "/mcp", {"Accept": BOTH}, PING))
        assert (await first.answer()).status != 503
        await second.drop()
        async with asyncio.timeout(10):
            while answer.status == 503:
                answer = await door.ask("POST", PING)


async def test_I10_connections_far_beyond_the_bound_are_not_even_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.front.watched.SURPLUS_SECONDS", 0.05)
    async with opened(behave, limits={"connections": 2}) as door:
        lines = [await door.line() for _ in range(6)]
        assert await lines[5].closed() == b""
        # One that is to be refused does not stay when it asks nothing.
        assert await lines[2].closed() == b""
        lines[0].write(http_request("POST", "/mcp", {"Accept": BOTH}, PING))
        assert (await lines[0].answer()).status != 503


async def test_a_connection_that_serves_a_long_request_is_not_closed_for_its_silence(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.front.watched.HEAD_SECONDS", 0.05)
    headers = await door.session()
    line = await door.line()
    line.write(http_request("GET", "/mcp", headers))
    await line.until(b": keep-alive")
    await asyncio.sleep(0.15)
    line.writer.transport.get_write_buffer_size()
    assert not line.reader.at_eof()


async def test_I10_a_body_that_does_not_come_is_answered_408(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.front.http._BODY_SECONDS", 0.05)
    line = await door.line()
    line.write(http_request("POST", "/mcp", await door.session(), PING)[:-3])
    answer = await line.answer()
    assert answer.status == 408
    assert answer.error[0] == -32600


async def test_a_client_that_does_not_read_holds_up_its_own_answer_only(door: Door) -> None:
    slow, headers = await door.line(), await door.session()
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    slow.write(http_request("POST", "/mcp", headers, call("half")))
    await door.upstream.until(lambda server: server.came >= 2)
    async with asyncio.timeout(WAIT):
        for _ in range(20):
            assert (await door.ask("POST", PING, headers)).status == 200


@pytest.mark.parametrize(
    "accept", ["application/json", "*/*", BOTH, None, "text/event-stream", "text/*, x/y"]
)
async def test_48_any_accept_is_answered(door: Door, accept: str | None) -> None:
    headers = await door.session()
    headers.pop("Accept")
    message = json.dumps(augmented("t", {"name": "echo", "arguments": {}}, "tools/call", 1)).encode()
    if accept is not None:
        headers["Accept"] = accept
    line = await door.line()
    line.write(http_request("POST", "/mcp", headers, message))
    answer = await line.answer()
    events = answer.headers["content-type"] == "text/event-stream"
    assert events == (accept != "application/json")
    assert b'"saw"' in answer.body
