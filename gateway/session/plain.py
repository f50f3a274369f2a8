"""Plain traffic: through as it came, without the store."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gateway.protocol.codes import UPSTREAM_UNAVAILABLE
from gateway.protocol.envelope import Envelope, peek, refusal_response
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import SESSION, Headers, to_client
from gateway.session.book import session_unknown
from gateway.session.exchange import Answer, Inbound, Outbound, Relay, Stream, Wire, json_answer
from gateway.session.visit import Visit, find_link
from gateway.upstream.port import Link, Reply

_log: Final = logging.getLogger("gateway.session")


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
    body = inbound.body if inbound.verb == "POST" else None
    try:
        reply = await http.forward(inbound.verb, visit.upstream_headers(), body)
    except UpstreamLost as lost:
        raise unavailable(lost) from lost
    return Relay(reply, client_headers(visit, reply))


def client_headers(visit: Visit, reply: Reply) -> Headers:
    """Return an upstream's headers for the client; the session id it knows instead of the upstream's."""
    headers = to_client(reply.headers)
    token = visit.inbound.header(SESSION)
    if token is not None and reply.header(SESSION) is not None:
        headers.append((SESSION, token))
    return headers


def unavailable(lost: UpstreamLost) -> Refusal:
    """Return the refusal for an upstream that did not answer."""
    return Refusal(UPSTREAM_UNAVAILABLE, f"Upstream unavailable: {lost}")


async def _over_link(link: Link, visit: Visit) -> Outbound:
    request, inbound = visit.request, visit.inbound
    headers = visit.upstream_headers()
    if request.kind != "request" or visit.pipe is not None:
        try:
            await link.send(request.raw, headers)
        except UpstreamLost as lost:
            raise unavailable(lost) from lost
        return Answer(202)
    messages = link.exchange(request.raw, headers)
    return await first_decides(messages, request, inbound)


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
                return Stream(_streamed(message, messages, request))
    except UpstreamLost as lost:
        raise unavailable(lost) from lost
    raise Refusal(UPSTREAM_UNAVAILABLE, "Upstream unavailable: it ended without a response")


async def _streamed(
    first: bytes, messages: AsyncGenerator[bytes, None], request: Envelope
) -> AsyncGenerator[Wire, None]:
    async with aclosing(messages):
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
