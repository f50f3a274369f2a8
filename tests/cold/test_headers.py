"""Headers that end at a proxy (RFC 9110 section 7.6.1); the session id is each side's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.headers import to_client, to_upstream

HOP_BY_HOP = (
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
)
NAMES = st.sampled_from(["X-A", "x-b", "Authorization", "Mcp-Session-Id", "Host", *HOP_BY_HOP])


@pytest.mark.parametrize("name", [*HOP_BY_HOP, "Host", "Content-Length", "Expect", "Mcp-Session-Id"])
def test_headers_of_one_connection_do_not_reach_the_upstream(name: str) -> None:
    assert to_upstream([(name, "x"), ("X-Kept", "1")]) == [("x-kept", "1")]


@pytest.mark.parametrize("name", [*HOP_BY_HOP, "Content-Length", "MCP-Session-Id"])
def test_headers_of_one_connection_do_not_reach_the_client(name: str) -> None:
    assert to_client([(name, "x"), ("X-Kept", "1")]) == [("x-kept", "1")]


def test_headers_that_connection_names_end_here_too() -> None:
    headers = [("CONNECTION", "close, X-One ,x-two"), ("x-One", "1"), ("X-TWO", "2"), ("X-Three", "3")]
    assert to_upstream(headers) == [("x-three", "3")]
    assert to_client(headers) == [("x-three", "3")]


@pytest.mark.parametrize(
    "name",
    [
        "mcp-protocol-version",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "authorization",
        "accept",
        "content-type",
        "cookie",
        "traceparent",
        "x-unknown",
    ],
)
def test_I1_headers_of_the_exchange_reach_the_upstream(name: str) -> None:
    assert to_upstream([(name, "Value, as it IS ")]) == [(name, "Value, as it IS ")]


@pytest.mark.parametrize(
    "name",
    ["content-type", "content-encoding", "www-authenticate", "retry-after", "set-cookie", "x-unknown"],
)
def test_I1_headers_of_the_answer_reach_the_client(name: str) -> None:
    assert to_client([(name, "a"), (name, "b")]) == [(name, "a"), (name, "b")]


@given(st.lists(st.tuples(NAMES, st.text(st.characters(min_codepoint=32, max_codepoint=126)))))
def test_what_is_kept_is_kept_in_order_and_whole(headers: list[tuple[str, str]]) -> None:
    lowered = [(name.lower(), content) for name, content in headers]
    for kept in (to_upstream(headers), to_client(headers)):
        rest = iter(lowered)
        assert all(pair in rest for pair in kept)
        assert not {name for name, _ in kept} & {name.lower() for name in HOP_BY_HOP}
