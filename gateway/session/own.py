"""Tasks of an upstream's own: which of its tools it runs as tasks, in the sessions that clients have."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers, to_upstream
from gateway.session.visit import Visit, find_channel
from gateway.upstream.port import Channel

_log: Final = logging.getLogger("gateway.session")
_FRESH_SECONDS: Final = 60.0
_BOOKS: Final = 1000
AskTools = Callable[[Channel, Headers], Awaitable[Mapping[str, str]]]
Drive = Callable[[Channel], Channel]


class OwnTasks:
    """Knows, for each session of an upstream with tasks of its own, what that says of its tools.

    `ask` fetches the tools of a channel with their `taskSupport`; `drive` makes a channel that calls
    a tool as a task and yields its plain result.
    """

    def __init__(self, clock: Clock, ask: AskTools, drive: Drive) -> None:
        self._clock = clock
        self._ask = ask
        self._drive = drive
        self._books: dict[str, tuple[float, Mapping[str, str]]] = {}

    def __repr__(self) -> str:
        return f"<OwnTasks of {len(self._books)} sessions>"

    async def support(self, visit: Visit) -> str:
        """Return what the upstream itself says of the tool a visit calls; `forbidden` without own tasks."""
        tool, session = visit.tool, visit.session
        if tool is None or session is None or not session.own_tasks or session.crossed:
            return "forbidden"
        now = self._clock.monotonic()
        made, book = self._books.get(session.tag, (0.0, {}))
        if tool not in book or now - made > _FRESH_SECONDS:
            book = await self._fetch(visit)
            self._books.pop(session.tag, None)
            self._books[session.tag] = (now, book)
            if len(self._books) > _BOOKS:
                del self._books[next(iter(self._books))]
        return book.get(tool, "forbidden")

    async def channel(self, visit: Visit) -> Channel | None:
        """Return the channel for a call: one that drives the upstream's own task where it must be one."""
        channel = await find_channel(visit)
        if channel is None or await self.support(visit) != "required":
            return channel
        return self._drive(channel)

    async def _fetch(self, visit: Visit) -> Mapping[str, str]:
        channel = await find_channel(visit)
        if channel is None:
            return {}
        try:
            return await self._ask(channel, to_upstream(visit.inbound.headers))
        except UpstreamLost as lost:
            _log.info("the upstream's tools could not be listed: %s", lost.tell())
            return {}
