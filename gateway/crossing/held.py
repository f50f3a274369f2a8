"""One session with a handshake-era upstream, held for the calls of one stateless caller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.crossing.call import Call
from gateway.crossing.carriers import HttpCarrier, Opened
from gateway.crossing.changes import Listener, is_change
from gateway.crossing.keys import handshake_headers
from gateway.crossing.port import Ground
from gateway.crossing.tools import runs_tasks
from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    peek,
    response,
)
from gateway.protocol.envelope import request as build_request
from gateway.protocol.errors import GatewayError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import set_member
from gateway.upstream.channel import UNKNOWN_SESSION
from gateway.upstream.ids import key, messages
from gateway.upstream.port import is_placing, place_of

_log = logging.getLogger("gateway.crossing")

_PING: Final = "ping"
_HEARD_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 10.0
_NOBODY: Final = dump({"code": INTERNAL_ERROR, "message": "No call is in flight that could be asked"})


class Forgotten(UpstreamLost):
    """The upstream answered a call with an error response, `answer`, that says that it knows no session."""

    def __init__(self, answer: Envelope) -> None:
        super().__init__(UNKNOWN_SESSION, status=404)
        self.answer = answer


class HeldSession:
    """Sends calls, tells whose what comes is, answers what nobody else can.

    `crew` owns what runs beside calls; `on_lost` hears that the upstream ended or forgot the session,
    `on_change` each notification of a change.
    """

    def __init__(
        self,
        opened: Opened,
        headers: Headers,
        crew: Crew,
        clock: Clock,
        *,
        on_lost: Callable[[HeldSession], None],
        on_change: Callable[[Envelope], None],
    ) -> None:
        self.carrier = opened.carrier
        self.result = opened.result
        self.version = opened.version
        self.capabilities = members(members(opened.result).get("capabilities"))
        self.runs_tasks = runs_tasks(opened.result)
        self.holder: object | None = None
        self.uses = 0
        self.lost = False
        self.listeners: set[Listener] = set()
        self.setting = asyncio.Lock()
        self.level: str | None = None
        self.watched: dict[str, int] = {}
        self.subscribed: set[str] = set()
        self._headers = handshake_headers(headers, opened.version)
        self._crew = crew
        self._clock = clock
        self._on_lost = on_lost
        self._on_change = on_change
        self._idents = count(1)
        self._calls: dict[bytes, Call] = {}
        self._asked: dict[bytes, Call] = {}
        self._last_use = clock.monotonic()
        self._hearing: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()

    def __repr__(self) -> str:
        return f"<HeldSession {self.carrier!r}, {len(self._calls)} calls, {len(self.listeners)} listeners>"

    @property
    def usable(self) -> bool:
        """Whether calls can be sent, as far as is known."""
        return not self.lost and self.carrier.alive

    @property
    def busy(self) -> bool:
        """Whether somebody uses it or listens to it."""
        return bool(self.uses or self.listeners)

    def idle(self) -> float:
        """Return for how many seconds nobody has used it."""
        return 0.0 if self.busy else self._clock.monotonic() - self._last_use

    def hold(self, holder: object) -> None:
        """Take it for a call of `holder`."""
        self.holder = holder
        self.uses += 1

    def let_go(self) -> None:
        """Give it back."""
        self.uses -= 1
        self._last_use = self._clock.monotonic()
        if not self.uses:
            self.holder = None

    def next_ident(self) -> bytes:
        """Return a request id that the session has not seen (2025-11-25 basic, "Requests")."""
        return b"%d" % next(self._idents)

    def ground(self, ident: bytes) -> Ground | None:
        """Return where another replica finds the exchange of a request; `None` where only this one can."""
        if not isinstance(self.carrier, HttpCarrier):
            return None
        return Ground(self.carrier.session_id, self.version, ident)

    async def exchange(
        self,
        request: Envelope,
        ident: bytes,
        headers: Headers,
        *,
        level: str | None,
        asks: bool,
        on_place: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[Envelope, None]:
        """Send a request under an id from `next_ident`; yield what its caller should see.

        `level` is the least level of log messages to be yielded, `None` for none; with `asks` what
        comes beside all calls may be yielded too; for `on_place` see `Placing` in the upstream's port.
        Raises `UpstreamLost`, and `Forgotten` where the response says that the session is gone; `lost` is
        true then.
        """
        own = handshake_headers(headers, self.version) if headers else self._headers
        channel = self.carrier.channel(own)
        if is_placing(channel):
            channel.on_place = on_place
        coming = channel.exchange(set_member(request.raw, ("id",), ident), own)
        call = Call(coming, request.params, level)
        self._calls[ident] = call
        first = True
        try:
            async with aclosing(call.read(self._crew if asks else None)) as row:
                async for raw in row:
                    shown = self._shown(peek(raw), call, own)
                    if shown is None:
                        # Only before what its caller sees: who reads may be behind that.
                        if first and on_place is not None and place_of(raw):
                            on_place(place_of(raw))
                        continue
                    if first and shown.kind == "response" and self.carrier.refused(channel, shown):
                        self.lose()
                        raise Forgotten(shown)
                    first = False
                    yield shown
        except UpstreamLost as lost:
            if self.carrier.forgot(lost):
                self.lose()
            raise
        finally:
            del self._calls[ident]
            self._leave(call, own)

    async def ask(self, method: str, params: bytes, headers: Headers) -> Envelope:
        """Send a request of the gateway's own and return its response; raise `UpstreamLost`.

        Calls may wait for it: an upstream that does not answer is not waited for without end.
        """
        ident = self.next_ident()
        own = handshake_headers(headers, self.version) if headers else self._headers
        answer: Envelope | None = None
        channel = self.carrier.channel(own)
        try:
            async with (
                asyncio.timeout(_ASK_SECONDS),
                aclosing(channel.exchange(build_request(ident, method, params), own)) as coming,
            ):
                async for raw in coming:
                    one = peek(raw)
                    if one.kind == "response":
                        answer = one
                    else:
                        self._place(one)
        except TimeoutError:
            words = f"the upstream did not answer {method} within {_ASK_SECONDS:g} s"
            raise UpstreamLost(words) from None
        except UpstreamLost as lost:
            if self.carrier.forgot(lost):
                self.lose()
            raise
        if answer is None:
            raise UpstreamLost(f"the upstream did not answer {method}")
        if self.carrier.refused(channel, answer):
            self.lose()
            raise UpstreamLost(UNKNOWN_SESSION, status=404)
        return answer

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response; raise `UpstreamLost` where it does not pass."""
        own = handshake_headers(headers, self.version) if headers else self._headers
        one = peek(message)
        if one.kind == "response" and one.id is not None:
            self._asked.pop(key(one.id) or one.id, None)
        await self.carrier.channel(own).send(message, own)

    def lose(self) -> None:
        """Take note that the session is gone."""
        if not self.lost:
            self.lost = True
            self._on_lost(self)
            for listener in self.listeners:
                listener.end()

    def hear(self) -> None:
        """Begin to hear what comes beside all calls."""
        if self._hearing is None and not self.lost:
            self._hearing = self._crew.spawn(self._hear(), "hear")

    async def heard(self) -> None:
        """Return once the upstream hears us listen, or after a second: some say nothing first."""
        self.hear()
        try:
            async with asyncio.timeout(_HEARD_SECONDS):
                await self._heard.wait()
        except TimeoutError:
            return

    async def end(self) -> None:
        """End the session; one that the upstream forgot is not ended there."""
        known = not self.lost
        self.lose()
        if self._hearing is not None and self._hearing is not asyncio.current_task():
            self._hearing.cancel()
            await asyncio.wait([self._hearing])
        if known or self.carrier.exclusive:
            await self.carrier.end()

    async def _hear(self) -> None:
        try:
            async with aclosing(self.carrier.hear()) as coming:
                async for raw in coming:
                    self._heard.set()
                    for one in messages(raw)[0] if raw else ():
                        self._place(one)
        except UpstreamLost as lost:
            _log.debug("a held session was lost: %s", lost)
            self.lose()
        finally:
            self._heard.set()

    def _shown(self, one: Envelope, call: Call, headers: Headers) -> Envelope | None:
        """Return what came for a call if its caller should see it."""
        if one.kind == "response":
            return one
        if one.kind == "request":
            if one.method == _PING:
                self._answer(response(one.id, b"{}"), headers)
                return None
            self._asked[key(one.id) or b""] = call
            return one
        if is_change(one.method):
            self._changed(one)
            return None
        return one if call.wants(one) else None

    def _place(self, one: Envelope) -> None:
        """Put what came beside all calls where it most likely belongs."""
        if one.kind == "request":
            if one.method == _PING:
                self._answer(response(one.id, b"{}"), self._headers)
            elif not any(call.insert(one.raw) for call in reversed(self._calls.values())):
                self._answer(error_response(one.id, _NOBODY), self._headers)
        elif one.kind == "notification":
            if is_change(one.method):
                self._changed(one)
                return
            asked = members(one.params).get("requestId")
            owner = None if asked is None else self._asked.get(key(bytes(asked)) or b"")
            for call in [owner] if owner is not None else reversed(self._calls.values()):
                if call.owns(one) and call.insert(one.raw):
                    return

    def _changed(self, one: Envelope) -> None:
        self._on_change(one)

    def _leave(self, call: Call, headers: Headers) -> None:
        """Refuse what was put in line for a call that has ended."""
        for ident in [ident for ident, owner in self._asked.items() if owner is call]:
            del self._asked[ident]
        for raw in call.unread():
            one = peek(raw)
            if one.kind == "request":
                self._answer(error_response(one.id, _NOBODY), headers)

    def _answer(self, message: bytes, headers: Headers) -> None:
        self._crew.spawn(self._answering(message, headers), "answer")

    async def _answering(self, message: bytes, headers: Headers) -> None:
        try:
            await self.carrier.channel(headers).send(message, headers)
        except GatewayError as wrong:
            _log.debug("an answer did not reach the upstream: %s", wrong)
