"""The crossing of one upstream: which era it speaks, and the side that serves it (see the port)."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.crossing.handshake import Handshakes
from gateway.crossing.hearsay import Hearsay
from gateway.crossing.held_side import HeldSide
from gateway.crossing.kept import SharedState
from gateway.crossing.keys import handshake_headers
from gateway.crossing.pool import Bounds
from gateway.crossing.port import Caller, Era, Ground, Grounded, Settling, Wanted
from gateway.crossing.probe import EraProbe
from gateway.crossing.stateless_links import StatelessLinks
from gateway.crossing.stateless_side import StatelessSide
from gateway.crossing.watching import honourable
from gateway.protocol.envelope import Envelope, members, peek, text_of
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.port import Channel, Link, LinkUpstream, Upstream, is_placing

_log = logging.getLogger("gateway.crossing")

# How a handshake server refuses a request that knows no session.
_OTHER_ERA: Final = re.compile(r"\bsession|initializ|protocol version", re.IGNORECASE)
_NO_SIGN: Final = (401, 403, 408, 425, 429)
_MANY: Final = 2.0


class UpstreamCrossing:
    """A `Crossing` (see the port).

    `max_sessions` bounds the sessions that are held for stateless clients, and likewise those of
    handshake clients with a stateless upstream; one that is idle for `idle` seconds ends;
    `start_timeout` (seconds) bounds the opening of one. `info` is the gateway's own name and version,
    for clients that name none. An `era` that is given is spoken without asking. `on_sessions` hears
    how many there are after each change. `carriers` and `shared` are of handshake clients' sessions,
    `hearsay` is of stateless clients'.
    """

    def __init__(  # noqa: PLR0913 what the configuration says of one upstream, and what is of the house
        self,
        upstream: Upstream,
        clock: Clock,
        *,
        max_sessions: int,
        idle: float,
        start_timeout: float,
        info: bytes,
        era: Era | None = None,
        on_sessions: Callable[[int], None] | None = None,
        carriers: LinkUpstream | None = None,
        shared: SharedState | None = None,
        hearsay: Hearsay | None = None,
    ) -> None:
        self._name = upstream.name
        self._upstream = upstream
        self._crew = Crew("crossing")
        self._numbers: dict[str, int] = {}
        self._on_sessions = on_sessions
        self._probe = EraProbe(upstream, info=info, seconds=min(5.0, start_timeout), fixed=era)
        handshakes = Handshakes(
            upstream, clock, seconds=start_timeout, info=info, on_refused=self._probe.forget
        )
        bounds = Bounds(max_sessions, idle, _MANY * start_timeout)
        self._held = HeldSide(
            handshakes,
            clock,
            self._crew,
            bounds,
            on_sessions=lambda number: self._count("held", number),
            hearsay=hearsay,
        )
        self._stateless = StatelessSide(
            upstream,
            clock,
            self._crew,
            bounds,
            on_sessions=lambda number: self._count("children", number),
        )
        self._links = StatelessLinks(
            upstream,
            clock,
            self._crew,
            max_links=max_sessions,
            idle=idle,
            on_links=lambda number: self._count("links", number),
            carriers=carriers,
            shared=shared,
        )

    def __repr__(self) -> str:
        return f"<UpstreamCrossing {self._name} {self._probe!r}>"

    @property
    def links(self) -> LinkUpstream:
        """Sessions of handshake-era clients with an upstream that is stateless only."""
        return self._links

    async def era(self, headers: Headers) -> Era:
        """Tell whether the upstream takes stateless requests itself.

        Raises `UpstreamLost` where it cannot be asked, `Refusal` where no child may be started.
        """
        return await self._probe.era(headers)

    async def opened(self, caller: Caller, headers: Headers) -> bytes:
        """Return the raw result object of the upstream's `initialize`, or what would be one."""
        return await (await self.side(headers)).opened(caller, headers)

    async def honoured(self, caller: Caller, wanted: Wanted, headers: Headers) -> Wanted:
        """Return the part of a filter that the upstream announces that it can tell of."""
        return honourable(await self.opened(caller, headers), wanted)

    def channel(self, caller: Caller, *, drive: bool) -> Channel:
        """Return a channel for one call."""
        return CrossingChannel(self, caller, drive=drive)

    def regained(self, ground: Ground, headers: Headers) -> tuple[Channel, Headers] | None:
        """Return the channel of a session that another replica held, and the headers to be used there."""
        http = self._upstream.http
        if http is None or self._upstream.prefers_links:
            return None
        own = handshake_headers(headers, ground.version)
        return http.channel(ground.session_id, own), own

    async def relay(self, caller: Caller, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request of the stateless era as it is to an upstream of that era; yield its messages."""
        async with aclosing(self._stateless.relay(caller, message, headers)) as coming:
            async for raw in coming:
                yield raw

    async def listen(self, caller: Caller, wanted: Wanted, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield an empty message once the upstream listens, then its notifications of changes."""
        side = await self.side(headers)
        async with aclosing(side.listen(caller, wanted, headers)) as coming:
            async for raw in coming:
                yield raw

    async def over(self, child: Link, initialize: bytes, headers: Headers) -> tuple[Settling, bytes] | None:
        """Open a session over a child that refused to be initialized; `None` where it is not of the era."""
        return await self._links.over(child, initialize, headers)

    def awaits(self, tag: str, message: bytes) -> bool:
        """Tell whether a call of the session `tag` waits here for an answer, or is here to be cancelled."""
        return self._links.awaits(tag, message)

    async def hear(self, tag: str, message: bytes) -> None:
        """Take what the client of a session said elsewhere; nothing happens where it is not here."""
        self._held.hear(tag, message)
        await self._links.hear(tag, message)

    async def runs_tasks(self, headers: Headers) -> bool:
        """Tell whether a stateless upstream has the tasks extension itself; false for any other."""
        return await self.era(headers) == "stateless" and self._probe.runs_tasks

    async def tool_support(self, caller: Caller, tool: str, headers: Headers) -> str:
        """Return the upstream's own `taskSupport` of a tool: forbidden, optional or required."""
        return await (await self.side(headers)).tool_support(caller, tool, headers)

    async def tool_schema(self, caller: Caller, tool: str, headers: Headers) -> bytes | None:
        """Return a tool's raw input schema where its arguments must be compared with headers.

        `None` where nothing is to be compared: there is no such tool, it mirrors nothing, or the
        upstream is stateless and does that itself. Never raises for a list that cannot be had.
        """
        return await (await self.side(headers)).tool_schema(caller, tool, headers)

    async def side(self, headers: Headers) -> HeldSide | StatelessSide:
        """Return what serves the era that the upstream speaks; raise what `era` raises."""
        return self._stateless if await self.era(headers) == "stateless" else self._held

    def doubt(self, side: HeldSide | StatelessSide) -> None:
        """Ask for the era again, for a request of a side's era was refused as one of the wrong era."""
        if side is self._stateless:
            self._probe.forget()

    async def close(self) -> None:
        """Let go of everything."""
        await self._probe.close()
        await self._links.close()
        await self._held.close()
        await self._stateless.close()
        await self._crew.close()

    def _count(self, what: str, number: int) -> None:
        self._numbers[what] = number
        if self._on_sessions is not None:
            self._on_sessions(sum(self._numbers.values()))


class CrossingChannel:
    """A `Channel` that finds out at its first exchange which era to speak."""

    def __init__(self, crossing: UpstreamCrossing, caller: Caller, *, drive: bool) -> None:
        self._crossing = crossing
        self._caller = caller
        self._drive = drive
        self._side: HeldSide | StatelessSide | None = None
        self._channel: Channel | None = None
        self.on_place: Callable[[str], None] | None = None

    @property
    def ground(self) -> Ground | None:
        """Where another replica finds its last exchange, `None` where nobody else can take it up."""
        return self._channel.ground if isinstance(self._channel, Grounded) else None

    def __repr__(self) -> str:
        return f"<CrossingChannel {self._channel!r}>"

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last.

        Where no session can be opened since the upstream speaks another era than it did, that is
        spoken. Raises `UpstreamLost`, and `Refusal` where there are too many sessions.
        """
        for again in (True, False):
            side = await self._crossing.side(headers)
            channel = self._over(side)
            if is_placing(channel):
                channel.on_place = self._placed
            try:
                async with aclosing(channel.exchange(message, headers)) as coming:
                    async for raw in coming:
                        if isinstance(side, StatelessSide) and _of_other_era(raw):
                            self._crossing.doubt(side)
                        yield raw
            except UpstreamLost as lost:
                if lost.status is not None and 400 <= lost.status < 500 and lost.status not in _NO_SIGN:
                    self._crossing.doubt(side)
                if lost.sent or not again or await self._crossing.side(headers) is side:
                    raise
                _log.info("a call is sent in the words of the other era: %s", lost)
            else:
                return

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response to where the call is; raise `UpstreamLost`."""
        if self._channel is not None:
            await self._channel.send(message, headers)

    async def close(self) -> None:
        """Let go of what the call has of its own."""
        if self._channel is not None:
            await self._channel.close()

    def _placed(self, place: str) -> None:
        if self.on_place is not None:
            self.on_place(place)

    def _over(self, side: HeldSide | StatelessSide) -> Channel:
        if self._channel is None or self._side is not side:
            self._side, self._channel = side, side.channel(self._caller, drive=self._drive)
        return self._channel


def _of_other_era(raw: bytes) -> bool:
    one: Envelope = peek(raw)
    if one.error is None:
        return False
    return _OTHER_ERA.search(text_of(members(one.error).get("message")) or "") is not None
