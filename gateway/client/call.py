"""One tool call, plain or as a task (SEP-1686, section 3.1 and the race of its last sections)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.client.connection import Connection, Exchange
from gateway.client.desk import PROGRESS_TOKEN, Desk
from gateway.client.follow import Follower, as_error
from gateway.client.options import Call, Outcome
from gateway.client.report import WayBack, show_detached, show_outcome, show_unknown
from gateway.client.screen import Screen
from gateway.client.sep1686 import TaskView, augment, related
from gateway.client.trees import as_object
from gateway.protocol.envelope import dump, value
from gateway.protocol.errors import Refusal, UpstreamLost

_CANCEL_SECONDS: Final = 5
_LOOKS: Final = 6
_LOOK_SECONDS: Final = 0.3
_PROBES: Final = 3


class Caller:
    """Runs one call over an open connection."""

    def __init__(
        self, call: Call, connection: Connection, desk: Desk, screen: Screen, clock: Clock, crew: Crew
    ) -> None:
        self._call = call
        self._connection = connection
        self._desk = desk
        self._screen = screen
        self._clock = clock
        self._crew = crew
        self._follower = Follower(connection, screen, clock, crew)
        self._task_id = str(uuid.uuid4()) if call.task else None

    def __repr__(self) -> str:
        return f"<Caller {self._call.tool} task={self._call.task} id={self._task_id}>"

    async def run(self, capabilities: dict[str, Any]) -> int:
        """Call, show what comes of it, and return the exit code; cancelled, cancel the request."""
        if self._call.log_level is not None and "logging" in capabilities:
            await self._connection.request("logging/setLevel", {"level": self._call.log_level})
        task_id = self._task_id
        # A task's request has the task's id: who knows the task can cancel it.
        exchange = self._connection.start(
            "tools/call", self._params(task_id), None if task_id is None else dump(task_id)
        )
        try:
            with self._screen.bar(self._call.tool):
                outcome = await self._await(exchange, task_id)
        except asyncio.CancelledError:
            await self._cancel(exchange, task_id)
            raise
        except (Refusal, UpstreamLost) as wrong:
            if task_id is None or not self._desk.created.is_set():
                raise
            self._connection.left = True
            return show_unknown(self._screen, wrong, self._way_back(exchange, task_id))
        if outcome is not None:
            return show_outcome(self._screen, outcome)
        return await self._leave(exchange, str(task_id))

    def _params(self, task_id: str | None) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        if self._screen.shows_bar:
            meta["progressToken"] = PROGRESS_TOKEN
        if task_id is not None:
            meta |= augment(task_id, self._call.keep_alive)
        params: dict[str, Any] = {"name": self._call.tool, "arguments": self._call.arguments}
        return {**params, "_meta": meta} if meta else params

    async def _await(self, exchange: Exchange, task_id: str | None) -> Outcome | None:
        """Return the outcome, `None` where a detached task has been created."""
        if task_id is None:
            await asyncio.wait({exchange.answer})
            return _plain(exchange)
        self._desk.expected = task_id
        created = self._crew.spawn(self._desk.created.wait(), "created")
        await asyncio.wait({exchange.answer, created}, return_when=asyncio.FIRST_COMPLETED)
        if not self._desk.created.is_set() and not await self._was_created(exchange, task_id):
            if exchange.answer.exception() is None:
                self._screen.note("the server ran this as an ordinary call, not as a task")
            return _plain(exchange)
        if self._call.detach and not exchange.answer.done():
            return None
        return await self._follower.until_end(task_id, exchange)

    async def _was_created(self, exchange: Exchange, task_id: str) -> bool:
        """Find out after a broken stream whether the task was created unheard.

        The id is the client's own, so that it can ask; asking before the notification is the
        fallback that the SEP leaves for connections that degrade.
        """
        wrong = exchange.answer.exception()
        if not isinstance(wrong, UpstreamLost) or not wrong.sent or wrong.status is not None:
            return False
        self._screen.note(f"{wrong}; looking for the task")
        for probe in range(_PROBES):
            await self._follower.pause(_LOOK_SECONDS * 2**probe, None)
            try:
                await self._follower.look(task_id)
            except (Refusal, UpstreamLost):
                continue
            return True
        return False

    async def _leave(self, exchange: Exchange, task_id: str) -> int:
        self._connection.left = True
        try:
            view = await self._follower.look(task_id)
        except (Refusal, UpstreamLost) as wrong:
            self._screen.note(f"cannot look at the task: {wrong}")
            view = TaskView(task_id=task_id, status="submitted")
        return show_detached(self._screen, view, self._way_back(exchange, task_id))

    def _way_back(self, exchange: Exchange, task_id: str) -> WayBack:
        connection = self._connection
        return WayBack(
            task_id=task_id,
            target=self._call.target,
            session=connection.session,
            version=connection.version,
            request_id=exchange.ident,
        )

    async def _cancel(self, exchange: Exchange, task_id: str | None) -> None:
        """Tell the server that nobody waits any more; for a task, see whether it stops (section 4.8)."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await cancel_request(self._connection, exchange.ident, task_id)
                if task_id is not None and self._desk.created.is_set():
                    status = await settle_cancel(self._follower, task_id)
                    self._screen.note(f"task {task_id}: {status}")
        except (Refusal, UpstreamLost, TimeoutError) as wrong:
            self._screen.note(f"the server may not know that the call was cancelled: {wrong}")


async def cancel_request(connection: Connection, request_id: bytes, task_id: str | None) -> None:
    """Send `notifications/cancelled` for a request."""
    params: dict[str, Any] = {"requestId": msgspec.Raw(request_id), "reason": "the user cancelled it"}
    if task_id is not None:
        params["_meta"] = related(task_id)
    await connection.notify("notifications/cancelled", params)


async def settle_cancel(follower: Follower, task_id: str) -> str:
    """Look until the task has ended, for a bounded number of times; return its last status."""
    status = "unknown"
    for look in range(_LOOKS):
        view = await follower.look(task_id)
        status = view.status
        if view.ended:
            break
        await follower.pause(_LOOK_SECONDS * (look + 1), None)
    return status


def _plain(exchange: Exchange) -> Outcome:
    wrong = exchange.answer.exception()
    if isinstance(wrong, Refusal):
        return Outcome(status="error", error=as_error(wrong))
    if wrong is not None:
        raise wrong
    result = exchange.answer.result()
    failed = as_object(value(result)).get("isError") is True
    return Outcome(status="failed" if failed else "completed", result=result)
