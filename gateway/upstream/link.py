"""A link: one duplex stream of messages, taken apart into calls, whatever carries it.

The half of a link that stdio and legacy SSE share. Which message belongs to which call is told by
the port (`Link`). Order is kept: `send` writes when it is called, `exchange` at its first step, both
before they wait for anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Final, Protocol

import msgspec

from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.envelope import Envelope, members, meta_of, peek, text_of
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.stateless import SUBSCRIPTION_ID
from gateway.upstream.ids import key, messages
from gateway.upstream.inbox import Inbox, Loose, Through

_log = logging.getLogger("gateway.upstream")

_MEBIBYTE: Final = 1024 * 1024
# Gets what names it, and nothing else.
_SUBSCRIPTION: Final = "subscriptions/listen"
# 2025-11-25 tasks, "Related Task Metadata": what a task asks comes while its result is waited for.
_RELATED: Final = "io.modelcontextprotocol/related-task"
_RESULT: Final = "tasks/result"
MAX_INBOX: Final = 16 * _MEBIBYTE
MAX_LOOSE: Final = 1000
MAX_JUNK: Final = 100_000


class Wire(Protocol):
    """What carries the messages of a link."""

    def write(self, message: bytes, headers: Headers) -> asyncio.Future[None] | None:
        """Write one message, in order, at once; the future ends when it has left, `None` if it has.

        Raises `UpstreamLost`, and so does the future.
        """
        ...

    async def close(self) -> None:
        """End the connection or the process; safe to be called twice."""
        ...


class MessageLink:
    """A `Link` (see the port). The carrier calls `receive` for what came and `end` at the end.

    `max_inbox` bounds in bytes what one exchange has not fetched, `max_loose` and `max_loose_bytes`
    what waits for a listener. With `through` requests may be `send`, and all that comes for them goes
    to the listener, in the order in which it came: the link of a client that is on a pipe itself.
    """

    def __init__(
        self,
        tag: str,
        now: Callable[[], float],
        *,
        max_inbox: int = MAX_INBOX,
        max_loose: int = MAX_LOOSE,
        max_loose_bytes: int = 4 * _MEBIBYTE,
        through: bool = False,
    ) -> None:
        self._tag = tag
        self._now = now
        self._wire: Wire | None = None
        self._max_inbox = max_inbox
        self._calls: dict[bytes, Inbox] = {}
        self._tokens: dict[bytes, Inbox] = {}
        self._asked: dict[bytes, Inbox] = {}
        self._tasks: dict[str, Inbox] = {}
        self._loose = Loose(tag, max_loose, max_loose_bytes)
        self._through = through
        self._settled = asyncio.Event()
        self._last_use = now()
        self._noise = 0
        self._junk = 0
        self._end: str | None = None
        self.on_end: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<MessageLink {self._tag} {'alive' if self.alive else 'ended'}, {len(self._calls)} calls>"

    @property
    def tag(self) -> str:
        """The name of the link in the pool."""
        return self._tag

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._end is not None

    @property
    def alive(self) -> bool:
        """Whether messages still pass."""
        return self._end is None and self._wire is not None

    @property
    def dropped(self) -> int:
        """How many messages nobody fetched in time."""
        return self._loose.dropped

    def idle(self) -> float:
        """Return for how many seconds nothing has used the link."""
        return 0.0 if self._calls or self._loose.read else self._now() - self._last_use

    def attach(self, wire: Wire) -> None:
        """Take the carrier; from now on messages pass."""
        self._wire = wire

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last. It is written at the first step.

        Raises `UpstreamLost`, and `Refusal` for an id that is in flight already.
        """
        request = peek(message)
        ident = key(request.id)
        if ident is None or ident in self._calls:
            raise Refusal(INVALID_REQUEST, "Invalid Request: the id is in use", request_id=request.id)
        inbox = Inbox(request.method, self._max_inbox)
        token = _token(meta_of(request.params).get("progressToken"))
        self._calls[ident] = inbox
        self._note_task(request, inbox)
        if token is not None:
            self._tokens[token] = inbox
        try:
            self._watch(self._write(message, headers), inbox)
            last = False
            while not last:
                raw, last = await inbox.take()
                yield raw
        finally:
            self._last_use = self._now()
            self._forget(ident, inbox)
            if inbox.dropped:
                _log.warning("link %s: a flood cost a call %d messages of news", self._tag, inbox.dropped)

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response; raise `UpstreamLost` where it does not pass."""
        for one in messages(message)[0]:
            if one.kind == "response":
                self._answered(key(one.id))
            elif one.kind == "request" and self._through:
                self._pass_through(one)
            elif one.method == "notifications/cancelled" and self._through:
                self._give_up(_token(members(one.params).get("requestId")))
        self._last_use = self._now()
        left = self._write(message, headers)
        if left is not None:
            await left

    async def settled(self) -> None:
        """Return when no call is in flight."""
        while self._calls and self._end is None:
            self._settled.clear()
            await self._settled.wait()

    def _give_up(self, ident: bytes | None) -> None:
        inbox = None if ident is None else self._calls.get(ident)
        if ident is not None and isinstance(inbox, Through):
            # Not every server answers what was cancelled.
            self._forget(ident, inbox)

    def _pass_through(self, one: Envelope) -> None:
        ident = key(one.id)
        if ident is None or ident in self._calls:
            return
        inbox = self._calls[ident] = Through(one.method, self._loose)
        self._note_task(one, inbox)
        token = _token(meta_of(one.params).get("progressToken"))
        if token is not None:
            self._tokens[token] = inbox

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield what belongs to no exchange; a newer listener ends the older one."""
        reader = self._loose.enter()
        try:
            while (raw := await self._loose.take(reader)) is not None:
                yield raw
        finally:
            self._last_use = self._now()
            self._loose.leave(reader)

    async def close(self) -> None:
        """End the link and what carries it."""
        self.end("the session with the upstream was ended")
        if self._wire is not None:
            await self._wire.close()

    def end(self, what: str) -> None:
        """Take the end of the link: calls in flight fail, the listener ends. Only the first counts."""
        if self._end is not None:
            return
        self._end = what
        for inbox in list(self._calls.values()):
            when = "before it answered initialize" if inbox.method == "initialize" else "during the call"
            inbox.fail(UpstreamLost(f"{what} {when}"))
        self._loose.end()
        self._settled.set()
        if self.on_end is not None:
            self.on_end()

    def keep(self, raw: bytes) -> None:
        """Keep a message for the next listener."""
        self._loose.put(raw)

    def receive(self, raw: bytes) -> None:
        """Take what the upstream sent and put it where it belongs; noise is skipped."""
        found, strange = messages(raw)
        if found:
            self._junk = 0
        if strange:
            self._skip(strange)
        for one in found:
            if one.kind == "response":
                self._respond(one)
            elif one.kind == "request":
                self._ask(one)
            else:
                self._notify(one)

    def _respond(self, one: Envelope) -> None:
        ident = key(one.id)
        inbox = None if ident is None else self._calls.get(ident)
        if ident is None or inbox is None:
            if self._through:
                self._loose.put(one.raw)
            else:
                _log.debug("link %s: a response to no call in flight was dropped", self._tag)
            return
        inbox.put(one.raw, last=True)
        self._forget(ident, inbox)

    def _ask(self, one: Envelope) -> None:
        inbox = self._owner(one, asks=True)
        ident = key(one.id)
        if inbox is None:
            self._loose.put(one.raw)
        elif ident is not None:
            self._asked[ident] = inbox
            inbox.asked.add(ident)
            inbox.put(one.raw)

    def _notify(self, one: Envelope) -> None:
        inbox: Inbox | None
        if one.method == "notifications/progress":
            token = _token(members(one.params).get("progressToken"))
            inbox = None if token is None else self._tokens.get(token)
            if inbox is None:
                if self._through:
                    self._loose.put(one.raw)
                else:
                    _log.debug("link %s: progress of no call in flight was dropped", self._tag)
                return
        elif one.method == "notifications/cancelled":
            ident = _token(members(one.params).get("requestId"))
            inbox = self._answered(ident)
        else:
            inbox = self._subscribed(one) or self._owner(one)
        if inbox is None:
            self._loose.put(one.raw)
        else:
            inbox.put(one.raw, news=one.method != "notifications/cancelled")

    def _subscribed(self, one: Envelope) -> Inbox | None:
        """Return the subscription that a notification is for (2026-07-28 "Receiving Notifications")."""
        ident = _token(meta_of(one.params).get(SUBSCRIPTION_ID))
        return None if ident is None else self._calls.get(ident)

    def _note_task(self, request: Envelope, inbox: Inbox) -> None:
        task = text_of(members(request.params).get("taskId")) if request.method == _RESULT else None
        if task is not None:
            self._tasks[task] = inbox

    def _owner(self, one: Envelope, *, asks: bool = False) -> Inbox | None:
        """Return the call that a message belongs to: the one that waits for the task it is about.

        On a pipe tasks that no call waits for are the client's own, who hears all there is.
        """
        related = meta_of(one.params).get(_RELATED)
        task = None if related is None else text_of(members(related).get("taskId"))
        if task is not None and (task in self._tasks or self._through):
            return self._tasks.get(task)
        return self._likely(asks=asks)

    def _likely(self, *, asks: bool = False) -> Inbox | None:
        """Return the call that an unaddressed message most likely belongs to, `None` for the listener.

        A server asks on behalf of a call (2025-11-25 transports): where all calls wait already, one
        of them asks once more. News goes to the listener then, and to the youngest call where nobody
        listens.
        """
        calls = [one for one in self._calls.values() if one.method != _SUBSCRIPTION]
        for inbox in reversed(calls):
            if not inbox.waits:
                return inbox
        if self._loose.read and not asks:
            return None
        return calls[-1] if calls else None

    def _answered(self, ident: bytes | None) -> Inbox | None:
        inbox = None if ident is None else self._asked.pop(ident, None)
        if inbox is not None and ident is not None:
            inbox.asked.discard(ident)
        return inbox

    def _write(self, message: bytes, headers: Headers) -> asyncio.Future[None] | None:
        if self._end is not None or self._wire is None:
            raise UpstreamLost(
                f"{self._end or 'the upstream is not there'} before the message was sent", sent=False
            )
        return self._wire.write(message, headers)

    def _watch(self, left: asyncio.Future[None] | None, inbox: Inbox) -> None:
        """Let the exchange fail when its request does not leave, without waiting for that."""
        if left is None:
            return

        def settled(done: asyncio.Future[None]) -> None:
            wrong = None if done.cancelled() else done.exception()
            if isinstance(wrong, UpstreamLost):
                inbox.fail(wrong)

        left.add_done_callback(settled)

    def _forget(self, ident: bytes, inbox: Inbox) -> None:
        if self._calls.get(ident) is inbox:
            del self._calls[ident]
        for token in [one for one, owner in self._tokens.items() if owner is inbox]:
            del self._tokens[token]
        for task in [one for one, owner in self._tasks.items() if owner is inbox]:
            del self._tasks[task]
        for asked in inbox.asked:
            self._asked.pop(asked, None)
        inbox.asked.clear()
        if not self._calls:
            self._settled.set()

    def _skip(self, strange: int) -> None:
        self._noise += strange
        if not self._noise & (self._noise - 1):
            _log.warning("link %s: %d lines that are not JSON-RPC were skipped", self._tag, self._noise)
        self._junk += strange
        if self._junk > MAX_JUNK and self._end is None:
            # A flood of it would keep everything else from being heard.
            self.end(f"the upstream wrote {MAX_JUNK} lines that are not JSON-RPC, one after the other")


def _token(raw: msgspec.Raw | None) -> bytes | None:
    return None if raw is None else key(bytes(raw))
