"""Plain traffic: through as it came, without the store."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gateway.protocol import sse
from gateway.protocol.codes import LIMIT_REACHED, UPSTREAM_UNAVAILABLE
from gateway.protocol.envelope import Envelope, peek, refusal_response
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, JSON, SESSION, Headers, to_client
from gateway.session.book import session_unknown
from gateway.session.exchange import Answer, Inbound, Outbound, Relay, Stream, Wire, json_answer
from gateway.session.streams import begun
from gateway.session.visit import Visit, find_link
from gateway.upstream.port import Link, Reply

_log: Final = logging.getLogger("gateway.session")
_CREDENTIALS: Final = (401, 403)
_BUSY_SECONDS: Final = 1


async def pass_on(visit: Visit) -> Outbound:
    """Send a message to the upstream as it came and return what comes back.

    Raises `Refusal` where the upstream cannot be reached or the session is lost.
    """
    if visit.session is not None and visit.session.link:
        link = await find_link(visit)
        if link is None:
            raise session_unknown()
        return await _over_link(link, visit)
    return await forward(visit)


async def forward(visit: Visit) -> Outbound:
    """Relay one HTTP exchange."""
    http = visit.served.upstream.http
    if http is None or visit.served.upstream.prefers_links:
        raise Refusal(-32000, "Bad Request: no valid session; send initialize first", status=400)
    inbound = visit.inbound
    headers = visit.upstream_headers()
    body = None
    if inbound.verb == "POST":
        body = inbound.body
        if not _accepts_both(inbound):
            headers = _accepting_both(headers)
    began = time.monotonic()
    try:
        reply = await http.forward(inbound.verb, headers, body)
    except UpstreamLost as lost:
        visit.served.called(inbound.method, "lost", time.monotonic() - began)
        raise unavailable(lost) from lost
    visit.served.called(inbound.method, "ok" if reply.status < 400 else "error", time.monotonic() - began)
    if body is not None and not inbound.accepts_events and _is_event_stream(reply):
        return await _response_alone(visit, reply)
    return Relay(reply, client_headers(visit, reply))


async def _response_alone(visit: Visit, reply: Reply) -> Outbound:
    """Read an event stream up to the response, for a client that takes JSON only."""
    parser = sse.Parser()
    ident = visit.request.id if visit.envelope is not None else None
    try:
        async for chunk in reply.chunks():
            for event in parser.feed(chunk):
                if _answers(event.data, ident):
                    headers = client_headers(visit, reply)
                    kept = [(name, content) for name, content in headers if name != "content-type"]
                    return json_answer(event.data, headers=kept)
    except UpstreamLost as lost:
        raise unavailable(lost) from lost
    except ValueError as wrong:
        raise unavailable(UpstreamLost(f"its event stream is broken ({wrong})")) from wrong
    finally:
        await reply.close()
    raise unavailable(UpstreamLost("its event stream ended without a response"))


def _answers(data: bytes, ident: bytes | None) -> bool:
    try:
        envelope = peek(data)
    except Refusal:
        return False
    return envelope.kind == "response" and envelope.id == ident


def _is_event_stream(reply: Reply) -> bool:
    return (reply.header("content-type") or "").startswith(EVENT_STREAM)


def _accepts_both(inbound: Inbound) -> bool:
    accept = inbound.header("accept") or ""
    return JSON in accept and EVENT_STREAM in accept


def _accepting_both(headers: Headers) -> Headers:
    kept = [(name, content) for name, content in headers if name != "accept"]
    return [*kept, ("accept", f"{JSON}, {EVENT_STREAM}")]


def client_headers(visit: Visit, reply: Reply) -> Headers:
    """Return an upstream's headers for the client; the session id it knows instead of the upstream's."""
    headers = to_client(reply.headers)
    token = visit.inbound.header(SESSION)
    if token is not None and reply.header(SESSION) is not None:
        headers.append((SESSION, token))
    return headers


def unavailable(lost: UpstreamLost) -> Refusal:
    """Return the refusal for an upstream that did not answer; its address is for the log alone.

    One that wants other credentials is heard: the client is who has them.
    """
    _log.info("upstream unavailable: %s", lost.tell())
    if lost.busy is not None:
        data = {"limit": "max_connections", "max": lost.busy, "retryAfter": _BUSY_SECONDS}
        words = f"Limit reached: max_connections ({lost.busy}); try again later"
        return Refusal(LIMIT_REACHED, words, data, status=503, retry_after=_BUSY_SECONDS)
    status = lost.status if lost.status in _CREDENTIALS else None
    words = f"Upstream unavailable: {lost}"
    refusal = Refusal(UPSTREAM_UNAVAILABLE, words, status=status)
    refusal.challenge = lost.challenge
    return refusal


async def _over_link(link: Link, visit: Visit) -> Outbound:
    request, inbound = visit.request, visit.inbound
    headers = visit.upstream_headers()
    if request.kind != "request" or visit.pipe is not None:
        try:
            await link.send(request.raw, headers)
        except UpstreamLost as lost:
            raise unavailable(lost) from lost
        return Answer(202)
    began = time.monotonic()
    outcome = "lost"
    try:
        outbound = await first_decides(link.exchange(request.raw, headers), request, inbound)
        outcome = "ok"
        return outbound
    finally:
        visit.served.called(request.method, outcome, time.monotonic() - began)


async def first_decides(
    messages: AsyncGenerator[bytes, None], request: Envelope, inbound: Inbound
) -> Outbound:
    """Answer with JSON where the response comes first, else with an event stream."""
    try:
        async for message in messages:
            if _is_response(message):
                await messages.aclose()
                return json_answer(message)
            if inbound.accepts_events:
                return Stream(await begun(_streamed(message, messages, request)))
    except UpstreamLost as lost:
        raise unavailable(lost) from lost
    raise Refusal(UPSTREAM_UNAVAILABLE, "Upstream unavailable: it ended without a response")


async def _streamed(
    first: bytes, messages: AsyncGenerator[bytes, None], request: Envelope
) -> AsyncGenerator[Wire | bytes, None]:
    async with aclosing(messages):
        yield b""
        yield Wire(first)
        try:
            async for message in messages:
                yield Wire(message)
        except UpstreamLost as lost:
            yield Wire(refusal_response(request.id, unavailable(lost)))


def _is_response(message: bytes) -> bool:
    try:
        return peek(message).kind == "response"
    except Refusal:
        return False
