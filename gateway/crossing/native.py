"""A channel to an upstream of the stateless era, in the words of the handshake era.

Each request carries what the caller is and can (2026-07-28 basic, "_meta"); what the upstream wants of
the client comes as a result and is asked as a server request (2026-07-28 "Multi Round-Trip Requests").
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.bridge.inputs import read_input_required, retry
from gateway.bridge.requests import to_stateless
from gateway.bridge.results import error_to_handshake, kind_of, to_handshake
from gateway.crossing.conversation import Conversation
from gateway.crossing.mirroring import mirrored, misses_headers
from gateway.crossing.native_task import Ask, NativeTask
from gateway.crossing.port import Caller
from gateway.crossing.roads import Road
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_REQUEST
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    peek,
    request,
    response,
    text_of,
)
from gateway.protocol.eras import STATELESS
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import drop_member, set_member
from gateway.protocol.stateless import TASKS_EXTENSION
from gateway.upstream.ids import key, messages

_log: Final = logging.getLogger("gateway.crossing")
_EXTENSION: Final = ("extensions", TASKS_EXTENSION)
_ROUNDS: Final = 100
_PAUSE_MAX: Final = 2.0
_FAREWELL_SECONDS: Final = 5.0
MAX_LEFT: Final = 100


class StatelessChannel:
    """A `Channel` (see the port of the upstream room). Several exchanges may be under way.

    `crew` runs the calls: one whose caller went away goes on until it is answered or cancelled. With
    `drive` the upstream is told that its tasks are understood, and those are waited for here.
    """

    def __init__(
        self, road: Road, caller: Caller, clock: Clock, crew: Crew, *, drive: bool = False
    ) -> None:
        self._road = road
        self.caller = caller
        self._clock = clock
        self._crew = crew
        self._drive = drive
        self._calls: dict[bytes, Conversation] = {}

    def __repr__(self) -> str:
        return f"<StatelessChannel {len(self._calls)} calls>"

    @property
    def busy(self) -> int:
        """How many calls are under way."""
        return len(self._calls)

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last.

        Raises `UpstreamLost`, and `Refusal` for an id that is in flight already.
        """
        one = peek(message)
        ident = key(one.id)
        if ident is None or ident in self._calls:
            raise Refusal(INVALID_REQUEST, "Invalid Request: the id is in use", request_id=one.id)
        self._bound_left()
        conversation = self._calls[ident] = Conversation(one)
        conversation.start(
            self._crew, lambda talking: self._talk(talking, headers), partial(self._calls.pop, ident, None)
        )
        async with aclosing(conversation.messages()) as coming:
            async for raw in coming:
                yield raw

    async def send(self, message: bytes, headers: Headers) -> None:
        """Take an answer to a server request, or the cancellation of a call; drop what the era has not."""
        for one in messages(message)[0]:
            if one.kind == "response":
                if not any(call.answered(one) for call in list(self._calls.values())):
                    _log.debug("an answer to no question was dropped")
            elif one.method == "notifications/cancelled":
                await self._cancel(one.params, headers)

    def awaits(self, one: Envelope) -> bool:
        """Tell whether a call waits for this answer, or is there to be cancelled."""
        if one.kind == "response":
            ident = key(one.id) or b""
            return any(ident in call.questions for call in self._calls.values())
        return key(bytes(members(one.params).get("requestId") or b"")) in self._calls

    async def close(self) -> None:
        """Do nothing: the upstream keeps no session."""

    def cancel_all(self, why: str) -> None:
        """End all calls."""
        for call in list(self._calls.values()):
            call.cancel(why)

    def stamp(self, message: bytes) -> bytes:
        """Return a request with what the upstream must know of its caller."""
        caller = self.caller
        capabilities = (
            set_member(caller.capabilities, _EXTENSION, b"{}")
            if self._drive
            else drop_member(caller.capabilities, _EXTENSION, prune=True)
        )
        return to_stateless(message, STATELESS[0], capabilities, caller.info, caller.log_level)

    async def _cancel(self, cancelled: bytes | None, headers: Headers) -> None:
        params = members(cancelled)
        ident = params.get("requestId")
        call = None if ident is None else self._calls.get(key(bytes(ident)) or b"")
        if call is None:
            return
        reason = text_of(params.get("reason"))
        call.cancel("The request was cancelled" + (f": {reason}" if reason else ""))
        if call.farewell is not None:
            with suppress(UpstreamLost, TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await call.farewell(headers)

    async def _talk(self, call: Conversation, headers: Headers) -> bytes:
        """Return the final response; ask the client in between as often as the upstream wants."""
        first = message = self.stamp(call.request.raw)
        for turn in range(_ROUNDS):
            answer, headers = await self._ask_with_headers(call, message, headers)
            if answer.result is None:
                return error_response(call.request.id, error_to_handshake(answer.error or b"{}"))
            match kind_of(answer.result):
                case "complete":
                    return response(call.request.id, to_handshake(answer.result))
                case "input_required":
                    entries, state = read_input_required(answer.result)
                    if not entries:
                        await self._clock.sleep(min(_PAUSE_MAX, 0.05 * 2**turn))
                    answers = await call.ask_all(entries)
                    message = _again(retry(first, answers, state))
                case "task" if call.request.method == "tools/call":
                    return await self._follow(call, answer.result, headers)
                case other:
                    return _failed(call, f"The upstream answered with a result of the type {other[:100]!r}")
        return _failed(call, f"The upstream asked for input {_ROUNDS} times")

    async def _ask_with_headers(
        self, call: Conversation, message: bytes, headers: Headers
    ) -> tuple[Envelope, Headers]:
        """Send a request; where the upstream misses headers of its tool, once more with them."""
        answer = await self._ask(call, message, headers)
        if answer.error is not None and misses_headers(call.request, answer.error):
            more = await mirrored(call.request, headers, self._asking(call, headers))
            if more is not None:
                return await self._ask(call, _again(message), more), more
        return answer, headers

    async def _ask(self, call: Conversation, message: bytes, headers: Headers) -> Envelope:
        """Send one request; pass on what comes for it and return the response."""
        async with aclosing(self._road.ask(message, headers)) as coming:
            async for raw in coming:
                one = peek(raw)
                if one.kind == "response":
                    return one
                await call.hear(one)
        raise UpstreamLost("the upstream ended its answer without a response")

    async def _follow(self, call: Conversation, created: bytes, headers: Headers) -> bytes:
        task = NativeTask(call, created, self._asking(call, headers), self._clock, self._crew)
        call.farewell = task.cancel
        return await task.run()

    def _asking(self, call: Conversation, headers: Headers) -> Ask:
        async def ask(method: str, params: bytes, other: Headers | None = None, /) -> Envelope:
            message = self.stamp(request(_own_id(), method, params))
            return await self._ask(call, message, headers if other is None else other)

        return ask

    def _bound_left(self) -> None:
        left = [call for call in self._calls.values() if call.left]
        if len(left) >= MAX_LEFT:
            left[0].cancel("too many calls that nobody waits for")


def _again(message: bytes) -> bytes:
    """Return a request under an id of its own: a retry is another request."""
    return set_member(message, ("id",), _own_id())


def _own_id() -> bytes:
    return dump(f"mtg-turn-{secrets.token_hex(12)}")


def _failed(call: Conversation, what: str) -> bytes:
    return error_response(call.request.id, dump({"code": INTERNAL_ERROR, "message": what}))
