"""The HTTP door: POST, GET and DELETE at /<upstream>/mcp. Knows HTTP, knows no tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import Final

import msgspec
from aiohttp import web

from gateway.aio.spawn import Crew
from gateway.front.cors import preflight
from gateway.front.guard import Guard
from gateway.front.render import refused, send_answer, send_relay, send_stream
from gateway.front.watched import EndedByClient, greet, is_surplus, part
from gateway.observe.metrics import Metrics, method_class
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_REQUEST, LIMIT_REACHED
from gateway.protocol.eras import is_stateless
from gateway.protocol.errors import Refusal
from gateway.protocol.headers import SESSION, VERSION
from gateway.session.exchange import Answer, Inbound, Outbound, Relay, Stream
from gateway.session.router import Router

_log: Final = logging.getLogger("gateway.front")
_ALLOW: Final = "GET, POST, DELETE"
_BODY_SECONDS: Final = 60.0
_CLIENT_GONE: Final = 499
_FULL_SECONDS: Final = 5
# Longer names are no words of a protocol, and a cache of them would be a store for clients.
_SHORT: Final = 64


class HttpLimits(msgspec.Struct, frozen=True):
    """Bounds of the door.

    `request_bytes` holds for one body; a request whose client has gone is given up after
    `abandoned_seconds`, so that an upstream that never answers does not keep it for ever. `connections`
    bounds those that are open, and the requests that are answered, at the same time.
    """

    request_bytes: int
    abandoned_seconds: float
    connections: int = 10_000


class HttpDoor:
    """Turns HTTP requests into visits of the session room and its answers into HTTP."""

    def __init__(
        self,
        router: Router,
        upstreams: Mapping[str, str],
        guard: Guard,
        metrics: Metrics,
        crew: Crew,
        limits: HttpLimits,
    ) -> None:
        self._router = router
        self._paths = dict(upstreams)
        self._guard = guard
        self._metrics = metrics
        self._crew = crew
        self._limits = limits
        self._busy = 0
        self._settled = asyncio.Event()

    def reconfigure(self, upstreams: Mapping[str, str], guard: Guard, limits: HttpLimits) -> None:
        """Serve other paths, under other bounds, from the next request on."""
        self._paths = dict(upstreams)
        self._guard = guard
        self._limits = limits

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request; whatever happens, the client gets an answer."""
        upstream = self._paths.get(request.path)
        if upstream is None:
            words = "No MCP endpoint at this path; upstreams are at /<upstream>/mcp"
            return refused(None, Refusal(INVALID_REQUEST, words, status=404))
        greet(request)
        # Requests go on whose clients have gone: there may be more of them than connections.
        if self._busy >= self._limits.connections or is_surplus(request):
            return self._full(upstream)
        if request.method == "POST":
            self._busy += 1
            try:
                return await self._handle(request, upstream)
            finally:
                self._busy -= 1
                if not self._busy:
                    self._settled.set()
        return await self._handle(request, upstream)

    def admits(self, connections: int) -> bool:
        """Tell whether one more connection is served beside so many others."""
        return connections < self._limits.connections

    def _full(self, upstream: str) -> web.Response:
        most = self._limits.connections
        self._metrics.limits_hit.labels("connections").inc()
        self._metrics.requests.labels(upstream, "unreadable", "503").inc()
        data = {"limit": "connections", "max": most, "retryAfter": _FULL_SECONDS}
        words = f"Limit reached: connections ({most}); try again later"
        response = refused(None, Refusal(LIMIT_REACHED, words, data, status=503, retry_after=_FULL_SECONDS))
        response.force_close()
        return response

    async def settled(self, seconds: float) -> bool:
        """Wait until no POST is being answered; tell whether that was so within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while self._busy:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def _handle(self, request: web.BaseRequest, upstream: str) -> web.StreamResponse:
        inbound = Inbound(upstream, request.method, _headers(request))
        try:
            patience = 0.0 if _ends_with_client(inbound) else self._limits.abandoned_seconds
            with EndedByClient(request, patience):
                response = await self._answer(request, inbound)
        except Refusal as refusal:
            response = refused(inbound, refusal)
            if refusal.data is not None and (limit := refusal.data.get("limit")):
                self._metrics.limits_hit.labels(limit).inc()
        except ConnectionError:
            # The client has gone: nobody is there to hear more.
            response = web.Response(status=_CLIENT_GONE)
        except Exception:  # noqa: BLE001 the border: logged with its trace, answered without it
            _log.exception("a request to %s failed", upstream)
            response = refused(inbound, Refusal(INTERNAL_ERROR, "Internal error", status=500))
        self._metrics.requests.labels(upstream, method_class(inbound.method), str(response.status)).inc()
        if not response.prepared:
            part(request, response)
        return response

    async def _answer(self, request: web.BaseRequest, inbound: Inbound) -> web.StreamResponse:
        self._guard.check(inbound)
        match inbound.verb:
            case "POST":
                inbound.body = await self._body(request)
                outbound = await self._router.post(inbound)
                # An answer may be a stream for hours, which needs no body any more.
                inbound.body = b""
            case "GET" | "DELETE" if _has_post_alone(inbound):
                return _not_allowed(inbound, "POST")
            case "GET":
                outbound = await self._router.get(inbound)
            case "DELETE":
                outbound = await self._router.delete(inbound)
            case "OPTIONS" if inbound.header("origin") is not None:
                return preflight(inbound)
            case _:
                return _not_allowed(inbound, _ALLOW)
        return await self._send(request, inbound, outbound)

    async def _send(
        self, request: web.BaseRequest, inbound: Inbound, outbound: Outbound
    ) -> web.StreamResponse:
        match outbound:
            case Answer():
                return send_answer(inbound, outbound)
            case Relay():
                return await send_relay(
                    request, inbound, outbound, self._crew, drain=not _ends_with_client(inbound)
                )
            case Stream():
                streams = self._metrics.streams_now.labels(inbound.upstream)
                streams.inc()
                try:
                    async with aclosing(outbound.items):
                        return await send_stream(request, inbound, outbound)
                finally:
                    streams.dec()

    async def _body(self, request: web.BaseRequest) -> bytes:
        encoding = request.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            words = "Unsupported Media Type: send the body without Content-Encoding"
            raise Refusal(INVALID_REQUEST, words, status=415)
        limit = self._limits.request_bytes
        length = request.content_length
        if length is not None and length > limit:
            raise _too_large(limit)
        if length is not None and request.content.is_eof():
            return await request.content.read(-1)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                if length is not None:
                    return await request.content.read(-1)
                return await self._unsized(request, limit)
        except TimeoutError:
            raise Refusal(INVALID_REQUEST, "The body did not arrive in time", status=408) from None

    async def _unsized(self, request: web.BaseRequest, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            parts.append(chunk)
        return b"".join(parts)


def paths_of(names: list[str]) -> dict[str, str]:
    """Return path → upstream: `/<upstream>/mcp`, and `/mcp` where there is just one."""
    paths = {f"/{name}/mcp": name for name in names}
    if len(names) == 1:
        paths["/mcp"] = names[0]
    return paths


def _has_post_alone(inbound: Inbound) -> bool:
    """Tell whether a request is of the stateless era (2026-07-28 "Earlier Streamable HTTP Revisions")."""
    return inbound.header(SESSION) is None and is_stateless(inbound.header(VERSION))


def _not_allowed(inbound: Inbound, verbs: str) -> web.Response:
    response = refused(inbound, Refusal(INVALID_REQUEST, "Method Not Allowed", status=405))
    response.headers["Allow"] = verbs
    return response


def _ends_with_client(inbound: Inbound) -> bool:
    """Tell whether a request is over when its client goes away (I11).

    A stream is; so is a plain stateless-era request, whose closing is the cancel (2026-07-28
    transports). A handshake-era request is not.
    """
    if inbound.verb == "POST":
        return _has_post_alone(inbound)
    return inbound.verb == "GET"


def _headers(request: web.BaseRequest) -> list[tuple[str, str]]:
    return [
        (_name(name) if len(name) <= _SHORT else str(name).lower(), content)
        for name, content in request.headers.items()
    ]


@lru_cache(maxsize=512)
def _name(name: str) -> str:
    return str(name).lower()


def _too_large(limit: int) -> Refusal:
    words = f"Limit reached: the body is larger than request_bytes ({limit} bytes)"
    return Refusal(INVALID_REQUEST, words, {"limit": "request_bytes", "max": limit}, status=413)
