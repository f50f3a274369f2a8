"""A link that lives on another replica."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from gateway.far.asking import Asking
from gateway.far.letters import Kind, Sort, read_error
from gateway.far.seal import HeaderSeal
from gateway.protocol.codes import SESSION_NOT_FOUND
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.port import Link

_log: Final = logging.getLogger("gateway.far")
_HOPS: Final = 4

Again = Callable[[Headers], Awaitable[Link | None]]


class FarLink:
    """A `Link` (see the port of the upstream room) whose `owner` is another replica.

    Where the owner has it no more, and has done nothing, `again` finds out who has: that one is asked.
    """

    def __init__(
        self,
        place: tuple[str, str],
        owner: str,
        asking: Asking,
        seal: HeaderSeal | None,
        now: float,
        again: Again,
    ) -> None:
        self._upstream, self._tag = place
        self.owner = owner
        self._asking = asking
        self._seal = seal
        self._made = now
        self._again = again
        self._absent = False

    def __repr__(self) -> str:
        return f"<FarLink {self._tag} on {self.owner}, {'alive' if self.alive else 'ended'}>"

    @property
    def tag(self) -> str:
        """The name of the link in the pool."""
        return self._tag

    @property
    def alive(self) -> bool:
        """Whether messages still pass, as far as is known here."""
        return not self._absent and not self._asking.lost_since(self.owner, self._made)

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the messages that belong to it, its response last.

        Raises `UpstreamLost`: where it is not known whether the request has reached the upstream, too.
        """
        async with aclosing(self._over("call", message, headers)) as coming:
            async for raw in coming:
                yield raw

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response; raise `UpstreamLost` where it does not pass."""
        async with aclosing(self._over("send", message, headers)) as coming:
            async for _ in coming:
                pass

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield what belongs to no exchange; a newer listener, on whichever replica, ends the older one."""
        try:
            async with aclosing(self._over("listen", b"", [])) as coming:
                async for raw in coming:
                    yield raw
        except GatewayError as lost:
            _log.info("link %s is not listened to any more: %s", self._tag, lost)

    async def close(self) -> None:
        """End the link where it lives; what is in flight there ends first."""
        try:
            async with aclosing(self._lines("drop", b"", [])) as coming:
                async for _ in coming:
                    pass
        except UpstreamLost as lost:
            _log.info("link %s could not be ended: %s", self._tag, lost)
        self._absent = True

    async def _over(self, kind: Kind, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Ask the owner, then whoever has the link, while nothing has been done."""
        link: Link | None = self
        for _ in range(_HOPS):
            if not isinstance(link, FarLink):
                break
            async with aclosing(link.try_over(kind, message, headers)) as coming:
                async for raw in coming:
                    if raw is None:
                        break
                    yield raw
                else:
                    return
            link = await self._again(headers)
        async with aclosing(_over_own(link, kind, message, headers)) as own:
            async for raw in own:
                yield raw

    async def try_over(
        self, kind: Kind, message: bytes, headers: Headers
    ) -> AsyncGenerator[bytes | None, None]:
        """Ask the owner; yield `None` where it has no such link, or is gone, and has done nothing."""
        nothing = False
        try:
            async with aclosing(self._lines(kind, message, headers)) as coming:
                async for sort, content in coming:
                    if sort in ("message", "last"):
                        yield content
                    elif sort == "absent":
                        self._absent = nothing = True
                    elif sort != "end":
                        raise read_error(sort, content)
        except UpstreamLost as lost:
            nothing = not lost.sent and not self.alive
            if not nothing:
                raise
        if nothing:
            yield None

    def _lines(
        self, kind: Kind, message: bytes, headers: Headers
    ) -> AsyncGenerator[tuple[Sort, bytes], None]:
        sealed = b"" if self._seal is None else self._seal.seal(headers)
        return self._asking.lines(self.owner, kind, self._upstream, self._tag, message, sealed)


async def _over_own(
    link: Link | None, kind: Kind, message: bytes, headers: Headers
) -> AsyncGenerator[bytes, None]:
    """Do the same over a link that has come to live here."""
    if link is None:
        raise Refusal(SESSION_NOT_FOUND, "Session not found: initialize anew", status=404)
    if isinstance(link, FarLink):
        raise UpstreamLost("no replica has the upstream's process of this session", sent=False)
    if kind == "send":
        await link.send(message, headers)
        return
    async with aclosing(link.listen() if kind == "listen" else link.exchange(message, headers)) as coming:
        async for raw in coming:
            yield raw
