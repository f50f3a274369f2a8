"""Requests of the handshake era that may be tasks: as a task, plainly, or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gateway.dialects.choose import asker
from gateway.protocol.codes import METHOD_NOT_FOUND
from gateway.protocol.envelope import Envelope, refusal_response
from gateway.protocol.eras import TASKS_IN_CORE
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import Headers, to_upstream
from gateway.session.begin import Beginning
from gateway.session.exchange import Outbound, Stream, Wire
from gateway.session.own import OwnTasks
from gateway.session.plain import first_decides, pass_on, unavailable
from gateway.session.streams import begun
from gateway.session.visit import Visit
from gateway.upstream.port import Channel

_log: Final = logging.getLogger("gateway.session")
_CALLS: Final = 1000


class Calling:
    """Decides what a call becomes, by what it asks for, the policy, and what the upstream does itself."""

    def __init__(self, beginning: Beginning, own: OwnTasks) -> None:
        self._beginning = beginning
        self._own = own
        self._calls: dict[tuple[str, bytes], tuple[Channel, Headers]] = {}

    async def take(self, visit: Visit) -> Outbound:
        """Answer a call; raise `Refusal` where it must be, or must not be, a task."""
        dialect = asker(visit.served.dialects, visit.version, visit.request)
        policy = visit.policy
        if dialect is None:
            return await self._plainly(visit)
        if dialect.name == "b":
            if await self._own.support(visit) != "forbidden":
                # The upstream speaks the client's dialect itself: its task, passed through.
                return await pass_on(visit)
            if policy.mode == "forbidden":
                if "tools/call" not in visit.served.taskable:
                    # 2025-11-25 tasks 4.1: what declares no tasks ignores the wish for one.
                    return await pass_on(visit)
                raise Refusal(METHOD_NOT_FOUND, f"{_named(visit)} cannot be called as a task")
            return await self._beginning.begin(visit, dialect)
        if policy.mode == "forbidden" or visit.scope is None:
            return await self._plainly(visit)
        return await self._beginning.begin(visit, dialect)

    async def _plainly(self, visit: Visit) -> Outbound:
        """Pass a call on; a tool that its upstream runs as a task only is called as one there."""
        policy = visit.policy
        told = visit.version >= TASKS_IN_CORE and visit.request.method == "tools/call"
        if policy.mode == "required" and (policy.refuse_plain or told):
            raise Refusal(METHOD_NOT_FOUND, f"{_named(visit)} must be called as a task")
        if await self._own.support(visit) != "required":
            return await pass_on(visit)
        channel = await self._own.channel(visit)
        if channel is None:
            return await pass_on(visit)
        began = time.monotonic()
        try:
            return await self._driven(visit, channel)
        finally:
            visit.served.called(visit.request.method, "ok", time.monotonic() - began)

    async def cancel(self, tag: str, request_id: bytes, message: bytes) -> bool:
        """Cancel a call that is driven here, after its client's word; tell whether there is such a one."""
        found = self._calls.pop((tag, request_id), None)
        if found is None:
            return False
        channel, headers = found
        await channel.send(message, headers)
        return True

    async def _driven(self, visit: Visit, channel: Channel) -> Outbound:
        """Answer with what a channel yields; on a pipe, where nothing may be waited for, when it comes."""
        name = (visit.tag, visit.request.id or b"")
        self._calls[name] = driven = channel, to_upstream(visit.inbound.headers)
        if len(self._calls) > _CALLS:
            del self._calls[next(iter(self._calls))]
        exchange = self._until_answered(name, driven, visit.request)
        if visit.pipe is not None:
            return Stream(await begun(_streamed(exchange, visit.request)))
        return await first_decides(exchange, visit.request, visit.inbound)

    async def _until_answered(
        self, name: tuple[str, bytes], driven: tuple[Channel, Headers], request: Envelope
    ) -> AsyncGenerator[bytes, None]:
        channel, headers = driven
        exchange = channel.exchange(request.raw, headers)
        async with aclosing(exchange):
            async for message in exchange:
                yield message
        # One whose client has left goes on, and can be cancelled yet (I11).
        if self._calls.get(name) is driven:
            del self._calls[name]


async def _streamed(
    exchange: AsyncGenerator[bytes, None], request: Envelope
) -> AsyncGenerator[Wire | bytes, None]:
    async with aclosing(exchange):
        yield b""
        try:
            async for message in exchange:
                yield Wire(message)
        except UpstreamLost as lost:
            yield Wire(refusal_response(request.id, unavailable(lost)))


def _named(visit: Visit) -> str:
    return f"Tool {visit.tool}" if visit.tool else visit.request.method
