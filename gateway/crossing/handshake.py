"""Opens a session of the handshake era for a client that knows none (2025-11-25 "Lifecycle")."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from gateway.aio.clock import Clock
from gateway.bridge.requests import initialize_request
from gateway.crossing.answers import read_answer
from gateway.crossing.carriers import Carrier, HttpCarrier, LinkCarrier, Opened
from gateway.crossing.keys import handshake_headers, posting
from gateway.crossing.port import Caller
from gateway.protocol.envelope import members, peek, text_of
from gateway.protocol.eras import HANDSHAKE
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import SESSION, Headers
from gateway.upstream.port import HttpUpstream, Link, LinkUpstream, Upstream

_TRY_SSE: Final = (400, 404, 405)
_NO_REFUSAL: Final = (401, 403, 429, 502, 503, 504)
_INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
_IDENT: Final = b"0"
_WORDS: Final = 200


class Refused(UpstreamLost):
    """The upstream answered `initialize`, but with no session."""


class Handshakes:
    """Opens sessions with one upstream.

    `seconds` bounds one opening, `info` stands in for a client's; `on_refused` hears that the upstream
    does not take `initialize`.
    """

    def __init__(
        self,
        upstream: Upstream,
        clock: Clock,
        *,
        seconds: float,
        info: bytes,
        on_refused: Callable[[], None],
    ) -> None:
        self._upstream = upstream
        self._clock = clock
        self._seconds = seconds
        self._info = info
        self._on_refused = on_refused

    def __repr__(self) -> str:
        return f"<Handshakes with {self._upstream.name}>"

    async def open(self, caller: Caller, headers: Headers) -> Opened:
        """Open a session; raise `UpstreamLost` where there is none to be had in time.

        Also `Refusal`, where the upstream has as many links as it may have.
        """
        message = initialize_request(
            _IDENT, caller.capabilities, caller.info, HANDSHAKE[-1], default_info=self._info
        )
        plain = handshake_headers(headers, None)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._open(message, plain)
        except TimeoutError:
            self._on_refused()
            words = f"the upstream did not answer initialize within {self._seconds:g} s"
            raise UpstreamLost(words) from None
        except Refused as refused:
            self._on_refused()
            raise UpstreamLost(str(refused), status=refused.status) from None

    async def _open(self, message: bytes, headers: Headers) -> Opened:
        upstream = self._upstream
        if upstream.prefers_links:
            if upstream.links is None:
                raise UpstreamLost("the upstream offers no way to open a session", sent=False)
            found = await upstream.links.open(secrets.token_hex(16), message, headers)
            return await _over_link(upstream.links, found, headers)
        if upstream.http is None:
            raise UpstreamLost("the upstream offers no way to open a session", sent=False)
        return await self._over_http(upstream.http, message, headers)

    async def _over_http(self, http: HttpUpstream, message: bytes, headers: Headers) -> Opened:
        reply = await http.forward("POST", posting(headers), message)
        try:
            if reply.status in _TRY_SSE and self._upstream.links is not None:
                tag = secrets.token_hex(16)
                found = await self._upstream.fall_back(tag, message, headers)
                if found is not None:
                    return await _over_link(self._upstream.links, found, headers)
            answer = await read_answer(reply, _IDENT)
        except UpstreamLost as lost:
            if lost.status is None or lost.status in _NO_REFUSAL:
                raise
            raise Refused(str(lost), status=lost.status) from lost
        finally:
            await reply.close()
        result, version = _result_of(answer)
        carrier = HttpCarrier(http, reply.header(SESSION), handshake_headers(headers, version), self._clock)
        await _confirm(carrier, handshake_headers(headers, version))
        return Opened(carrier, result, version)


async def _over_link(links: LinkUpstream, found: tuple[Link, bytes], headers: Headers) -> Opened:
    link, answer = found
    carrier = LinkCarrier(links, link)
    try:
        result, version = _result_of(answer)
    except UpstreamLost:
        await carrier.end()
        raise
    await _confirm(carrier, handshake_headers(headers, version))
    return Opened(carrier, result, version)


async def _confirm(carrier: Carrier, headers: Headers) -> None:
    """Send `notifications/initialized`; a session that does not take it is ended."""
    try:
        await carrier.channel(headers).send(_INITIALIZED, headers)
    except BaseException:
        await carrier.end()
        raise


def _result_of(answer: bytes) -> tuple[bytes, str]:
    """Return the result of `initialize` and the negotiated version; raise `UpstreamLost`."""
    try:
        one = peek(answer)
    except Refusal:
        raise Refused("the upstream answered initialize with something that is no message") from None
    if one.result is None:
        words = (text_of(members(one.error).get("message")) or "")[:_WORDS]
        raise Refused(f"the upstream refused initialize: {words}")
    version = text_of(members(one.result).get("protocolVersion"))
    if version is None:
        raise Refused("the upstream answered initialize without a protocol version")
    return one.result, version
