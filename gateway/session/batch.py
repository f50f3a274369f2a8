"""JSON-RPC batches of the versions that had them (2024-11-05, 2025-03-26), over links."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from gateway.protocol.envelope import Envelope, check_depth, peek, refusal_response, split_batch
from gateway.protocol.errors import Refusal
from gateway.session.exchange import Answer, Outbound, Stream, Wire, json_answer
from gateway.session.visit import Visit

Route = Callable[[Visit, Envelope], Awaitable[Outbound]]


async def take_batch(visit: Visit, route: Route) -> Outbound:
    """Take the messages of a batch one after the other; raise `Refusal` where it is no batch.

    Requests are answered on an event stream, or, for a client that takes none, in one array of
    responses; without requests the answer is 202 (2025-03-26 transports).
    """
    check_depth(visit.inbound.body)
    parts = split_batch(visit.inbound.body)
    wires = _all_of(visit, parts, route)
    if visit.inbound.accepts_events and any(_is_request(part) for part in parts):
        return Stream(wires)
    async with aclosing(wires):
        responses = [
            wire.message async for wire in wires if isinstance(wire, Wire) and not _is_call(wire.message)
        ]
    return json_answer(b"[" + b",".join(responses) + b"]") if responses else Answer(202)


async def _all_of(visit: Visit, parts: list[bytes], route: Route) -> AsyncGenerator[Wire | bytes, None]:
    for part in parts:
        try:
            envelope = peek(part)
        except Refusal as refusal:
            yield Wire(refusal_response(None, refusal))
            continue
        visit.envelope = envelope
        try:
            outbound = await route(visit, envelope)
        except Refusal as refusal:
            if envelope.kind == "request":
                yield Wire(refusal_response(envelope.id, refusal))
            continue
        if isinstance(outbound, Stream):
            async with aclosing(outbound.items):
                async for item in outbound.items:
                    yield Wire(item.message) if isinstance(item, Wire) else item
        elif isinstance(outbound, Answer) and outbound.body:
            yield Wire(outbound.body)


def _is_request(part: bytes) -> bool:
    try:
        return peek(part).kind == "request"
    except Refusal:
        return True


def _is_call(message: bytes) -> bool:
    try:
        return peek(message).kind != "response"
    except Refusal:
        return False
