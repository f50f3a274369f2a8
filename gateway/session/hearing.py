"""A client's word for a plain call of its session, brought to the replica that has the call (I6).

Most upstreams keep their calls themselves. Two kinds live here: calls of a session over an upstream
that is stateless only, and those that run as tasks of the upstream's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.protocol.envelope import Envelope, members, peek
from gateway.service.service import TaskService
from gateway.session.calling import Calling
from gateway.session.visit import Served, Visit


class Hearing:
    """Hears answers and cancellations, and passes on what no call of this replica waits for."""

    def __init__(self, service: TaskService, calling: Calling, served: Mapping[str, Served]) -> None:
        self._service = service
        self._calling = calling
        self._served = served
        service.on_said = self.hear

    def __repr__(self) -> str:
        return "<Hearing>"

    async def answer(self, visit: Visit, envelope: Envelope) -> bool:
        """Take an answer to a question of a crossed session; false where another way is to be gone."""
        session = visit.session
        if (
            session is None
            or not session.crossed
            or visit.served.crossing.awaits(session.tag, envelope.raw)
        ):
            return False
        await self._service.tell_said(session.tag, envelope.raw)
        return True

    async def cancel(self, visit: Visit, envelope: Envelope) -> bool:
        """Take a cancellation of a call that is driven; tell other replicas where it may be theirs."""
        session = visit.session
        if session is None:
            return False
        request_id = bytes(members(envelope.params).get("requestId") or b"")
        if await self._calling.cancel(session.tag, request_id, envelope.raw):
            return True
        if session.own_tasks or (
            session.crossed and not visit.served.crossing.awaits(session.tag, envelope.raw)
        ):
            await self._service.tell_said(session.tag, envelope.raw)
        return False

    async def hear(self, tag: str, message: bytes) -> None:
        """Take what a client has said to another replica."""
        one = peek(message)
        if one.method == "notifications/cancelled":
            request_id = bytes(members(one.params).get("requestId") or b"")
            await self._calling.cancel(tag, request_id, message)
        for served in self._served.values():
            await served.crossing.hear(tag, message)
