"""One tool call, plain or as a task, in the dialect that was agreed on."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from gateway.client.call_a import CallA
from gateway.client.call_b import CallB
from gateway.client.call_c import CallC
from gateway.client.connection import Exchange
from gateway.client.means import Means
from gateway.client.options import Call, Outcome
from gateway.client.plain import CANCEL_SECONDS, cancel_request, params_of, plain_outcome
from gateway.client.report import WayBack, show_detached, show_outcome, show_unknown
from gateway.client.spoken import Spoken
from gateway.client.view import Letter, TaskView
from gateway.protocol.codes import METHOD_NOT_FOUND, MISSING_CAPABILITY
from gateway.protocol.errors import Refusal, UpstreamLost


class OneCall(Protocol):
    """A call on its way, in one dialect."""

    @property
    def task(self) -> TaskView | None:
        """The task, once there is surely one."""
        ...

    @property
    def request_id(self) -> bytes | None:
        """The id of the request that can be cancelled to end the task, where the dialect has it so."""
        ...

    async def outcome(self) -> Outcome | None:
        """Call, and return the outcome; `None` where a task that is to be left exists.

        Raise `Refusal` or `UpstreamLost`.
        """
        ...

    async def look(self) -> TaskView:
        """Look at the task once; raise `Refusal` or `UpstreamLost`."""
        ...

    async def cancel(self) -> None:
        """Tell the server that nobody waits any more; raise `Refusal` or `UpstreamLost`."""
        ...


class PlainCall:
    """An ordinary call of the handshake era."""

    task: TaskView | None = None
    request_id: bytes | None = None

    def __init__(self, call: Call, means: Means) -> None:
        self._call = call
        self._means = means
        self._exchange: Exchange | None = None

    def __repr__(self) -> str:
        return f"<PlainCall {self._call.tool}>"

    async def outcome(self) -> Outcome | None:
        """Call and return the outcome."""
        params = params_of(self._call, self._means.screen)
        self._exchange = self._means.connection.start("tools/call", params)
        await asyncio.wait({self._exchange.answer})
        return plain_outcome(self._exchange)

    async def look(self) -> TaskView:
        """Raise, as there is no task to look at."""
        raise UpstreamLost("there is no task")

    async def cancel(self) -> None:
        """Cancel the request."""
        if self._exchange is not None:
            await cancel_request(self._means.connection, self._exchange.ident)


class Caller:
    """Runs one call over an open connection."""

    def __init__(self, call: Call, means: Means, spoken: Spoken) -> None:
        self._call = call
        self._means = means
        self._spoken = spoken

    def __repr__(self) -> str:
        return f"<Caller {self._call.tool} {self._spoken!r}>"

    async def run(self) -> int:
        """Call, show what comes of it, and return the exit code; cancelled, cancel the request."""
        spoken, means = self._spoken, self._means
        level = self._call.log_level
        if level is not None and not spoken.stateless and "logging" in spoken.capabilities:
            await means.connection.request("logging/setLevel", {"level": level})
        one = await self._begin()
        try:
            with means.screen.bar(self._call.tool):
                outcome = await one.outcome()
        except asyncio.CancelledError:
            await self._cancel(one)
            raise
        except (Refusal, UpstreamLost) as wrong:
            if one.task is None:
                raise
            means.connection.left = True
            return show_unknown(means.screen, wrong, self._way_back(one, one.task))
        if outcome is None and one.task is not None:
            return await self._leave(one, one.task)
        outcome = outcome or Outcome(status="error")
        code = show_outcome(means.screen, outcome)
        self._advise(outcome)
        return code

    async def _begin(self) -> OneCall:
        call, means, spoken = self._call, self._means, self._spoken
        if spoken.stateless:
            return CallC(call, means, may_be_task=call.task and spoken.letter == "c")
        if spoken.letter == "a":
            return CallA(call, means)
        if spoken.letter == "b":
            found = CallB(call, means, can_cancel=spoken.can_cancel)
            if await found.allowed():
                return found
        return PlainCall(call, means)

    async def _leave(self, one: OneCall, task: TaskView) -> int:
        self._means.connection.left = True
        try:
            task = await one.look()
        except (Refusal, UpstreamLost) as wrong:
            self._means.screen.note(f"cannot look at the task: {wrong}")
        return show_detached(self._means.screen, task, self._way_back(one, task))

    def _way_back(self, one: OneCall, task: TaskView) -> WayBack:
        connection = self._means.connection
        letter: Letter = self._spoken.letter or "a"
        return WayBack(
            task_id=task.task_id,
            target=self._call.target,
            letter=letter,
            session=connection.session,
            version=connection.version,
            request_id=one.request_id,
        )

    async def _cancel(self, one: OneCall) -> None:
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await one.cancel()
        except (Refusal, UpstreamLost, TimeoutError) as wrong:
            words = f"the server may not know that the call was cancelled: {wrong}"
            self._means.screen.note(words)

    def _advise(self, outcome: Outcome) -> None:
        """Say what to try where a tool may only run as a task."""
        code: Any = (outcome.error or {}).get("code")
        if not self._call.task and self._spoken.tasks and code in (METHOD_NOT_FOUND, MISSING_CAPABILITY):
            self._means.screen.note("the tool may run as a task only: add --task")
