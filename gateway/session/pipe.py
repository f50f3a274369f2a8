"""A client on a pipe: the same exchange as over HTTP, one message a line, both ways in order."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from gateway.aio.spawn import Crew
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_REQUEST
from gateway.protocol.envelope import Envelope, check_depth, is_batch, members, peek, refusal_response
from gateway.protocol.errors import Refusal
from gateway.protocol.stateless import opens_stateless
from gateway.service.service import TaskService
from gateway.session.advertise import advertise
from gateway.session.exchange import Answer, Inbound, Outbound, Stream, Wire
from gateway.session.principal import Principals
from gateway.session.router import Router
from gateway.session.streams import to_wire
from gateway.session.token import Session
from gateway.session.tools import lists_tools, with_support
from gateway.session.visit import Served, Visit
from gateway.upstream.port import Link

_log: Final = logging.getLogger("gateway.session")
Write = Callable[[bytes], Awaitable[None]]
Count = Callable[[str, str], None]
Take = Callable[[Visit, Envelope], Awaitable[Outbound]]
_LISTEN: Final = "subscriptions/listen"
_LOOK_UPS_AT_ONCE: Final = 64
# Each waits by itself, so that what the client sends next is read: an answer, a cancellation.
_CALLS_AT_ONCE: Final = 1000


class Outlet(msgspec.Struct, frozen=True):
    """What a pipe tells others.

    `write` sends one message to the client and waits while that one does not read; `count` hears of
    each message's method and outcome.
    """

    write: Write
    count: Count


class Pipe:
    """The session of a client on a pipe, whose upstream is one link.

    What is not about tasks goes through as the bytes that came.
    """

    def __init__(
        self,
        router: Router,
        served: Served,
        link: Link,
        principals: Principals,
        outlet: Outlet,
    ) -> None:
        tag = secrets.token_hex(16)
        self._router = router
        self._served = served
        self._link = link
        self._calls: dict[bytes, asyncio.Task[None]] = {}
        self._listings: set[bytes] = set()
        self._write = outlet.write
        self._count = outlet.count
        self._session = Session(tag, served.name, None, True, "", False)
        self._scope = principals.scope_of(served.name, served.scope_mode, None, tag)
        self._initialize: bytes | None = None
        self._crew = Crew("pipe")
        self._looking_up = asyncio.Semaphore(_LOOK_UPS_AT_ONCE)

    def __repr__(self) -> str:
        return f"<Pipe {self._session.tag} {self._link!r}>"

    async def take(self, raw: bytes) -> None:
        """Take one line of the client."""
        inbound = Inbound(self._served.name, "POST", [], raw)
        try:
            if is_batch(raw):
                raise Refusal(INVALID_REQUEST, "Invalid Request: batches are not taken on a pipe")
            check_depth(raw)
            envelope = peek(raw)
        except Refusal as refusal:
            await self._write(refusal_response(None, refusal))
            return
        if envelope.method == "notifications/cancelled" and self._cancel(envelope):
            return
        if opens_stateless(envelope, None):
            await self._take_stateless(envelope)
            return
        if envelope.method == "initialize":
            self._initialize = envelope.id
        visit = Visit(self._served, inbound, self._session, self._scope, envelope, self._link, known=True)
        if lists_tools(visit) and envelope.id is not None:
            self._listings.add(envelope.id)
        if any(dialect.is_about(envelope.method) for dialect in self._served.dialects.values()):
            # A look-up may wait for the store; what the client sends next need not.
            await self._looking_up.acquire()
            self._crew.spawn(self._look_up(visit, envelope), envelope.method)
        else:
            await self._answer(visit, envelope)

    async def _take_stateless(self, envelope: Envelope) -> None:
        """Take a request that needs no session; what it is answered comes when it comes."""
        inbound = Inbound(self._served.name, "LINE", [], envelope.raw)
        visit = Visit(self._served, inbound, None, self._scope, envelope, known=True)
        if len(self._calls) >= _CALLS_AT_ONCE and envelope.id is not None:
            words = f"Limit reached: a client on a pipe may have {_CALLS_AT_ONCE} requests under way"
            full = Refusal(INTERNAL_ERROR, words, {"limit": "calls", "max": _CALLS_AT_ONCE})
            await self._write(refusal_response(envelope.id, full))
            return
        work = self._crew.spawn(self._serve(visit, envelope), envelope.method)
        if envelope.id is not None:
            ident = envelope.id
            self._calls[ident] = work
            work.add_done_callback(lambda _: self._calls.pop(ident, None))

    async def _serve(self, visit: Visit, envelope: Envelope) -> None:
        """Answer a request of the stateless era, in the task that its cancellation ends."""
        outbound = await self._ask(visit, envelope, self._router.take_stateless)
        match outbound:
            case Answer(body=body) if body:
                await self._write(body)
            case Stream(items=items):
                await self._send_all(items)
            case _:
                return

    def _cancel(self, envelope: Envelope) -> bool:
        """Cancel a request of the stateless era (2026-07-28 stdio, "Cancellation")."""
        work = self._calls.get(bytes(members(envelope.params).get("requestId") or b""))
        if work is None:
            return False
        work.cancel()
        return True

    async def forward_upstream(self) -> None:
        """Pass on all that the upstream says of its own, until it ends."""
        async with aclosing(self._link.listen()) as messages:
            async for message in messages:
                await self._write(self._edited(message))

    async def forward_asks(self, service: TaskService) -> None:
        """Pass on what running tasks want of the client when no stream of theirs is there."""
        while not service.draining:
            feed = service.listen(self._session.tag)
            # A feed that overflowed has ended: the next one is offered what still waits.
            while (item := await feed.get()) is not None:
                wire = None if isinstance(item, bytes) else to_wire(item, self._served.dialects)
                if wire is not None:
                    await self._write(wire.message)

    async def settled(self) -> None:
        """Return when every call of the stateless era is answered; a subscription is none that ends."""
        calls = [work for work in self._calls.values() if not work.get_name().endswith(_LISTEN)]
        if calls:
            await asyncio.wait(calls)

    async def close(self) -> None:
        """Stop all writing."""
        await self._crew.close()

    async def drain(self, seconds: float) -> None:
        """Wait for the streams of tasks to be written."""
        await self._crew.drain(seconds)

    async def _look_up(self, visit: Visit, envelope: Envelope) -> None:
        try:
            await self._answer(visit, envelope)
        finally:
            self._looking_up.release()

    async def _answer(self, visit: Visit, envelope: Envelope) -> None:
        outbound = await self._ask(visit, envelope, self._router.take)
        if outbound is not None:
            await self._send(outbound)

    async def _ask(self, visit: Visit, envelope: Envelope, take: Take) -> Outbound | None:
        """Return what a message is answered; `None` where it was refused, and the client has been told."""
        outcome = "error"
        try:
            outbound = await take(visit, envelope)
            outcome = "ok"
        except Refusal as refusal:
            if envelope.kind == "request":
                await self._write(refusal_response(envelope.id, refusal))
            else:
                _log.warning("a message of the client was refused: %s", refusal.message)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 the border: logged with its trace, answered without it
            _log.exception("a message of the client failed")
            if envelope.kind == "request":
                internal = Refusal(INTERNAL_ERROR, "Internal error")
                await self._write(refusal_response(envelope.id, internal))
        else:
            return outbound
        finally:
            self._count(envelope.method or "response", outcome)
        return None

    async def _send(self, outbound: Outbound) -> None:
        match outbound:
            case Answer(body=body) if body:
                await self._write(body)
            case Stream(items=items):
                self._crew.spawn(self._send_all(items), "stream")
            case _:
                return

    async def _send_all(self, items: AsyncGenerator[Wire | bytes, None]) -> None:
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Wire):
                    await self._write(item.message)

    def _edited(self, message: bytes) -> bytes:
        if self._initialize is None and not self._listings:
            return message
        try:
            envelope = peek(message)
        except Refusal:
            return message
        if envelope.kind == "response" and envelope.id in self._listings:
            self._listings.discard(envelope.id)
            return with_support(self._served, message)
        if envelope.kind != "response" or envelope.id != self._initialize:
            return message
        self._initialize = None
        visit = Visit(self._served, Inbound(self._served.name, "LINE", []), None, self._scope, known=True)
        opened = advertise(message, visit)
        if opened is None:
            return message
        self._session = Session(
            self._session.tag, self._served.name, None, True, opened.version, opened.own_tasks
        )
        return opened.message
