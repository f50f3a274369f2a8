"""The link behind a client that is on a pipe itself: its child, in whichever era that speaks.

A child that refuses to be initialized and answers `server/discover` is of the stateless era. The
client's session goes over it then, and no second child is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gateway.aio.spawn import Crew
from gateway.crossing.port import Crossing, Settling
from gateway.protocol.envelope import peek
from gateway.protocol.errors import Refusal
from gateway.protocol.headers import Headers
from gateway.upstream.ids import key

_NO_HEADERS: Final[Headers] = []


class PipeLink:
    """A `Link` (see the port of the upstream room) over `child`, from which all else is learned."""

    def __init__(self, child: Settling, crossing: Crossing, crew: Crew) -> None:
        self._child = child
        self._crossing = crossing
        self._crew = crew
        self._link = child
        self._initialize: bytes | None = None
        self._settled_era = asyncio.Event()
        self._settled_era.set()

    def __repr__(self) -> str:
        return f"<PipeLink {self._link!r}>"

    @property
    def tag(self) -> str:
        """The name of the link."""
        return self._child.tag

    @property
    def alive(self) -> bool:
        """Whether messages pass, or will."""
        return self._link.alive

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the messages that belong to it, its response last."""
        async with aclosing(self._link.exchange(message, headers)) as coming:
            async for raw in coming:
                yield raw

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a message; what comes while the era is being found out waits."""
        await self._settled_era.wait()
        one = peek(message)
        if one.kind == "request" and one.method == "initialize":
            self._initialize = message
        await self._link.send(message, headers)

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield what belongs to no exchange, until the child ends."""
        async with aclosing(self._child.listen()) as coming:
            async for raw in coming:
                yield await self._crossed(raw) if self._refuses(raw) else raw
                if self._link is not self._child:
                    break
        if self._link is self._child:
            return
        self._crew.spawn(self._end_with_child(), "child")
        async with aclosing(self._link.listen()) as coming:
            async for raw in coming:
                yield raw

    async def settled(self) -> None:
        """Return when nothing is in flight."""
        await self._link.settled()

    async def close(self) -> None:
        """End the session and the child."""
        if self._link is not self._child:
            await self._link.close()
        await self._child.close()

    def _refuses(self, raw: bytes) -> bool:
        """Tell whether a message is the child's refusal to be initialized."""
        if self._initialize is None:
            return False
        try:
            one = peek(raw)
        except Refusal:
            return False
        if one.kind != "response" or key(one.id) != key(peek(self._initialize).id):
            return False
        if one.error is None:
            self._initialize = None
        return one.error is not None

    async def _crossed(self, refused: bytes) -> bytes:
        """Return the answer to `initialize` of a session over the child, else its refusal."""
        initialize, self._initialize = self._initialize or b"", None
        self._settled_era.clear()
        try:
            found = await self._crossing.over(self._child, initialize, _NO_HEADERS)
        finally:
            self._settled_era.set()
        if found is None:
            return refused
        self._link, answer = found
        return answer

    async def _end_with_child(self) -> None:
        """Drop what the child says to nobody, and end the session when it ends."""
        async with aclosing(self._child.listen()) as coming:
            async for _ in coming:
                pass
        await self._link.close()
