"""HTTP headers: the MCP ones by name, and which ones end at a proxy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SESSION: Final = "mcp-session-id"
VERSION: Final = "mcp-protocol-version"
LAST_EVENT_ID: Final = "last-event-id"
CHALLENGE: Final = "www-authenticate"
EVENT_STREAM: Final = "text/event-stream"
JSON: Final = "application/json"

# RFC 9110 section 7.6.1, and what the connection to the other side has of its own.
HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_UPSTREAM: Final = HOP_BY_HOP | {"host", "content-length", "accept-encoding", "expect", SESSION}
_NOT_DOWNSTREAM: Final = HOP_BY_HOP | {"content-length", "date", "server", SESSION}

Headers = list[tuple[str, str]]


def to_upstream(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers of a client's request that go on to the upstream, names in lower case.

    The session id is left out: each side has its own.
    """
    return _kept(headers, _NOT_UPSTREAM)


def to_client(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers of an upstream's answer that go on to the client, names in lower case."""
    return _kept(headers, _NOT_DOWNSTREAM)


def _kept(headers: Iterable[tuple[str, str]], dropped: frozenset[str]) -> Headers:
    pairs = [(name.lower(), content) for name, content in headers]
    named = {
        token.strip().lower()
        for name, content in pairs
        if name == "connection"
        for token in content.split(",")
    }
    return [(n, c) for n, c in pairs if n not in dropped and n not in named]
