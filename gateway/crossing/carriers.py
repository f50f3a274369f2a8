"""What carries a held session: an HTTP session id, or a link."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final, Protocol

import msgspec

from gateway.aio.clock import Clock
from gateway.crossing.port import Caller
from gateway.crossing.roads import LinkRoad
from gateway.crossing.standing import Standing
from gateway.protocol.envelope import Envelope, members, text_of
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import SESSION, Headers
from gateway.upstream.channel import UNKNOWN_MEANWHILE, UNKNOWN_SESSION, HttpChannel
from gateway.upstream.port import Channel, HttpUpstream, Link, LinkUpstream

# Servers on the official TypeScript package answer 400 in place of 404 where they know no session.
_NO_SESSION: Final = re.compile(r"\bsession|not initialized", re.IGNORECASE)
_END_SECONDS: Final = 10.0


class Carrier(Protocol):
    """One session with the upstream, as far as its bytes go."""

    @property
    def exclusive(self) -> bool:
        """Whether it serves one call at a time: what comes cannot be told apart between calls."""
        ...

    @property
    def duplex(self) -> bool:
        """Whether what comes beside all calls must be heard from the start."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it can be used, as far as is known."""
        ...

    def channel(self, headers: Headers) -> Channel:
        """Return the way for one exchange or message."""
        ...

    def forgot(self, lost: UpstreamLost) -> bool:
        """Tell whether a loss means that the session is gone."""
        ...

    def refused(self, channel: Channel, answer: Envelope) -> bool:
        """Tell whether an error response says that the session is gone, and nothing was run."""
        ...

    def unrun(self, lost: UpstreamLost) -> bool:
        """Tell whether the upstream surely did not run the request that was lost."""
        ...

    def hear(self) -> AsyncGenerator[bytes, None]:
        """Yield an empty message when what comes beside all calls is heard, then that.

        Ends where the upstream says nothing beside calls; raises `UpstreamLost` at the session's end.
        """
        ...

    async def end(self) -> None:
        """End the session."""
        ...


class Opened(msgspec.Struct, frozen=True):
    """A session that is ready: what carries it, the raw result of `initialize`, the version."""

    carrier: Carrier
    result: bytes
    version: str


class Opener(Protocol):
    """Opens sessions with one upstream."""

    async def open(self, caller: Caller, headers: Headers) -> Opened:
        """Open a session; raise `UpstreamLost`, or `Refusal` where there are as many as there may be."""
        ...


class HttpCarrier:
    """A session of Streamable HTTP; `headers` are the caller's, with the negotiated version."""

    def __init__(self, http: HttpUpstream, session_id: str | None, headers: Headers, clock: Clock) -> None:
        self._http = http
        self._session_id = session_id
        self._headers = headers
        self._clock = clock

    @property
    def session_id(self) -> str | None:
        """The upstream's session id."""
        return self._session_id

    def __repr__(self) -> str:
        return f"<HttpCarrier {'with' if self._session_id else 'without'} session>"

    @property
    def exclusive(self) -> bool:
        """Never: each call has a stream of its own."""
        return False

    @property
    def duplex(self) -> bool:
        """Never: that is a stream of its own."""
        return False

    @property
    def alive(self) -> bool:
        """Always: only a request can tell."""
        return True

    def channel(self, headers: Headers) -> Channel:
        """Return a channel of the session."""
        return self._http.channel(self._session_id, headers)

    def forgot(self, lost: UpstreamLost) -> bool:
        """Tell whether the upstream said 404 to a session id (2025-11-25 "Session Management")."""
        return lost.status == 404 and str(lost) in (UNKNOWN_SESSION, UNKNOWN_MEANWHILE)

    def refused(self, channel: Channel, answer: Envelope) -> bool:
        """Tell whether the upstream said 400 and that it knows no such session."""
        if self._session_id is None or answer.error is None or not isinstance(channel, HttpChannel):
            return False
        words = text_of(members(answer.error).get("message")) or ""
        return channel.status == 400 and _NO_SESSION.search(words) is not None

    def unrun(self, lost: UpstreamLost) -> bool:
        """Tell whether the request was refused for its session, or never left: not its stream (I3)."""
        return lost.status == 404 and str(lost) == UNKNOWN_SESSION

    async def hear(self) -> AsyncGenerator[bytes, None]:
        """Yield what the GET stream brings."""
        headers = [pair for pair in self._headers if pair[0].lower() not in ("accept", "content-type")]
        if self._session_id is not None:
            headers.append((SESSION, self._session_id))
        async with aclosing(Standing(self._http, headers, self._clock).read()) as coming:
            async for raw in coming:
                yield raw

    async def end(self) -> None:
        """Send DELETE; what the upstream says to it does not matter."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._http.channel(self._session_id, self._headers).close()


class LinkCarrier:
    """A link of the upstream's pool. With `statelessly` its requests can be told apart."""

    def __init__(self, links: LinkUpstream, link: Link, *, statelessly: bool = False) -> None:
        self._links = links
        self._link = link
        self._exclusive = not statelessly
        self.road = LinkRoad(link)

    def __repr__(self) -> str:
        return f"<LinkCarrier {self._link!r}>"

    @property
    def exclusive(self) -> bool:
        """In the handshake era: server requests and log lines name no call."""
        return self._exclusive

    @property
    def duplex(self) -> bool:
        """Always."""
        return True

    @property
    def alive(self) -> bool:
        """Whether messages still pass."""
        return self._link.alive

    def channel(self, headers: Headers) -> Channel:
        """Return the link."""
        del headers
        return self._link

    def forgot(self, lost: UpstreamLost) -> bool:
        """Tell whether the link is dead."""
        del lost
        return not self._link.alive

    def refused(self, channel: Channel, answer: Envelope) -> bool:
        """Never: a link is its session."""
        del channel, answer
        return False

    def unrun(self, lost: UpstreamLost) -> bool:
        """Tell whether the request never left, for the link was dead."""
        return not lost.sent and not self._link.alive

    async def hear(self) -> AsyncGenerator[bytes, None]:
        """Yield what belongs to no call."""
        yield b""
        async with aclosing(self._link.listen()) as coming:
            async for raw in coming:
                yield raw
        raise UpstreamLost("the session with the upstream has ended")

    async def end(self) -> None:
        """End the link."""
        await self._links.drop(self._link.tag)
