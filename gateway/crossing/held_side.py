"""A handshake-era upstream as the crossing offers it: everything goes through held sessions."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.crossing.calls import HeldChannel
from gateway.crossing.changes import TOOLS_CHANGED
from gateway.crossing.driving import DrivingChannel
from gateway.crossing.handshake import Handshakes
from gateway.crossing.hearsay import WATCHES_METHOD, Hearsay
from gateway.crossing.pool import Bounds, HeldSessions
from gateway.crossing.port import Caller, Wanted
from gateway.crossing.tools import FORBIDDEN, FRESH, Tool, ToolList, tools_over
from gateway.crossing.watching import Watching
from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import GatewayError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.port import Channel

_log = logging.getLogger("gateway.crossing")


class HeldSide:
    """What the crossing asks of an upstream, where that speaks the handshake era."""

    def __init__(
        self,
        handshakes: Handshakes,
        clock: Clock,
        crew: Crew,
        bounds: Bounds,
        *,
        on_sessions: Callable[[int], None],
        hearsay: Hearsay | None = None,
    ) -> None:
        self._clock = clock
        self._crew = crew
        self._tools = ToolList(clock)
        self._unlisted_until = 0.0
        self._pool = HeldSessions(
            handshakes,
            clock,
            bounds,
            on_sessions=on_sessions,
            on_change=self._changed,
            watched=None if hearsay is None else hearsay.watched,
        )
        self._hearsay = hearsay
        self._watching = Watching(self._pool, clock, hearsay)
        if hearsay is not None:
            hearsay.on_gap = self._watching.tell_all

    def __repr__(self) -> str:
        return f"<HeldSide {self._pool!r}>"

    async def opened(self, caller: Caller, headers: Headers) -> bytes:
        """Return the raw result of `initialize` in a session of the caller."""
        return (await self._pool.shared(caller, headers)).result

    def channel(self, caller: Caller, *, drive: bool) -> Channel:
        """Return a channel for one call."""
        plain = HeldChannel(self._pool, caller)
        return DrivingChannel(plain, self._clock, self._crew) if drive else plain

    def listen(self, caller: Caller, wanted: Wanted, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield an empty message, then notifications of changes."""
        return self._watching.listen(caller, wanted, headers)

    async def tool_support(self, caller: Caller, tool: str, headers: Headers) -> str:
        """Return what the upstream's own list says of a tool."""
        if not (await self._pool.shared(caller, headers)).runs_tasks:
            return FORBIDDEN
        try:
            return (await self._tool(caller, tool, headers)).support
        except GatewayError as wrong:
            _log.info("the tools of an upstream are not known: %s", wrong)
            return FORBIDDEN

    async def tool_schema(self, caller: Caller, tool: str, headers: Headers) -> bytes | None:
        """Return a tool's raw input schema where it mirrors arguments in headers, as far as is known."""
        found = self._tools.fresh(tool)
        if found is not None:
            return found.schema
        if self._clock.monotonic() < self._unlisted_until:
            return None
        try:
            return (await self._tool(caller, tool, headers)).schema
        except GatewayError as wrong:
            _log.info("the tools of an upstream are not known: %s", wrong)
            self._unlisted_until = self._clock.monotonic() + FRESH
            return None

    def hear(self, name: str, message: bytes) -> None:
        """Take what another replica says of sessions of a name; nothing happens for any other name."""
        hearsay = self._hearsay
        if hearsay is None or not hearsay.owns(name):
            return
        one, key = peek(message), hearsay.key_of(name)
        if one.method == TOOLS_CHANGED:
            self._tools.forget()
        if key is None:
            return
        if one.method == WATCHES_METHOD:
            self._pool.hear(key)
        else:
            self._watching.tell(key, one)

    async def close(self) -> None:
        """End all sessions."""
        if self._hearsay is not None:
            await self._hearsay.close()
        await self._pool.close()

    async def _tool(self, caller: Caller, tool: str, headers: Headers) -> Tool:
        async def fetch() -> dict[str, Tool]:
            if self._clock.monotonic() < self._unlisted_until:
                raise UpstreamLost("the upstream did not list its tools a moment ago")
            return await tools_over(HeldChannel(self._pool, caller), headers)

        return await self._tools.of(tool, self._pool.key(caller, headers), fetch)

    def _changed(self, key: bytes, one: Envelope) -> None:
        if one.method == TOOLS_CHANGED:
            self._tools.forget()
        self._watching.tell(key, one)
        if self._hearsay is not None:
            self._hearsay.pass_on(key, one)
