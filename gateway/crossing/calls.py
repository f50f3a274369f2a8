"""A channel for one call over the sessions that are held for its caller."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from gateway.crossing.held import Forgotten, HeldSession
from gateway.crossing.keys import may_be_asked
from gateway.crossing.pool import HeldSessions
from gateway.crossing.port import Caller, Ground
from gateway.crossing.tuning import tune
from gateway.protocol.envelope import Envelope, members, peek
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import set_member
from gateway.upstream.ids import key

_CANCELLED = "notifications/cancelled"


class HeldChannel:
    """A `Channel` (see the upstream port). All its exchanges go to one session, while that lives.

    Ids are replaced on the way: a session is shared by clients that count from one each.
    """

    def __init__(self, pool: HeldSessions, caller: Caller) -> None:
        self._pool = pool
        self._caller = caller
        self._session: HeldSession | None = None
        self._idents: dict[bytes, bytes] = {}
        self._ident: bytes | None = None
        self.on_place: Callable[[str], None] | None = None

    def __repr__(self) -> str:
        return f"<HeldChannel {self._session!r}>"

    @property
    def ground(self) -> Ground | None:
        """Where another replica finds its last exchange, `None` where nobody else can take it up."""
        if self._session is None or self._ident is None:
            return None
        return self._session.ground(self._ident)

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last.

        Where the session is gone and the upstream ran nothing, the request is sent once more in a new
        one. Raises `UpstreamLost`, and `Refusal` where there are too many sessions.
        """
        request = peek(message)
        for again in (True, False):
            session = self._session = await self._pool.take(self._caller, headers, self, self._session)
            try:
                async with aclosing(self._once(session, request, headers, again)) as coming:
                    async for one in coming:
                        if one is None:
                            break
                        yield _named(one, request.id)
                    else:
                        return
            finally:
                self._pool.give_back(session)

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response to the session of the call; raise `UpstreamLost`.

        Without a session there is nothing in the upstream that it could be about.
        """
        if self._session is None:
            return
        if self._session.lost:
            raise UpstreamLost("the session with the upstream has ended", sent=False)
        renamed = self._renamed(message)
        if renamed is not None:
            await self._session.send(renamed, headers)

    async def close(self) -> None:
        """Leave the session to other calls."""

    async def _once(
        self, session: HeldSession, request: Envelope, headers: Headers, again: bool
    ) -> AsyncGenerator[Envelope | None, None]:
        """Yield what an exchange yields; `None` where the request can be sent `again` elsewhere."""
        caller = self._caller
        asks = may_be_asked(caller) or caller.log_level is not None
        ident, known = session.next_ident(), key(request.id) or b""
        self._idents[known] = self._ident = ident
        began = False
        try:
            if caller.log_level is not None:
                await tune(session, caller.log_level, headers)
            coming = session.exchange(
                request, ident, headers, level=caller.log_level, asks=asks, on_place=self._placed
            )
            async with aclosing(coming):
                async for one in coming:
                    began = True
                    yield one
        except Forgotten as forgotten:
            yield None if again else forgotten.answer
        except UpstreamLost as lost:
            if began or not again or not session.carrier.unrun(lost):
                raise
            yield None
        else:
            # One that was closed early is kept: it may be cancelled yet.
            self._idents.pop(known, None)

    def _placed(self, place: str) -> None:
        if self.on_place is not None:
            self.on_place(place)

    def _renamed(self, message: bytes) -> bytes | None:
        """Return a cancellation with the id that the upstream knows the request by.

        `None` for one of a request that is over: its id would mean another.
        """
        one = peek(message)
        if one.method != _CANCELLED:
            return message
        ident = members(one.params).get("requestId")
        known = None if ident is None else self._idents.get(key(bytes(ident)) or b"")
        return None if known is None else set_member(message, ("params", "requestId"), known)


def _named(one: Envelope, ident: bytes | None) -> bytes:
    """Return a message as the caller of a request may see it."""
    if one.kind != "response" or ident is None:
        return one.raw
    return set_member(one.raw, ("id",), ident)
