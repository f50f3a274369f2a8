"""GET: the session's own stream, or one that is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, LAST_EVENT_ID
from gateway.service.service import TaskService
from gateway.session.about import Desk
from gateway.session.begin import check_rate
from gateway.session.book import session_unknown
from gateway.session.exchange import Outbound, Relay, Stream
from gateway.session.plain import client_headers, forward
from gateway.session.resuming import WAIT_MARK
from gateway.session.streams import (
    EVENT_MARK,
    Source,
    begun,
    link_events,
    listening_stream,
    read_event_id,
    reply_events,
    resumed_stream,
)
from gateway.session.visit import Visit, find_link
from gateway.store.port import RateLimits
from gateway.upstream.port import HttpUpstream, Reply

_HEAD_SECONDS: Final = 1.0
_STILL_BUSY: Final = (0.05, 0.2, 0.5)
_NO_STREAM: Final = (405, 501)


class Listening:
    """Opens streams that no request of the client carries."""

    def __init__(
        self, service: TaskService, desk: Desk, rates: RateLimits, crew: Crew, clock: Clock
    ) -> None:
        self._service = service
        self._desk = desk
        self._rates = rates
        self._crew = crew
        self._clock = clock

    async def open(self, visit: Visit) -> Outbound:
        """Open the stream that a GET asks for.

        An event id of the gateway's resumes a task's stream, any other is the upstream's to resume.
        """
        ident = visit.inbound.header(LAST_EVENT_ID) or ""
        if ident.startswith(WAIT_MARK):
            return await self._desk.resume(visit, ident)
        if ident.startswith(EVENT_MARK) and visit.scope is not None:
            key, after = read_event_id(ident, visit.scope)
            await check_rate(self._rates, "get", visit.scope)
            return Stream(resumed_stream(self._service, key, after, visit.served.dialects))
        if visit.session is None:
            return await forward(visit)
        if visit.session.link:
            link = await find_link(visit)
            if link is None:
                raise session_unknown()
            events = link_events(link)
            return await self._stream(visit, Source(events, events.aclose))
        if visit.served.upstream.http is None:
            return await self._stream(visit, None)
        return await self._over_http(visit, visit.served.upstream.http, resuming=bool(ident))

    async def _over_http(self, visit: Visit, http: HttpUpstream, *, resuming: bool) -> Outbound:
        beside = resuming and self._service.listeners.listens(visit.tag)
        if not beside:
            self._service.listeners.end(visit.tag)
        asking = self._crew.spawn(self._ask(http, visit), "open upstream stream")
        try:
            await asyncio.wait([asking], timeout=None if beside else _HEAD_SECONDS)
        except asyncio.CancelledError:
            await _close_late(asking)
            raise
        if not asking.done():
            return await self._stream(visit, Source(_late(asking), lambda: _close_late(asking)))
        reply = asking.result()
        if reply is None:
            return await self._stream(visit, None)
        if reply.status in _NO_STREAM:
            await reply.close()
            return await self._stream(visit, None)
        if beside or not _is_stream(reply):
            return Relay(reply, client_headers(visit, reply))
        return await self._stream(visit, Source(reply_events(reply), reply.close))

    async def _ask(self, http: HttpUpstream, visit: Visit) -> Reply | None:
        """Return the upstream's answer to the GET, `None` where it cannot be reached.

        The stream of before may stand there for a moment yet (409): that is tried again.
        """
        headers = visit.upstream_headers()
        try:
            reply = await http.forward("GET", headers, None)
            for seconds in _STILL_BUSY:
                if reply.status != 409:
                    break
                await reply.close()
                await self._clock.sleep(seconds)
                reply = await http.forward("GET", headers, None)
        except UpstreamLost:
            return None
        return reply

    async def _stream(self, visit: Visit, source: Source | None) -> Outbound:
        stream = listening_stream(self._service, self._crew, visit, source)
        return Stream(await begun(stream))


async def _late(asking: asyncio.Task[Reply | None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of an upstream that keeps its head back until it has something to say."""
    reply = await asyncio.shield(asking)
    if reply is None or not _is_stream(reply):
        # The stream is the gateway's alone then, and goes on.
        await asyncio.Event().wait()
        return
    async for whole in reply_events(reply):
        yield whole


async def _close_late(asking: asyncio.Task[Reply | None]) -> None:
    asking.cancel()
    with suppress(asyncio.CancelledError):
        reply = await asking
        if reply is not None:
            await reply.close()


def _is_stream(reply: Reply) -> bool:
    return reply.status == 200 and (reply.header("content-type") or "").startswith(EVENT_STREAM)
