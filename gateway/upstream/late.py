"""A child that is started with the first message for it: a client may turn out not to need it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from gateway.protocol.envelope import peek
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.link import MessageLink


class LateLink:
    """A `Link` (see the port) that `start` makes when it is first used."""

    def __init__(self, start: Callable[[], Awaitable[MessageLink]]) -> None:
        self._start = start
        self._link: MessageLink | None = None
        self._lost: UpstreamLost | None = None
        self._closed = False
        self._starting = asyncio.Lock()
        self._started = asyncio.Event()

    def __repr__(self) -> str:
        return f"<LateLink {self._link!r}>"

    @property
    def tag(self) -> str:
        """The name of the link."""
        return "pipe"

    @property
    def alive(self) -> bool:
        """Whether messages pass, or will."""
        return self._link is None or self._link.alive

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the messages that belong to it, its response last."""
        link = await self._get()
        async with aclosing(link.exchange(message, headers)) as messages:
            async for one in messages:
                yield one

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a message; only a request is worth a child, which could know nothing of anything else."""
        if self._link is None and peek(message).kind != "request":
            return
        link = await self._get()
        await link.send(message, headers)

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield what belongs to no exchange, from when there is a child until it ends.

        Raises `UpstreamLost` where the child cannot be started.
        """
        await self._started.wait()
        if self._closed:
            return
        link = await self._get()
        async with aclosing(link.listen()) as messages:
            async for one in messages:
                yield one

    async def settled(self) -> None:
        """Return when nothing is in flight."""
        if self._link is not None:
            await self._link.settled()

    async def close(self) -> None:
        """End the child where there is one, and the wait for one."""
        self._closed = True
        self._started.set()
        if self._link is not None:
            await self._link.close()

    async def _get(self) -> MessageLink:
        async with self._starting:
            if self._closed:
                raise UpstreamLost("the gateway is stopping", sent=False)
            if self._lost is not None:
                raise self._lost
            if self._link is None:
                try:
                    self._link = await self._start()
                except UpstreamLost as lost:
                    self._lost = lost
                    raise
                finally:
                    self._started.set()
            return self._link
