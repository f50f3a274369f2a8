"""The links of one upstream by name: opened, found, revived, dropped, and ended when idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.codes import LIMIT_REACHED
from gateway.protocol.envelope import dump, peek
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import set_member
from gateway.upstream.link import MessageLink

_log = logging.getLogger("gateway.upstream")

_END_MAX: Final = 60.0
_FULL_SECONDS: Final = 30
_INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

Starter = Callable[[str, Headers], Awaitable[MessageLink]]


class LinkPool:
    """A `LinkUpstream` (see the port). `start` makes a link that has not been initialized.

    `max_links` bounds links that are open or being opened; one that was not used for `idle` seconds
    ends; `start_timeout` (seconds) bounds the wait for the answer to `initialize`. `on_links` hears
    the number of links after each change.
    """

    def __init__(
        self,
        start: Starter,
        clock: Clock,
        *,
        max_links: int,
        idle: float,
        start_timeout: float,
        on_links: Callable[[int], None] | None = None,
    ) -> None:
        self._start = start
        self._clock = clock
        self._max = max_links
        self._idle = idle
        self._timeout = start_timeout
        self._on_links = on_links
        self._links: dict[str, MessageLink] = {}
        self._opening: set[object] = set()
        self._reviving: dict[str, asyncio.Task[MessageLink | GatewayError]] = {}
        self._revived = 0
        self._crew = Crew("links")
        self._endings = Crew("ending links")
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<LinkPool {len(self._links)} links of {self._max}, {len(self._opening)} opening>"

    def __len__(self) -> int:
        return len(self._links)

    async def open(self, tag: str, initialize: bytes, headers: Headers) -> tuple[MessageLink, bytes]:
        """Start a link and send `initialize`; return the link and the answer.

        Where the answer is an error the link has ended already. Raises `Refusal` when there are as
        many links as there may be, `UpstreamLost` where the upstream does not get ready in time.
        """
        await self.drop(tag)
        link, answer = await self._begin(tag, initialize, headers)
        if peek(answer).error is not None:
            await link.close()
        return link, answer

    async def find(self, tag: str, initialize: bytes | None, headers: Headers) -> MessageLink | None:
        """Return a living link, or revive it; `None` where there is nothing to revive it with.

        Raises what `open` raises, and `UpstreamLost` where the upstream refuses the handshake.
        """
        link = self._links.get(tag)
        if link is not None and link.alive:
            return link
        if initialize is None:
            return None
        task = self._reviving.get(tag)
        if task is None:
            task = self._crew.spawn(self._revive(tag, initialize, headers), "revive")
            self._reviving[tag] = task
            task.add_done_callback(lambda _: self._reviving.pop(tag, None))
        outcome = await asyncio.shield(task)
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome

    async def drop(self, tag: str) -> None:
        """End a link, whether it lives or not."""
        link = self._links.pop(tag, None)
        if link is not None:
            self._tell()
            await self._end(link)

    async def close(self) -> None:
        """End all links."""
        self._closed = True
        links = list(self._links.values())
        self._links.clear()
        await asyncio.gather(*(self._end(link) for link in links))
        if links:
            self._tell()
        await self._crew.close()
        # Cancelling these would leave processes that are only half ended.
        await self._endings.drain(_END_MAX)
        await self._endings.close()

    async def _begin(self, tag: str, initialize: bytes, headers: Headers) -> tuple[MessageLink, bytes]:
        if self._closed:
            raise UpstreamLost("the gateway is stopping", sent=False)
        if len(self._links) + len(self._opening) >= self._max:
            words = f"Limit reached: links ({self._max} sessions with this upstream are open)"
            data = {"limit": "links", "max": self._max, "retryAfter": _FULL_SECONDS}
            raise Refusal(LIMIT_REACHED, words, data, status=503, retry_after=_FULL_SECONDS)
        place = object()
        self._opening.add(place)
        try:
            link = await self._start(tag, headers)
            try:
                answer = await self._handshake(link, initialize, headers)
            except BaseException:
                # Also when cancelled: the process must not stay.
                await self._end(link)
                raise
        finally:
            self._opening.discard(place)
        if link.alive:
            self._links[tag] = link
            link.on_end = lambda: self._ended(link)
            self._sweep()
        self._tell()
        return link, answer

    async def _handshake(self, link: MessageLink, initialize: bytes, headers: Headers) -> bytes:
        answer = b""
        try:
            async with (
                asyncio.timeout(self._timeout),
                aclosing(link.exchange(initialize, headers)) as coming,
            ):
                async for raw in coming:
                    if answer:
                        link.keep(answer)
                    answer = raw
        except TimeoutError:
            words = f"the upstream did not answer initialize within {self._timeout:g} s"
            raise UpstreamLost(words) from None
        return answer

    async def _revive(self, tag: str, initialize: bytes, headers: Headers) -> MessageLink | GatewayError:
        self._revived += 1
        ident = dump(f"gateway-revive-{self._revived}")
        try:
            link, answer = await self._begin(tag, set_member(initialize, ("id",), ident), headers)
            if peek(answer).error is not None:
                await link.close()
                return UpstreamLost("the upstream refused to be initialized again")
            if peek(initialize).method == "initialize":
                await link.send(_INITIALIZED, headers)
        except GatewayError as wrong:
            return wrong
        _log.info("link %s was revived", tag)
        return link

    def _ended(self, link: MessageLink) -> None:
        if self._links.get(link.tag) is link:
            del self._links[link.tag]
            self._tell()
        self._endings.spawn(link.close(), "end")

    async def _end(self, link: MessageLink) -> None:
        """End a link in a task of the pool: a caller that is cancelled must not leave it half ended."""
        link.on_end = None
        await asyncio.shield(self._endings.spawn(link.close(), "end"))

    def _sweep(self) -> None:
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = self._crew.spawn(self._end_idle(), "sweeper")

    async def _end_idle(self) -> None:
        while self._links:
            await self._clock.sleep(max(0.05, min(60.0, self._idle / 4)))
            for tag, link in list(self._links.items()):
                if link.idle() >= self._idle:
                    _log.info("link %s was idle for %g s and ends", tag, self._idle)
                    await self.drop(tag)

    def _tell(self) -> None:
        if self._on_links is not None:
            self._on_links(len(self._links))
