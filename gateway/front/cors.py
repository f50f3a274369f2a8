"""Cross-origin requests of browsers (WHATWG Fetch, "CORS protocol"), for origins that the guard lets in."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.session.exchange import Inbound

_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_EXPOSED: Final = "Mcp-Session-Id, Retry-After, WWW-Authenticate"
_HEADERS: Final = (
    "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, Mcp-Protocol-Version, "
    "Mcp-Method, Mcp-Name"
)
_DAY: Final = "86400"


def preflight(inbound: Inbound) -> web.Response:
    """Answer the question whether a page may call; the guard has let its origin in already."""
    asked = inbound.header("access-control-request-headers")
    response = web.Response(status=204)
    allow(inbound, response)
    response.headers["Access-Control-Allow-Methods"] = _METHODS
    response.headers["Access-Control-Allow-Headers"] = asked or _HEADERS
    response.headers["Access-Control-Max-Age"] = _DAY
    return response


def allow(inbound: Inbound, response: web.StreamResponse) -> None:
    """Let the page that asked read an answer, unless the upstream has said something of its own."""
    headers = response.headers
    origin = inbound.header("origin")
    if origin is None or "Access-Control-Allow-Origin" in headers:
        return
    headers["Access-Control-Allow-Origin"] = origin
    headers["Access-Control-Expose-Headers"] = _EXPOSED
    headers.add("Vary", "Origin")
