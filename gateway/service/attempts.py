"""The upstream's side of a running task: its request is sent once, again, or taken up where it was left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from gateway.protocol.envelope import dump
from gateway.protocol.errors import UpstreamLost
from gateway.service.early import Early
from gateway.service.gone import TaskGone
from gateway.service.hand import Hand
from gateway.service.order import Order, Taken, new_ident
from gateway.tasks import call
from gateway.upstream.port import Channel, Resumable, is_placing

_FAREWELL_SECONDS: Final = 5.0
_SEND_SECONDS: Final = 30.0


async def _nowhere() -> None:
    """Return no channel: the call is made but once."""


class Attempts:
    """Makes the call of an order, and speaks to its upstream while the task is surely this replica's.

    `again` says that it may be made more than once; if not, nothing is kept of the request. `sent` says
    that the upstream may have heard of the call.
    """

    def __init__(self, order: Order, hand: Hand) -> None:
        early, taken = order.early, order.taken
        self._order = order
        self._hand = hand
        self.again = order.policy.on_loss == "retry" and order.may_repeat
        self.sent = early is not None or taken is not None
        if early is not None:
            self._ident = dump(early.ident)
            self._message, self.wants_progress = early.message, early.wants_progress
            hand.places.note(early.place)
            early.message = b""
        elif taken is not None:
            self._ident, self._message = taken.ident, order.message
            self.wants_progress = taken.wants_progress
            hand.places.go_on(taken.place)
        else:
            self._ident = dump(order.ident)
            self._message, self.wants_progress = call.upstream_request(
                order.message, order.ident, own_token=order.own_token
            )
        order.message = b""
        if not self.again:
            # The way back holds the client's whole request, and a task may live for hours.
            order.reach = _nowhere
            self._message = b"" if early is not None else self._message
        if order.recourse_due:
            hand.places.recourse = self._recourse
        self._hear_places(order.channel)

    def __repr__(self) -> str:
        return f"<Attempts of {self._hand!r}>"

    async def make(self) -> AsyncGenerator[call.Heard, None]:
        """Send the request and yield what is said, the response last.

        Raises `UpstreamLost`, `Refusal`, and `TaskGone` where another replica has come to have the task.
        """
        if not self._hand.tenure.holds:
            await self._hand.tenure.sure()
        self.sent = True
        if self._order.early is not None:
            async with aclosing(self._read_early(self._order.early)) as coming:
                async for heard in coming:
                    yield heard
            return
        channel, message = self._order.channel, self._message
        if not self.again:
            self._message = b""
        exchange = channel.exchange(message, self._order.headers)
        del message
        async with aclosing(exchange) as messages:
            async for raw in messages:
                yield call.hear(raw)

    async def resume(self, taken: Taken) -> AsyncGenerator[call.Heard, None]:
        """Yield what is said in a call that another replica began, from where that had come."""
        channel = self._order.channel
        if not taken.place or not isinstance(channel, Resumable):
            raise UpstreamLost("its stream had no numbered events")
        resumed = channel.resume(taken.ident, taken.place, self._order.headers)
        async with aclosing(resumed) as messages:
            async for raw in messages:
                yield call.hear(raw)

    async def renew(self) -> None:
        """Make ready for another attempt, under an id of its own (JSON-RPC: none is used twice)."""
        order = self._order
        order.channel = await order.reach() or order.channel
        self._hear_places(order.channel)
        self._ident = dump(new_ident())
        self._message = call.readdressed(self._message, self._ident)
        await self._hand.places.restart(None if order.recourse is None else self._recourse)

    async def send(self, message: bytes) -> None:
        """Send a response or a notification; raise `UpstreamLost`."""
        if not self._hand.tenure.holds:
            try:
                await self._hand.tenure.sure()
            except TaskGone:
                raise UpstreamLost("another replica has the task", sent=False) from None
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._order.channel.send(message, self._order.headers)
        except TimeoutError:
            words = f"the upstream did not take a message within {_SEND_SECONDS:g} s"
            raise UpstreamLost(words) from None

    async def withdraw(self, reason: str) -> None:
        """Tell the upstream that nobody waits for the answer any more (2025-11-25 "Cancellation").

        Where it may be the call of another replica by now, nothing is told.
        """
        if not self._hand.tenure.holds:
            return
        with suppress(UpstreamLost, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self.send(call.cancel_message(self._ident, reason))

    async def _read_early(self, early: Early) -> AsyncGenerator[call.Heard, None]:
        """Read on what another began to read; a second attempt is a call of its own."""
        self._order.early = None
        try:
            async with aclosing(early.messages()) as coming:
                async for heard in coming:
                    yield heard
        finally:
            await early.close()

    def _hear_places(self, channel: Channel) -> None:
        if is_placing(channel):
            channel.on_place = self._hand.places.note

    def _recourse(self) -> bytes:
        return b"" if self._order.recourse is None else self._order.recourse(self._ident)
