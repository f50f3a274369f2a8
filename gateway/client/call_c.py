"""Dialect C, and plain calls of its era: one call whose answer may be a task, or a question first.

2026-07-28, basic/patterns/mrtr; tasks extension, "Polymorphic Results".
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from gateway.client.follow_c import FollowerC
from gateway.client.means import Means
from gateway.client.mirror import mirrored
from gateway.client.options import Call, Outcome
from gateway.client.plain import ORDINARY, outcome_of, params_of, plain_outcome
from gateway.client.sep2663 import created, read_input_required, result_type
from gateway.client.tools import find_tool
from gateway.client.trees import as_object
from gateway.client.view import TaskView
from gateway.protocol.codes import HEADER_MISMATCH
from gateway.protocol.envelope import value
from gateway.protocol.errors import Refusal, UpstreamLost

_ROUNDS: Final = 50
_STATE_SECONDS: Final = 0.5


class CallC:
    """A call that the server may make a task where this client says that it may."""

    request_id: bytes | None = None

    def __init__(self, call: Call, means: Means, *, may_be_task: bool) -> None:
        self._call = call
        self._means = means
        self._may_be_task = may_be_task
        self._follower = FollowerC(means)
        self.task: TaskView | None = None

    def __repr__(self) -> str:
        return f"<CallC {self._call.tool} {self.task and self.task.task_id}>"

    async def outcome(self) -> Outcome | None:
        """Call; return the outcome, `None` where a task that is to be left has been created."""
        found = await self._rounds()
        if isinstance(found, Outcome):
            if self._may_be_task and found.result is not None:
                self._means.screen.note(ORDINARY)
            return found
        self.task = found
        if self._call.detach and not found.ended:
            return None
        return await self._follower.until_end(found.task_id)

    async def look(self) -> TaskView:
        """Look at the task once; raise `Refusal` or `UpstreamLost`."""
        return await self._follower.watch.look("" if self.task is None else self.task.task_id)

    async def cancel(self) -> None:
        """Cancel the task; a plain request ends with its stream, which is closed in any case."""
        if self.task is not None:
            await self._follower.cancel(self.task.task_id)
            status = await self._follower.watch.settle(self.task.task_id)
            self._means.screen.note(f"task {self.task.task_id}: {status}")

    async def _rounds(self) -> Outcome | TaskView:
        """Call, answer what is asked and call again, until there is a result or a task."""
        if self._call.keep_alive is not msgspec.UNSET:
            self._means.screen.note(
                "dialect c has no --keep-alive: the server says how long it keeps the task"
            )
        headers = await self._headers()
        first = params_of(self._call, self._means.screen)
        params, listed = first, False
        for _ in range(_ROUNDS):
            exchange = self._means.connection.start("tools/call", params, headers=headers)
            await asyncio.wait({exchange.answer})
            outcome = plain_outcome(exchange)
            if outcome.result is None:
                if (outcome.error or {}).get("code") != HEADER_MISMATCH or listed:
                    return outcome
                # The tool's schema may have changed ("Client Behavior").
                headers, listed = await self._headers(), True
                continue
            kind = result_type(outcome.result)
            if kind == "complete":
                return outcome_of(outcome.result)
            if kind == "task":
                return self._created(outcome.result)
            params = {**first, **await self._answers(outcome.result)}
        raise UpstreamLost(f"the server asks again and again: given up after {_ROUNDS} rounds")

    def _created(self, result: bytes) -> TaskView:
        if not self._may_be_task:
            raise UpstreamLost("the server answered with a task, which this client did not allow")
        return created(result)

    async def _answers(self, result: bytes) -> dict[str, Any]:
        """Return what a retry has more than the first request; raise `Refusal` where nobody answers."""
        wanted = read_input_required(result)
        more: dict[str, Any] = {}
        if wanted.asks:
            more["inputResponses"] = {
                key: await self._means.asker.respond(ask) for key, ask in wanted.asks.items()
            }
        else:
            await self._follower.watch.pause(_STATE_SECONDS)
        if wanted.state is not None:
            more["requestState"] = msgspec.Raw(wanted.state)
        return more

    async def _headers(self) -> dict[str, str]:
        """Return the headers that repeat arguments; raise `UpstreamLost` for a broken definition."""
        try:
            tool = await find_tool(self._means.connection, self._call.tool)
        except Refusal:
            tool = None
        if tool is None:
            return {}
        arguments = {name: value(raw) for name, raw in self._call.arguments.items()}
        try:
            return mirrored(as_object(tool.get("inputSchema")), arguments)
        except ValueError as wrong:
            raise UpstreamLost(f"the definition of {self._call.tool} is broken: {wrong}") from None
