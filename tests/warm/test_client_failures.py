"""What the client says when there is nothing to talk to, or something that is no MCP server."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator

import pytest
from aiohttp import web

from gateway.client.failures import failure_of, seconds_of
from gateway.protocol.errors import Refusal
from tests.warm.client_fake import Fake, error, fake
from tests.warm.client_run import client


@pytest.fixture
async def server() -> AsyncGenerator[Fake]:
    async with fake() as running:
        yield running


async def test_a_refused_connection_is_exit_code_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        ran = await client("call", f"http://127.0.0.1:{port}/mcp", "x")
    assert ran.code == 2
    assert f"cannot connect to http://127.0.0.1:{port}/mcp: connection refused" in ran.err


async def test_json_says_what_failed_on_stdout_only() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ran = await client("call", f"http://127.0.0.1:{taken.getsockname()[1]}/mcp", "x", "--json")
    assert (ran.code, ran.err, ran.object["status"]) == (2, "", "error")
    assert "connection refused" in ran.object["error"]["message"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(status=401), "wants credentials (401): give --bearer-env"),
        (web.Response(status=403), "refuses this (403)"),
        (web.Response(status=404), "there is no MCP endpoint at"),
        (web.Response(status=405), "takes no POST (405)"),
        (
            web.Response(status=307, headers={"Location": "http://elsewhere/mcp"}),
            "redirects to http://elsewhere/mcp",
        ),
        (web.Response(status=502, text="<html>"), "answered with HTTP status 502"),
        (
            web.Response(text="<html>", content_type="text/html"),
            "not an MCP endpoint: it answered with text/html",
        ),
        (web.Response(text="{nope", content_type="application/json"), "what is not JSON-RPC"),
        (web.Response(text="[]", content_type="application/json"), "what is not JSON-RPC: Invalid Request"),
        (web.Response(status=202), "closed the stream before it had answered"),
        (web.Response(text="data: {oops\n\n", content_type="text/event-stream"), "what is not JSON-RPC"),
        (web.Response(text="event: error\ndata: x\n\n", content_type="text/event-stream"), "error event"),
        (
            web.json_response({"jsonrpc": "2.0", "id": 2, "result": {"protocolVersion": "1999-01-01"}}),
            "the server speaks protocol version '1999-01-01'",
        ),
    ],
)
async def test_no_way_in_is_exit_code_2_and_said_in_words(
    server: Fake, answer: web.Response, words: str
) -> None:
    server.refuse_method = "initialize"
    server.refusals = [answer]
    ran = await client("call", server.url, "slow")
    assert ran.code == 2
    assert words in ran.err


@pytest.mark.parametrize(
    ("status", "words"), [(401, "wants credentials (401)"), (403, "refuses this (403)")]
)
async def test_missing_credentials_are_said_at_the_first_request(
    server: Fake, status: int, words: str
) -> None:
    server.refusals = [web.Response(status=status)]
    ran = await client("call", server.url, "slow")
    assert ran.code == 2
    assert words in ran.err
    assert server.methods() == ["server/discover"]


async def test_an_unknown_session_is_said_to_be_one(server: Fake) -> None:
    ran = await client("tasks", "get", server.url, "t", "--session", "gone")
    assert ran.code == 2
    assert "does not know this session (404)" in ran.err
    assert server.methods() == ["tasks/get"]


async def test_a_429_says_when_to_come_back(server: Fake) -> None:
    server.refuse_method = "tools/call"
    body = error(2, -32029, "Too many tasks are created")
    server.refusals = [web.json_response(body, status=429, headers={"Retry-After": "7"})]
    ran = await client("call", server.url, "slow", "--json")
    assert ran.code == 1
    assert ran.object["error"] == {
        "code": -32029,
        "message": "Too many tasks are created",
        "retryAfter": 7.0,
    }


async def test_headers_and_the_bearer_token_go_with_every_request(
    server: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE_TOKEN", "s3cret")
    words = ("--header", "X-Team: blue", "--bearer-env", "GATE_TOKEN")
    left = await client("call", server.url, "slow", "--detach", *words)
    assert {h["authorization"] for h in server.headers} == {"Bearer s3cret"}
    assert {h["x-team"] for h in server.headers} == {"blue"}
    assert "s3cret" not in left.out + left.err
    assert "--bearer-env GATE_TOKEN" in left.err
    assert "the same --header options" in left.err


def test_an_error_message_hides_user_password_and_query() -> None:
    wrong = failure_of(500, {}, b"", url="http://me:pw@host:1/mcp?key=1", session=False, now_ms=0)
    assert str(wrong) == "http://host:1/mcp answered with HTTP status 500"


def test_a_json_rpc_error_counts_more_than_its_http_status() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}'
    wrong = failure_of(404, {}, body, url="http://h/mcp", session=True, now_ms=0)
    assert isinstance(wrong, Refusal)
    assert wrong.code == -32601


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0.0),
        ("soon", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms_of_rfc_9110(header: str | None, seconds: float | None) -> None:
    assert seconds_of(header, 784_111_777_000) == seconds
