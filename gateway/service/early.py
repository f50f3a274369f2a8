"""A call that is on its way and not a task, or not yet: what it says can be taken over by a task."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from gateway.aio.spawn import Crew
from gateway.protocol.errors import GatewayError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.tasks import call
from gateway.upstream.port import Channel, is_placing, place_of

_FAREWELL_SECONDS: Final = 5.0
_PLACES: Final = 128
Spawn = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]


class Early:
    """One upstream call. Whoever holds it reads it with `next`, and ends it with `let_go` or `cancel`.

    It goes under an id and a progress token of the gateway's own; `place` is that of the last message in
    the upstream's stream that a reader has had. `spawn` gives what must outlive a
    reader an owner; `ended` hears when nothing more is to come.
    """

    def __init__(
        self,
        message: bytes,
        channel: Channel,
        headers: Headers,
        spawn: Spawn,
        ended: Callable[[Early], None] = lambda _: None,
    ) -> None:
        self.ident = f"mtg-call.{secrets.token_hex(12)}"
        self.message, self.wants_progress = call.upstream_request(message, self.ident, own_token=True)
        self.channel = channel
        self.headers = headers
        self._spawn = spawn
        self._messages: AsyncGenerator[bytes, None] = channel.exchange(self.message, headers)
        self._coming: asyncio.Task[bytes | GatewayError | None] | None = None
        self._back: deque[call.Heard] = deque()
        self._over = False
        self._ended = ended
        self.place = ""
        self._before: dict[str, str] = {}
        if is_placing(channel):
            channel.on_place = self._placed

    def __repr__(self) -> str:
        return f"<Early {self.ident} {'over' if self._over else 'on its way'}>"

    async def next(self, seconds: float | None = None) -> call.Heard | None:
        """Return what the upstream says next; `None` when it said nothing for `seconds`.

        Raises `UpstreamLost`, also where the upstream ends without a response or the call was given up,
        and `Refusal` where the call met a bound.
        """
        if self._back:
            heard = self._back.popleft()
            self._placed(place_of(heard.message))
            return heard
        if seconds is None and self._coming is None:
            return self._heard(await self._read())
        if self._coming is None:
            self._coming = self._spawn(self._read_safely(), "read")
        coming = self._coming
        # A reader that gives up leaves the message for the next one.
        if not coming.done() and not await _ends(coming, seconds):
            return None
        if self._coming is coming:
            self._coming = None
        if coming.cancelled():
            raise UpstreamLost("the call was given up")
        found = coming.result()
        if isinstance(found, GatewayError):
            raise found
        return self._heard(found)

    def put_back(self, heard: call.Heard) -> None:
        """Let the next reader hear this first."""
        if not self._back:
            self.place = self._before.get(place_of(heard.message), self.place)
        self._back.append(heard)

    async def send(self, message: bytes) -> None:
        """Send a response or a notification to the upstream; raise `UpstreamLost`."""
        await self.channel.send(message, self.headers)

    async def messages(self) -> AsyncGenerator[call.Heard, None]:
        """Yield what is still to come, the response last."""
        while self._back or not self._over:
            heard = await self.next()
            if heard is not None:
                yield heard

    async def close(self) -> None:
        """Stop listening; the upstream is told nothing."""
        self._end()
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
        with suppress(RuntimeError):
            await self._messages.aclose()

    def cancel(self, reason: str) -> None:
        """Give the call up and tell the upstream, unless its response is in."""
        if not self._over:
            self._end()
            self._spawn(self._give_up(reason), "cancel")

    async def let_go(self, reason: str) -> None:
        """Clear up after the response, or give the call up as `cancel` does where it is not in."""
        if self._over:
            await self.close()
        else:
            self.cancel(reason)

    def _end(self) -> None:
        self._over = True
        self._ended(self)

    async def _give_up(self, reason: str) -> None:
        with suppress(UpstreamLost, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self.send(call.cancel_message(self.ident, reason))
        await self.close()

    async def _read(self) -> bytes | None:
        return await anext(self._messages, None)

    async def _read_safely(self) -> bytes | GatewayError | None:
        try:
            return await self._read()
        except GatewayError as wrong:
            return wrong

    def _heard(self, message: bytes | None) -> call.Heard:
        if message is None:
            self._end()
            raise UpstreamLost("it ended its answer without a response")
        heard = call.hear(message)
        self._placed(place_of(message))
        if heard.kind == "final":
            self._end()
        return heard

    def _placed(self, place: str) -> None:
        if not place:
            return
        self._before[place] = self.place
        if len(self._before) > _PLACES:
            del self._before[next(iter(self._before))]
        self.place = place


async def _ends(work: asyncio.Task[Any], seconds: float | None) -> bool:
    """Tell whether work ends within so many seconds; it goes on if not. Cheaper than `asyncio.wait`."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = None if seconds is None else loop.call_later(seconds, wake)
    work.add_done_callback(wake)
    try:
        await woken
    finally:
        work.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()
    return work.done()


class EarlyCalls:
    """All such calls of a replica, so that none outlives it unseen."""

    def __init__(self) -> None:
        self._crew = Crew("early calls")
        self._calls = set[Early]()
        self._none = asyncio.Event()
        self._none.set()

    def __repr__(self) -> str:
        return f"<EarlyCalls {len(self._calls)}>"

    def begin(self, message: bytes, channel: Channel, headers: Headers) -> Early:
        """Send a request."""
        made = Early(message, channel, headers, self._crew.spawn, self._ended)
        self._calls.add(made)
        self._none.clear()
        return made

    def _ended(self, one: Early) -> None:
        self._calls.discard(one)
        if not self._calls:
            self._none.set()

    async def drain(self, seconds: float) -> bool:
        """Wait up to `seconds` for what is on its way; tell whether all of it is answered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none.wait()
        return self._none.is_set()

    async def close(self) -> None:
        """Give up what is on its way; each upstream is told."""
        for one in tuple(self._calls):
            one.cancel("the gateway is stopping")
        await self._crew.drain(_FAREWELL_SECONDS)
        await self._crew.close()
