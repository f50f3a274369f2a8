"""Sessions of handshake-era clients with an upstream that is stateless only.

`initialize` is answered from `server/discover`. What a session is about is in that request, so that
any replica can make the link anew (design I6).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.bridge.discover import initialized, negotiated
from gateway.bridge.requests import to_stateless
from gateway.bridge.results import error_to_handshake
from gateway.crossing.kept import About, SharedState
from gateway.crossing.port import Caller
from gateway.crossing.probe import era_of
from gateway.crossing.roads import HttpRoad, LinkRoad, Road
from gateway.crossing.stateless_link import StatelessLink
from gateway.protocol.canonical import canonical
from gateway.protocol.codes import LIMIT_REACHED
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    peek,
    request,
    response,
    text_of,
)
from gateway.protocol.eras import STATELESS
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.port import Link, LinkUpstream, Upstream

_log: Final = logging.getLogger("gateway.crossing")
_START_SECONDS: Final = 30.0
_FULL_SECONDS: Final = 30


class StatelessLinks:
    """A `LinkUpstream` (see the port of the upstream room).

    `max_links` bounds the links: where there are so many, the one that is idle for longest makes room;
    one that was not used for `idle` seconds ends. `on_links` hears the number after each change. With
    other replicas beside, what sessions are about is `shared`, and `carriers` are their children.
    """

    def __init__(  # noqa: PLR0913 what the configuration says of it, and what is of the house
        self,
        upstream: Upstream,
        clock: Clock,
        crew: Crew,
        *,
        max_links: int = 10_000,
        idle: float = 3600.0,
        on_links: Callable[[int], None] | None = None,
        carriers: LinkUpstream | None = None,
        shared: SharedState | None = None,
    ) -> None:
        self._upstream = upstream
        self._carriers = carriers
        self._shared = shared
        self._clock = clock
        self._crew = crew
        self._max = max_links
        self._idle = idle
        self._on_links = on_links
        self._links: dict[str, StatelessLink] = {}
        self._making: dict[str, asyncio.Task[StatelessLink | GatewayError]] = {}
        self._opening = 0
        self._sweeper: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StatelessLinks {len(self._links)} links of {self._max}>"

    def __len__(self) -> int:
        return len(self._links)

    async def open(self, tag: str, initialize: bytes, headers: Headers) -> tuple[StatelessLink, bytes]:
        """Ask the upstream what it is and answer `initialize` with that.

        Where the answer is an error the link has ended already. Raises `UpstreamLost`, and `Refusal`
        when there are as many links as there may be.
        """
        await self.drop(tag)
        await self._make_room()
        one = peek(initialize)
        caller = _caller(one)
        self._opening += 1
        try:
            road, carrier, answer = await self._discover(tag, caller, headers)
        finally:
            self._opening -= 1
        link = self._keep(tag, road, carrier, caller, headers)
        if self._shared is not None:
            link.share(self._shared, About())
        if answer.result is None:
            await self.drop(tag)
            return link, error_response(one.id, error_to_handshake(answer.error or b"{}"))
        return link, response(one.id, initialized(answer.result, _version(one)))

    async def find(self, tag: str, initialize: bytes | None, headers: Headers) -> StatelessLink | None:
        """Return a living link, or make it anew; `None` where there is nothing to make it of.

        Raises what `open` raises.
        """
        link = self._links.get(tag)
        if link is not None and link.alive:
            link.headers = headers
            return link
        if initialize is None:
            return None
        task = self._making.get(tag)
        if task is None:
            task = self._crew.spawn(self._make(tag, initialize, headers), "make link")
            self._making[tag] = task
            task.add_done_callback(lambda _: self._making.pop(tag, None))
        outcome = await asyncio.shield(task)
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome

    async def over(
        self, child: Link, initialize: bytes, headers: Headers
    ) -> tuple[StatelessLink, bytes] | None:
        """Open a session over a link that is there already, and that stays its owner's.

        `None` where its server does not speak the stateless era.
        """
        one = peek(initialize)
        caller = _caller(one)
        road = LinkRoad(child)
        try:
            answer = await _ask(road, _discovery(caller), headers)
        except GatewayError as wrong:
            _log.info("a child that refused to be initialized is of no era: %s", wrong)
            return None
        if answer.result is None or era_of(answer.raw) != "stateless":
            return None
        link = StatelessLink(child.tag, road, caller, self._clock, self._crew, headers=headers)
        link.carried = lambda: child.alive
        return link, response(one.id, initialized(answer.result, _version(one)))

    def awaits(self, tag: str, message: bytes) -> bool:
        """Tell whether a call of a link waits for an answer, or is there to be cancelled."""
        link = self._links.get(tag)
        return link is not None and link.alive and link.awaits(message)

    async def hear(self, tag: str, message: bytes) -> None:
        """Take an answer or a cancellation that came elsewhere, where there is a link for it."""
        link = self._links.get(tag)
        if link is None or not link.alive:
            return
        if link.awaits(message):
            await link.send(message, link.headers)
        else:
            await link.heard(peek(message))

    async def drop(self, tag: str) -> None:
        """End a link, whether it lives or not."""
        if not await self._forget(tag):
            return
        if self._by_link and self._children is not None:
            await self._children.drop(tag)
        if self._shared is not None:
            await self._shared.forget(tag)

    async def close(self) -> None:
        """End all links."""
        for tag in list(self._links):
            await self._let_go(tag)
        if self._sweeper is not None:
            self._sweeper.cancel()

    @property
    def _children(self) -> LinkUpstream | None:
        return self._upstream.links if self._carriers is None else self._carriers

    async def _forget(self, tag: str) -> bool:
        """End a link, but not the child that carries it; tell whether there was one."""
        link = self._links.pop(tag, None)
        if link is None:
            return False
        self._tell()
        await link.close()
        return True

    async def _let_go(self, tag: str) -> None:
        """End a link whose session goes on: other replicas may use its child, which ends when idle."""
        if self._shared is None:
            await self.drop(tag)
        else:
            await self._forget(tag)

    @property
    def _by_link(self) -> bool:
        return self._upstream.prefers_links or self._upstream.http is None

    async def _make(self, tag: str, initialize: bytes, headers: Headers) -> StatelessLink | GatewayError:
        try:
            await self._let_go(tag)
            await self._make_room()
            caller = _caller(peek(initialize))
            road, carrier = await self._way(tag, caller, headers)
        except GatewayError as wrong:
            return wrong
        if self._shared is None:
            return self._keep(tag, road, carrier, caller, headers)
        about = await self._shared.about(tag)
        link = self._keep(tag, road, carrier, caller, headers)
        link.share(self._shared, about)
        return link

    async def _way(self, tag: str, caller: Caller, headers: Headers) -> tuple[Road, Link | None]:
        """Return the way to the upstream of a session that was opened before, maybe elsewhere."""
        if self._upstream.http is not None and not self._by_link:
            return HttpRoad(self._upstream.http), None
        if self._carriers is not None:
            carrier = await self._carriers.find(tag, _discovery(caller), headers)
            if carrier is None:
                raise UpstreamLost("it offers no way to open a session")
            return LinkRoad(carrier), carrier
        road, carrier, answer = await self._discover(tag, caller, headers)
        if answer.result is None:
            raise UpstreamLost("the upstream refused to be asked again what it is")
        return road, carrier

    async def _discover(
        self, tag: str, caller: Caller, headers: Headers
    ) -> tuple[Road, Link | None, Envelope]:
        message = _discovery(caller)
        if self._upstream.http is not None and not self._by_link:
            road = HttpRoad(self._upstream.http)
            return road, None, await _ask(road, message, headers)
        if self._children is None:
            raise UpstreamLost("it offers no way to open a session")
        carrier, answer = await self._children.open(tag, message, headers)
        return LinkRoad(carrier), carrier, peek(answer)

    def _keep(
        self, tag: str, road: Road, carrier: Link | None, caller: Caller, headers: Headers
    ) -> StatelessLink:
        link = StatelessLink(tag, road, caller, self._clock, self._crew, headers=headers)
        if carrier is not None:
            link.carried = lambda: carrier.alive
        self._links[tag] = link
        self._tell()
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = self._crew.spawn(self._end_idle(), "end idle links")
        return link

    async def _make_room(self) -> None:
        if len(self._links) + self._opening < self._max:
            return
        tag = max(self._links, key=lambda one: self._links[one].idle(), default=None)
        if tag is None or not self._links[tag].idle():
            words = f"Limit reached: links ({self._max} sessions with this upstream are open)"
            data = {"limit": "links", "max": self._max, "retryAfter": _FULL_SECONDS}
            raise Refusal(LIMIT_REACHED, words, data, status=503, retry_after=_FULL_SECONDS)
        await self._let_go(tag)

    async def _end_idle(self) -> None:
        while self._links:
            await self._clock.sleep(max(0.05, min(60.0, self._idle / 4)))
            for tag, link in list(self._links.items()):
                if link.idle() >= self._idle or not link.alive:
                    await self._let_go(tag)

    def _tell(self) -> None:
        if self._on_links is not None:
            self._on_links(len(self._links))


async def _ask(road: Road, message: bytes, headers: Headers) -> Envelope:
    try:
        async with asyncio.timeout(_START_SECONDS), aclosing(road.ask(message, headers)) as coming:
            async for raw in coming:
                one = peek(raw)
                if one.kind == "response":
                    return one
    except TimeoutError:
        words = f"the upstream did not answer server/discover within {_START_SECONDS:g} s"
        raise UpstreamLost(words) from None
    raise UpstreamLost("the upstream ended its answer without a response")


def _discovery(caller: Caller) -> bytes:
    asked = request(dump(f"mtg-discover-{secrets.token_hex(12)}"), "server/discover", None)
    return to_stateless(asked, STATELESS[0], caller.capabilities, caller.info, None)


def _version(initialize: Envelope) -> str:
    """Return the version that a client shall speak."""
    return negotiated(text_of(members(initialize.params).get("protocolVersion")))


def _caller(initialize: Envelope) -> Caller:
    params = members(initialize.params)
    capabilities = canonical(params.get("capabilities", b"{}")) or b"{}"
    info = params.get("clientInfo")
    return Caller(
        None,
        capabilities if capabilities[:1] == b"{" else b"{}",
        None if info is None else canonical(info),
    )
