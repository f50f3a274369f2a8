"""What the session room answers, as HTTP."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final

from aiohttp import web

from gateway.aio.spawn import Crew
from gateway.front.cors import allow
from gateway.front.watched import OnDisconnect, part
from gateway.protocol import sse
from gateway.protocol.codes import UPSTREAM_UNAVAILABLE, http_status
from gateway.protocol.envelope import refusal_response
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, JSON
from gateway.session.exchange import Answer, Inbound, Relay, Stream, Wire
from gateway.upstream.port import Reply

_log: Final = logging.getLogger("gateway.front")
_DRAIN_SECONDS: Final = 7200.0
_WHOLE_BYTES: Final = 256 * 1024
_STREAM_HEADERS: Final = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


def send_answer(inbound: Inbound, answer: Answer) -> web.Response:
    """Return a whole answer."""
    response = web.Response(status=answer.status, body=answer.body or None, headers=answer.headers)
    allow(inbound, response)
    return response


def refused(inbound: Inbound | None, refusal: Refusal) -> web.Response:
    """Return a refusal: its HTTP status with a JSON-RPC error that carries the request's id."""
    ident = refusal.request_id
    if ident is None and inbound is not None:
        ident = inbound.request_id
    status = refusal.status or http_status(refusal.code, answers_request=ident is not None)
    response = web.Response(status=status, body=refusal_response(ident, refusal), content_type=JSON)
    if inbound is not None:
        allow(inbound, response)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after)))
    if refusal.challenge is not None and refusal.challenge.isascii() and refusal.challenge.isprintable():
        response.headers["WWW-Authenticate"] = refusal.challenge
    if status == 413:
        response.force_close()
    return response


async def send_stream(request: web.BaseRequest, inbound: Inbound, stream: Stream) -> web.StreamResponse:
    """Send messages as events until they end or the client goes.

    What fails once the stream has begun ends it: the client comes back for the rest.
    """
    response = web.StreamResponse(headers=_STREAM_HEADERS)
    response.headers.extend(stream.headers)
    allow(inbound, response)
    part(request, response)
    me = asyncio.current_task()
    with OnDisconnect(request, me.cancel if me is not None else int):
        await response.prepare(request)
        try:
            await _send_items(response, stream)
        except GatewayError as wrong:
            _log.warning("a stream was ended early: %s", wrong)
            await response.write_eof()
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 the border: logged with its trace, and nothing may follow the head
            _log.exception("a stream failed")
            if request.transport is not None:
                request.transport.abort()
    return response


async def _send_items(response: web.StreamResponse, stream: Stream) -> None:
    async for item in stream.items:
        if not isinstance(item, Wire):
            await response.write(item)
        elif item.last:
            await response.write_eof(sse.encode(item.message, item.ident))
            return
        else:
            await response.write(sse.encode(item.message, item.ident))
    await response.write_eof()


async def send_relay(
    request: web.BaseRequest, inbound: Inbound, relay: Relay, crew: Crew, *, drain: bool
) -> web.StreamResponse:
    """Send an upstream's answer as it comes.

    With `drain`, an answer whose client has gone is still read to its end: in the handshake era a
    disconnect is not a cancel (I11), and some servers take a closed connection for one.
    """
    reply = relay.reply
    size = _size_of(reply)
    try:
        if size is not None and size <= _WHOLE_BYTES:
            body = await reply.read(_WHOLE_BYTES)
            await reply.close()
            whole = web.Response(status=reply.status, body=body or None, headers=relay.headers)
            allow(inbound, whole)
            return whole
        return await _send_chunks(request, inbound, relay, size)
    except UpstreamLost as lost:
        await reply.close()
        raise Refusal(UPSTREAM_UNAVAILABLE, f"Upstream unavailable: {lost}") from lost
    except ConnectionError:
        if drain:
            crew.spawn(_drain(reply), "drain")
        else:
            await reply.close()
        raise
    except asyncio.CancelledError:
        await reply.close()
        raise


async def _send_chunks(
    request: web.BaseRequest, inbound: Inbound, relay: Relay, size: int | None
) -> web.StreamResponse:
    reply = relay.reply
    response = web.StreamResponse(status=reply.status, headers=relay.headers)
    allow(inbound, response)
    part(request, response)
    if size is not None:
        response.content_length = size
    await response.prepare(request)
    try:
        async for chunk in reply.chunks():
            await response.write(chunk)
    except UpstreamLost as lost:
        # The head is out: all that is left is to let the client see that the answer is not whole.
        _log.info("an upstream's answer was cut: %s", lost)
        await reply.close()
        if request.transport is not None:
            request.transport.abort()
        return response
    await reply.close()
    await response.write_eof()
    return response


async def _drain(reply: Reply) -> None:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in reply.chunks():
                pass
    except (UpstreamLost, TimeoutError) as lost:
        _log.debug("a drained answer was cut: %s", lost)
    finally:
        await reply.close()


def _size_of(reply: Reply) -> int | None:
    length = reply.header("content-length")
    return int(length) if length is not None and length.isdigit() else None
