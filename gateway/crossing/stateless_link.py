"""A session of the handshake era with an upstream that has none: a `Link` over stateless requests.

What a session would keep is kept here: who the client is, its log level, what it is subscribed to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.crossing.kept import (
    LISTENS_METHOD,
    SET_LEVEL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    About,
    SharedState,
    listened_for,
    listens,
)
from gateway.crossing.native import StatelessChannel
from gateway.crossing.port import Caller
from gateway.crossing.roads import Road
from gateway.crossing.subscription import Subscription
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, LIMIT_REACHED, UPSTREAM_UNAVAILABLE
from gateway.protocol.envelope import (
    Envelope,
    members,
    peek,
    refusal_response,
    response,
    text_of,
    value,
)
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.stateless import LOG_LEVELS
from gateway.upstream.ids import messages
from gateway.upstream.inbox import Loose

_log: Final = logging.getLogger("gateway.crossing")
_MAX_LOOSE: Final = 1000
_MAX_LOOSE_BYTES: Final = 4 * 1024 * 1024
_MAX_URIS: Final = 1000
# For how long changes are listened for on behalf of a client that has stopped to listen.
_GRACE: Final = 60.0
_HEARD_SECONDS: Final = 1.0
_INITIALIZED: Final = "notifications/initialized"
_CANCELLED: Final = "notifications/cancelled"
_NOTHING: Final = b"{}"
_ENDED: Final = "the session with the upstream was ended"


class StatelessLink:
    """A `Link` (see the port of the upstream room).

    `headers` are the client's of its last request: what is opened on its behalf takes them.
    """

    def __init__(
        self, tag: str, road: Road, caller: Caller, clock: Clock, crew: Crew, *, headers: Headers
    ) -> None:
        self._tag = tag
        self._clock = clock
        self._crew = crew
        # Tasks of the upstream's own are none of this client's era: they are waited for.
        self._channel = StatelessChannel(road, caller, clock, crew, drive=True)
        self._loose = Loose(tag, _MAX_LOOSE, _MAX_LOOSE_BYTES)
        self._changes = Subscription(road, self._channel.stamp, self._loose.put, clock, crew)
        self._beginning: asyncio.Task[None] | None = None
        self._grace: asyncio.Task[None] | None = None
        self._reading = 0
        self._last_use = clock.monotonic()
        self._idle = asyncio.Event()
        self._closed = False
        self._own: Mapping[str, Callable[[Envelope, Headers], Coroutine[Any, Any, None]]] = {
            "ping": self._ping,
            SET_LEVEL: self._set_level,
            SUBSCRIBE: self._subscribe,
            UNSUBSCRIBE: self._unsubscribe,
        }
        self._shared: SharedState | None = None
        self._elsewhere = False
        self._taken = asyncio.Event()
        self.headers = headers
        self.carried: Callable[[], bool] = lambda: True

    def __repr__(self) -> str:
        return f"<StatelessLink {self._tag} {'alive' if self.alive else 'ended'}, {self._channel!r}>"

    @property
    def tag(self) -> str:
        """The name of the link in the pool."""
        return self._tag

    @property
    def alive(self) -> bool:
        """Whether messages still pass."""
        return not self._closed and self.carried()

    def idle(self) -> float:
        """Return for how many seconds nothing has used the link."""
        busy = self._reading or self._channel.busy or self._loose.read
        return 0.0 if busy else self._clock.monotonic() - self._last_use

    async def settled(self) -> None:
        """Return when no exchange is read any more."""
        while self._reading and not self._closed:
            self._idle.clear()
            await self._idle.wait()

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last.

        What is about the session is answered here. Raises `UpstreamLost`, and `Refusal` for an id
        that is in flight already.
        """
        if not self.alive:
            raise UpstreamLost(f"{_ENDED} before the message was sent", sent=False)
        self._reading += 1
        try:
            await self._heard()
            one = peek(message)
            if one.method in self._own:
                yield await self._answer(one, headers)
                return
            async with aclosing(self._channel.exchange(message, headers)) as coming:
                async for raw in coming:
                    yield raw
        finally:
            self._reading -= 1
            self._last_use = self._clock.monotonic()
            if not self._reading:
                self._idle.set()

    async def send(self, message: bytes, headers: Headers) -> None:
        """Take an answer or a notification; the messages that come for a request go to the listener."""
        if not self.alive:
            raise UpstreamLost(f"{_ENDED} before the message was sent", sent=False)
        self._last_use = self._clock.monotonic()
        for one in messages(message)[0]:
            if one.kind == "request":
                self._crew.spawn(self._pass_through(one, headers), one.method)
            elif one.method == _INITIALIZED:
                self._hear()
                self._leave()
            else:
                await self._channel.send(one.raw, headers)

    def awaits(self, message: bytes) -> bool:
        """Tell whether a call waits for this answer, or is there to be cancelled."""
        return self._channel.awaits(peek(message))

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield what changes at the upstream; a newer listener ends the older one."""
        reader = self._loose.enter()
        try:
            if self._grace is not None:
                self._grace.cancel()
            self._hear()
            if self._shared is not None:
                self._elsewhere = False
                self._crew.spawn(self._say_listens(self._shared), "listens")
            while (raw := await self._loose.take(reader)) is not None:
                yield raw
        finally:
            self._last_use = self._clock.monotonic()
            self._loose.leave(reader)
            self._leave()

    def keep(self, raw: bytes) -> None:
        """Keep a message for the next listener."""
        self._loose.put(raw)

    async def close(self) -> None:
        """End the link: calls under way are cancelled, the listener ends."""
        if not self._closed:
            self._closed = True
            for task in (self._beginning, self._grace):
                if task is not None:
                    task.cancel()
            self._changes.end()
            self._channel.cancel_all(_ENDED)
            self._loose.end()
            self._idle.set()

    def share(self, shared: SharedState, about: About) -> None:
        """Take what the session is about from other replicas, and tell them what changes."""
        self._shared = shared
        if about.level in LOG_LEVELS:
            self._channel.caller = msgspec.structs.replace(self._channel.caller, log_level=about.level)
        self._changes.uris = about.uris

    async def heard(self, one: Envelope) -> None:
        """Take what was said to another replica, or what that says itself."""
        if one.method == LISTENS_METHOD:
            await self._hand_over(listened_for(one))
        elif one.method == SET_LEVEL:
            await self._set_level(one, self.headers)
        elif one.method in (SUBSCRIBE, UNSUBSCRIBE):
            await self._want_too(one)
        elif one.kind == "notification" and one.method != _CANCELLED and self._loose.read:
            self._loose.put(one.raw)

    async def _want_too(self, one: Envelope) -> None:
        """Listen to what was subscribed to elsewhere, where the client listens here."""
        uri, uris = _uri(one), self._changes.uris
        uris = uris | {uri} if one.method == SUBSCRIBE else uris - {uri}
        if not self._loose.read:
            self._changes.uris = uris
            return
        try:
            await self._changes.want(uris, self.headers)
        except GatewayError as lost:
            _log.info("link %s: the upstream cannot be listened to: %s", self._tag, lost)
            return
        if self._shared is not None:
            await self._shared.say(self._tag, listens(self._changes.uris))

    async def _say_listens(self, shared: SharedState) -> None:
        """Say that the client listens here, once the upstream is listened to: nothing is missed then."""
        if self._beginning is not None and not self._beginning.done():
            await asyncio.wait([self._beginning])
        if self._loose.read:
            await shared.say(self._tag, listens(self._changes.uris))

    async def _hand_over(self, uris: frozenset[str]) -> None:
        """Leave the client's stream to the replica that has it now, with what waits for it here.

        That may not listen for all yet that was subscribed to here: then it says so again.
        """
        self._loose.leave(self._loose.enter())
        self._elsewhere = True
        if self._changes.uris <= uris:
            self._changes.end()
            self._taken.set()
        for raw in self._loose.drain():
            if self._shared is not None:
                await self._shared.say(self._tag, raw)

    async def _pass_through(self, one: Envelope, headers: Headers) -> None:
        try:
            async with aclosing(self.exchange(one.raw, headers)) as coming:
                async for raw in coming:
                    self._loose.put(raw)
        except Refusal as refusal:
            self._loose.put(refusal_response(one.id, refusal))
        except UpstreamLost as lost:
            words = f"Upstream unavailable: {lost}"
            self._loose.put(refusal_response(one.id, Refusal(UPSTREAM_UNAVAILABLE, words)))

    def _hear(self) -> None:
        """Begin to listen for changes: those that a client causes before it listens are kept for it."""
        if not self._changes.open and (self._beginning is None or self._beginning.done()):
            self._beginning = self._crew.spawn(self._begin(), "listen")

    def _leave(self) -> None:
        """Listen no more after a while, unless somebody does."""
        if not self._loose.read and not self._closed:
            self._grace = self._crew.spawn(self._end_changes(), "grace")

    async def _heard(self) -> None:
        """Wait for a moment until the upstream hears us listen, so that what a call changes is told."""
        if self._beginning is not None and not self._beginning.done():
            await asyncio.wait([self._beginning], timeout=_HEARD_SECONDS)

    async def _begin(self) -> None:
        try:
            found = await self._changes.want(self._changes.uris, self.headers)
        except GatewayError as lost:
            _log.info("link %s: the upstream cannot be listened to: %s", self._tag, lost)
        else:
            if found.error is not None:
                _log.debug("link %s: the upstream has no subscriptions", self._tag)

    async def _end_changes(self) -> None:
        await self._clock.sleep(_GRACE)
        if not self._loose.read:
            self._changes.end()

    async def _answer(self, one: Envelope, headers: Headers) -> bytes:
        """Answer what is about the session."""
        try:
            await self._own[one.method](one, headers)
        except Refusal as refusal:
            return refusal_response(one.id, refusal)
        if self._shared is not None and one.method != "ping":
            self._taken.clear()
            await self._shared.changed(self._tag, one)
            if one.method != SET_LEVEL and self._elsewhere:
                await self._until_taken()
        return response(one.id, _NOTHING)

    async def _until_taken(self) -> None:
        """Wait for a moment until the replica where the client listens has subscribed too."""
        try:
            async with asyncio.timeout(_HEARD_SECONDS):
                await self._taken.wait()
        except TimeoutError:
            _log.info("link %s: nobody says that it listens", self._tag)

    async def _ping(self, one: Envelope, headers: Headers) -> None:
        """Say that the session is there: the stateless era has no ping."""

    async def _set_level(self, one: Envelope, headers: Headers) -> None:
        del headers
        level = text_of(members(one.params).get("level"))
        if level not in LOG_LEVELS:
            raise Refusal(INVALID_PARAMS, f'Invalid params: "level" must be one of {", ".join(LOG_LEVELS)}')
        self._channel.caller = msgspec.structs.replace(self._channel.caller, log_level=level)

    async def _subscribe(self, one: Envelope, headers: Headers) -> None:
        uri, uris = _uri(one), self._changes.uris
        if len(uris) >= _MAX_URIS:
            raise Refusal(LIMIT_REACHED, f"Limit reached: subscriptions ({_MAX_URIS} resources)")
        found = await self._changes.want(uris | {uri}, headers)
        if found.error is not None:
            code = value(members(found.error).get("code"))
            words = text_of(members(found.error).get("message"))
            raise Refusal(code if isinstance(code, int) else INTERNAL_ERROR, words or "Internal error")
        if uri not in found.uris:
            raise Refusal(INVALID_PARAMS, "Invalid params: the upstream sends no updates of this resource")

    async def _unsubscribe(self, one: Envelope, headers: Headers) -> None:
        uri, uris = _uri(one), self._changes.uris
        if uri in uris:
            await self._changes.want(uris - {uri}, headers)


def _uri(one: Envelope) -> str:
    uri = text_of(members(one.params).get("uri"))
    if uri is None:
        raise Refusal(INVALID_PARAMS, 'Invalid params: "uri" must be a string')
    return uri
