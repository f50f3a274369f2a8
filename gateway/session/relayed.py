"""Plain requests of the stateless era over a child of the same era: as they came, and so the answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.protocol.envelope import peek, refusal_response
from gateway.protocol.errors import UpstreamLost
from gateway.session.asked import Asked, in_its_codes
from gateway.session.exchange import Wire
from gateway.session.plain import unavailable


async def relayed(asked: Asked) -> AsyncGenerator[Wire | bytes, None]:
    """Yield what the upstream says for a request, the response last.

    Closing it before the end cancels the request there (2026-07-28 stdio, "Cancellation").
    """
    yield b""
    crossing = asked.visit.served.crossing
    try:
        coming = crossing.relay(asked.caller, asked.visit.request.raw, asked.headers)
        async with aclosing(coming):
            async for raw in coming:
                yield Wire(raw, last=peek(raw).kind == "response")
    except UpstreamLost as lost:
        refusal = in_its_codes(unavailable(lost))
        yield Wire(refusal_response(asked.ident, refusal), last=True)
