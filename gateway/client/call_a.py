"""Dialect A: one call as a task (SEP-1686, section 3.1 and the race of its last sections)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from gateway.client.connection import Exchange
from gateway.client.follow_a import FollowerA
from gateway.client.means import Means
from gateway.client.options import Call, Outcome
from gateway.client.plain import ORDINARY, cancel_request, params_of, plain_outcome
from gateway.client.sep1686 import augment, related
from gateway.client.view import TaskView
from gateway.protocol.envelope import dump
from gateway.protocol.errors import Refusal, UpstreamLost

_LOOK_SECONDS: Final = 0.3
_PROBES: Final = 3


class CallA:
    """A call whose task has an id of this client's choice."""

    def __init__(self, call: Call, means: Means) -> None:
        self._call = call
        self._means = means
        self._follower = FollowerA(means)
        self._task_id = str(uuid.uuid4())
        self._exchange: Exchange | None = None

    def __repr__(self) -> str:
        return f"<CallA {self._call.tool} {self._task_id}>"

    @property
    def task(self) -> TaskView | None:
        """The task, once the server has told of it."""
        if not self._means.desk.created.is_set():
            return None
        return TaskView(task_id=self._task_id, status="submitted")

    @property
    def request_id(self) -> bytes | None:
        """The id of the request: it is the task's, so that who knows the task can cancel it."""
        return dump(self._task_id)

    async def outcome(self) -> Outcome | None:
        """Call; return the outcome, `None` where a task that is to be left has been created."""
        means, task_id = self._means, self._task_id
        means.desk.expected = task_id
        params = params_of(self._call, means.screen, augment(task_id, self._call.keep_alive))
        exchange = self._exchange = means.connection.start("tools/call", params, self.request_id)
        created = means.crew.spawn(means.desk.created.wait(), "created")
        await asyncio.wait({exchange.answer, created}, return_when=asyncio.FIRST_COMPLETED)
        if not means.desk.created.is_set() and not await self._was_created(exchange):
            if exchange.answer.exception() is None:
                means.screen.note(ORDINARY)
            return plain_outcome(exchange)
        if self._call.detach and not exchange.answer.done():
            return None
        return await self._follower.until_end(task_id, exchange)

    async def look(self) -> TaskView:
        """Look at the task once; raise `Refusal` or `UpstreamLost`."""
        return await self._follower.watch.look(self._task_id)

    async def cancel(self) -> None:
        """Cancel the request, and see whether the task stops (section 4.8)."""
        if self._exchange is None:
            return
        await cancel_request(self._means.connection, self._exchange.ident, related(self._task_id))
        if self._means.desk.created.is_set():
            status = await self._follower.watch.settle(self._task_id)
            self._means.screen.note(f"task {self._task_id}: {status}")

    async def _was_created(self, exchange: Exchange) -> bool:
        """Find out after a broken stream whether the task was created unheard.

        The id is the client's own, so that it can ask; asking before the notification is the
        fallback that the SEP leaves for connections that degrade.
        """
        wrong = exchange.answer.exception()
        if not isinstance(wrong, UpstreamLost) or not wrong.sent or wrong.status is not None:
            return False
        self._means.screen.note(f"{wrong}; looking for the task")
        for probe in range(_PROBES):
            await self._follower.watch.pause(_LOOK_SECONDS * 2**probe)
            try:
                await self.look()
            except (Refusal, UpstreamLost):
                continue
            return True
        return False
