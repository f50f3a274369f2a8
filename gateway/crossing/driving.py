"""A channel that runs tools as tasks of the upstream itself and yields their plain results.

For tools whose upstream refuses to run them in any other way (2025-11-25 "Tasks", `taskSupport`
required). The tool is called once, whatever happens to the streams (design I3).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.crossing.conversation import Conversation
from gateway.crossing.own_task import RELATED, OwnTask
from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.envelope import Envelope, dump, members, meta_of, peek, request, text_of
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import drop_member, set_member
from gateway.upstream.ids import key, messages
from gateway.upstream.port import Channel, Placed

_FAREWELL_SECONDS: Final = 5.0
_TASK: Final = ("params", "task")


class DrivingChannel:
    """A `Channel` around another one (see the port of the upstream room)."""

    def __init__(self, channel: Channel, clock: Clock, crew: Crew) -> None:
        self._channel = channel
        self._clock = clock
        self._crew = crew
        self._calls: dict[bytes, Conversation] = {}
        self._asked: dict[bytes, bytes] = {}

    def __repr__(self) -> str:
        return f"<DrivingChannel {self._channel!r}, {len(self._calls)} calls>"

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last.

        Raises `UpstreamLost`, and `Refusal` for an id that is in flight already.
        """
        one = peek(message)
        if one.method != "tools/call":
            async with aclosing(self._channel.exchange(message, headers)) as coming:
                async for raw in coming:
                    yield _unplaced(raw)
            return
        ident = key(one.id)
        if ident is None or ident in self._calls:
            raise Refusal(INVALID_REQUEST, "Invalid Request: the id is in use", request_id=one.id)
        conversation = self._calls[ident] = Conversation(one)
        conversation.start(self._crew, lambda call: self._talk(call, headers), partial(self._forget, ident))
        async with aclosing(conversation.messages()) as coming:
            async for raw in coming:
                yield _unplaced(raw)

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response; the cancellation of a call is one of its task."""
        for one in messages(message)[0]:
            related = self._asked.pop(key(one.id) or b"", None) if one.kind == "response" else None
            call = self._cancelled(one)
            if call is not None:
                await self._cancel(call, one, headers)
            elif related is not None and one.result is not None:
                answer = set_member(one.raw, ("result", "_meta", RELATED), related)
                await self._channel.send(answer, headers)
            else:
                await self._channel.send(one.raw, headers)

    async def close(self) -> None:
        """End the session with the upstream."""
        await self._channel.close()

    def _forget(self, ident: bytes) -> None:
        self._calls.pop(ident, None)
        if not self._calls:
            self._asked.clear()

    def _cancelled(self, one: Envelope) -> Conversation | None:
        if one.method != "notifications/cancelled":
            return None
        ident = members(one.params).get("requestId")
        return None if ident is None else self._calls.get(key(bytes(ident)) or b"")

    async def _cancel(self, call: Conversation, one: Envelope, headers: Headers) -> None:
        reason = text_of(members(one.params).get("reason"))
        call.cancel(
            "The request was cancelled" + (f": {reason}" if reason else ""), stop=call.farewell is not None
        )
        if call.farewell is None:
            # The task may be on its way: it is cancelled when it is there.
            await self._channel.send(one.raw, headers)
        else:
            await _bid(call, headers)

    async def _talk(self, call: Conversation, headers: Headers) -> bytes:
        """Create the task, wait for its result; a plain result in its place is the answer."""
        message = set_member(call.request.raw, _TASK, b"{}")
        answer = await self._ask(call, message, headers)
        created = members(answer.result).get("task")
        if created is None:
            return answer.raw

        async def ask(method: str, params: bytes, other: Headers | None = None, /) -> Envelope:
            own = request(dump(f"mtg-task-{secrets.token_hex(12)}"), method, params)
            return await self._ask(call, own, headers if other is None else other)

        task = OwnTask(call, bytes(created), ask, self._clock, self._crew)
        call.farewell = task.cancel
        if call.over:
            await _bid(call, headers)
            return b""
        return await task.run()

    async def _ask(self, call: Conversation, message: bytes, headers: Headers) -> Envelope:
        """Send a request; pass on what comes for it and return the response."""
        async with aclosing(self._channel.exchange(message, headers)) as coming:
            async for raw in coming:
                one = peek(raw)
                if one.kind == "response":
                    return one
                await self._hear(call, one)
        raise UpstreamLost("the upstream ended its answer without a response")

    async def _hear(self, call: Conversation, one: Envelope) -> None:
        """Pass on what comes, as if there were no task."""
        if one.method == "notifications/tasks/status":
            words = text_of(members(one.params).get("statusMessage"))
            if words and not call.heard_progress:
                await call.tell(words)
            return
        related = meta_of(one.params).get(RELATED)
        if related is None:
            await call.hear(one)
            return
        ident = key(one.id)
        if one.kind == "request" and ident is not None:
            self._asked[ident] = bytes(related)
        await call.hear(peek(drop_member(one.raw, ("params", "_meta", RELATED), prune=True)))


def _unplaced(raw: bytes) -> bytes:
    """Return a message without its place: that is one in a stream which holds but a part of the call."""
    return bytes(raw) if isinstance(raw, Placed) else raw


async def _bid(call: Conversation, headers: Headers) -> None:
    if call.farewell is not None:
        with suppress(UpstreamLost, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await call.farewell(headers)
