"""A stateless-era upstream as the crossing offers it: requests of their own over HTTP, or over children.

A child belongs to one caller: its log lines name no request, and it may know things of whom it serves.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.bridge.discover import initialized
from gateway.bridge.requests import to_stateless
from gateway.crossing.carriers import LinkCarrier, Opened
from gateway.crossing.changes import Listener
from gateway.crossing.native import StatelessChannel
from gateway.crossing.pool import Bounds, HeldSessions
from gateway.crossing.port import Caller, Wanted
from gateway.crossing.roads import HttpRoad, Road
from gateway.crossing.subscription import Subscription
from gateway.crossing.tools import FORBIDDEN
from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import Envelope, dump, members, peek, request, text_of
from gateway.protocol.eras import HANDSHAKE, STATELESS
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.port import Channel, Upstream

_ANYBODY: Final = b"{}"
_WORDS: Final = 200


class StatelessSide:
    """What the crossing asks of an upstream, where that takes stateless requests itself."""

    def __init__(
        self,
        upstream: Upstream,
        clock: Clock,
        crew: Crew,
        bounds: Bounds,
        *,
        on_sessions: Callable[[int], None],
    ) -> None:
        self._upstream = upstream
        self._clock = clock
        self._crew = crew
        self._pool = HeldSessions(
            Children(upstream),
            clock,
            bounds,
            on_sessions=on_sessions,
            on_change=_ignore,
        )

    def __repr__(self) -> str:
        return f"<StatelessSide of {self._upstream.name}>"

    async def opened(self, caller: Caller, headers: Headers) -> bytes:
        """Return what would be the result of `initialize`, made of `server/discover`."""
        answer = await _ask(self._road(caller), discovery(caller), headers)
        return initialized(_result(answer), HANDSHAKE[-1])

    def channel(self, caller: Caller, *, drive: bool) -> Channel:
        """Return a channel for one call."""
        return StatelessChannel(self._road(caller), caller, self._clock, self._crew, drive=drive)

    def relay(self, caller: Caller, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request as it is and yield its messages as they are."""
        return self._road(caller).ask(message, headers)

    async def listen(self, caller: Caller, wanted: Wanted, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield an empty message once the upstream acknowledged, then what it tells of."""
        road = self._road(caller)
        listener = Listener(wanted)
        stamp = StatelessChannel(road, caller, self._clock, self._crew).stamp
        subscription = Subscription(
            road, stamp, lambda raw: listener.offer(peek(raw)), self._clock, self._crew
        )
        try:
            found = await subscription.want(frozenset(wanted.uris), headers)
            if found.error is not None:
                words = text_of(members(found.error).get("message")) or "an error"
                raise Refusal(INTERNAL_ERROR, f"The upstream refused the subscription: {words[:_WORDS]}")
            yield b""
            while (news := await listener.take()) is not None:
                yield news
        finally:
            subscription.end()

    async def tool_support(self, caller: Caller, tool: str, headers: Headers) -> str:
        """Return `forbidden`: a client asks for no tasks in this era."""
        del caller, tool, headers
        return FORBIDDEN

    async def tool_schema(self, caller: Caller, tool: str, headers: Headers) -> bytes | None:
        """Return nothing: the upstream compares headers and arguments itself."""
        del caller, tool, headers

    async def close(self) -> None:
        """End all children."""
        await self._pool.close()

    @property
    def _over_http(self) -> bool:
        return self._upstream.http is not None and not self._upstream.prefers_links

    def _road(self, caller: Caller) -> Road:
        if self._upstream.http is not None and self._over_http:
            return HttpRoad(self._upstream.http)
        return ChildRoad(self._pool, caller)


class Children:
    """An `Opener` of children that speak the stateless era."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def __repr__(self) -> str:
        return f"<Children of {self._upstream.name}>"

    async def open(self, caller: Caller, headers: Headers) -> Opened:
        """Start a child and ask it what it is; raise `UpstreamLost`, or `Refusal` at the bound."""
        links = self._upstream.links
        if links is None:
            raise UpstreamLost("the upstream offers no way to open a session", sent=False)
        tag = secrets.token_hex(16)
        link, answer = await links.open(tag, discovery(caller), headers)
        carrier = LinkCarrier(links, link, statelessly=True)
        try:
            return Opened(carrier, initialized(_result(peek(answer)), HANDSHAKE[-1]), STATELESS[-1])
        except BaseException:
            await carrier.end()
            raise


class ChildRoad:
    """A `Road` over the child that is held for a caller, whatever its client can."""

    def __init__(self, pool: HeldSessions, caller: Caller) -> None:
        self._pool = pool
        self._caller = msgspec.structs.replace(caller, capabilities=_ANYBODY, log_level=None)

    def __repr__(self) -> str:
        return f"<ChildRoad in {self._pool!r}>"

    async def ask(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last."""
        async with self._pool.borrowed(self._caller, headers, self) as session:
            if not isinstance(session.carrier, LinkCarrier):
                raise UpstreamLost("the upstream offers no way to send requests", sent=False)
            async with aclosing(session.carrier.road.ask(message, headers)) as coming:
                async for raw in coming:
                    yield raw


def discovery(caller: Caller) -> bytes:
    """Return a `server/discover` request of a caller."""
    asked = request(dump(f"mtg-discover-{secrets.token_hex(12)}"), "server/discover", None)
    return to_stateless(asked, STATELESS[-1], caller.capabilities, caller.info, None)


async def _ask(road: Road, message: bytes, headers: Headers) -> Envelope:
    async with aclosing(road.ask(message, headers)) as coming:
        async for raw in coming:
            one = peek(raw)
            if one.kind == "response":
                return one
    raise UpstreamLost("the upstream ended its answer without a response")


def _result(answer: Envelope) -> bytes:
    if answer.result is None:
        words = text_of(members(answer.error).get("message")) or "an error"
        raise UpstreamLost(f"the upstream refused server/discover: {words[:_WORDS]}")
    return answer.result


def _ignore(key: bytes, one: Envelope) -> None:
    """Take no note: what this side remembers does not depend on changes."""
    del key, one
