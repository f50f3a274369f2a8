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
from gateway.protocol.envelope import Envelope, check_depth, is_batch, peek, refusal_response
from gateway.protocol.errors import Refusal
from gateway.service.service import TaskService
from gateway.session.advertise import advertise
from gateway.session.exchange import Answer, Inbound, Outbound, Stream, Wire
from gateway.session.principal import Principals
from gateway.session.router import Router
from gateway.session.streams import Dialects, to_wire
from gateway.session.token import Session
from gateway.session.visit import Served, Visit
from gateway.upstream.port import Link

_log: Final = logging.getLogger("gateway.session")
Write = Callable[[bytes], Awaitable[None]]
Count = Callable[[str, str], None]
_LOOK_UPS_AT_ONCE: Final = 64


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
        dialects: Dialects,
        outlet: Outlet,
    ) -> None:
        tag = secrets.token_hex(16)
        self._router = router
        self._served = served
        self._link = link
        self._dialects = dialects
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
        if envelope.method == "initialize":
            self._initialize = envelope.id
        visit = Visit(self._served, inbound, self._session, self._scope, envelope, self._link)
        if self._router.dialect.is_about(envelope.method):
            # A look-up may wait for the store; what the client sends next need not.
            await self._looking_up.acquire()
            self._crew.spawn(self._look_up(visit, envelope), envelope.method)
        else:
            await self._answer(visit, envelope)

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
                wire = None if isinstance(item, bytes) else to_wire(item, self._dialects)
                if wire is not None:
                    await self._write(wire.message)

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
        outcome = "error"
        try:
            outbound = await self._router.take(visit, envelope)
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
            await self._send(outbound)
        finally:
            self._count(envelope.method or "response", outcome)

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
        if self._initialize is None:
            return message
        try:
            envelope = peek(message)
        except Refusal:
            return message
        if envelope.kind != "response" or envelope.id != self._initialize:
            return message
        self._initialize = None
        opened = advertise(message, self._router.dialect, self._served.taskable)
        if opened is None:
            return message
        self._session = Session(
            self._session.tag, self._served.name, None, True, opened.version, opened.own_tasks
        )
        return opened.message
