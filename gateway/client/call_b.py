"""Dialect B: one call as a task (2025-11-25, basic/utilities/tasks)."""

from __future__ import annotations

import asyncio

from gateway.client.connection import Exchange
from gateway.client.follow_b import FollowerB
from gateway.client.means import Means
from gateway.client.options import Call, Outcome
from gateway.client.plain import ORDINARY, cancel_request, params_of, plain_outcome
from gateway.client.tools import find_tool
from gateway.client.v2025_11_25 import augment, created, support
from gateway.client.view import TaskView
from gateway.protocol.errors import UpstreamLost


class CallB:
    """A call whose answer is a task; `can_cancel` tells whether the server declares `tasks/cancel`."""

    def __init__(self, call: Call, means: Means, *, can_cancel: bool) -> None:
        self._call = call
        self._means = means
        self._can_cancel = can_cancel
        self._follower = FollowerB(means)
        self._exchange: Exchange | None = None
        self.request_id: bytes | None = None
        self.task: TaskView | None = None

    def __repr__(self) -> str:
        return f"<CallB {self._call.tool} {self.task and self.task.task_id}>"

    async def allowed(self) -> bool:
        """Tell whether the tool may be run as a task ("Tool-Level Negotiation").

        Raise `UpstreamLost` where it may not and the user insists on the dialect.
        """
        tool = await find_tool(self._means.connection, self._call.tool)
        if tool is None:
            self._means.screen.note(f"the server lists no tool {self._call.tool}")
            return False
        if support(tool) in ("optional", "required"):
            return True
        words = f"{self._call.tool} cannot run as a task (its execution.taskSupport is {support(tool)})"
        if self._call.target.dialect == "b":
            raise UpstreamLost(words)
        self._means.screen.note(f"{words}: this is an ordinary call")
        return False

    async def outcome(self) -> Outcome | None:
        """Call; return the outcome, `None` where a task that is to be left has been created."""
        means = self._means
        params = params_of(self._call, means.screen)
        if self._call.keep_alive is None:
            means.screen.note("dialect b cannot ask for ever: the server says how long it keeps the task")
        params["task"] = augment(self._call.keep_alive)
        exchange = self._exchange = means.connection.start("tools/call", params)
        await asyncio.wait({exchange.answer})
        if exchange.answer.exception() is None:
            self.task = created(exchange.answer.result())
        if self.task is None:
            if exchange.answer.exception() is None:
                means.screen.note(ORDINARY)
            return plain_outcome(exchange)
        if self._call.detach:
            return None
        return await self._follower.until_end(self.task.task_id)

    async def look(self) -> TaskView:
        """Look at the task once; raise `Refusal` or `UpstreamLost`."""
        return await self._follower.watch.look("" if self.task is None else self.task.task_id)

    async def cancel(self) -> None:
        """Cancel the task, or the request where there is none yet ("Cancelling Tasks")."""
        screen = self._means.screen
        if self.task is None:
            if self._exchange is not None:
                await cancel_request(self._means.connection, self._exchange.ident)
        elif self._can_cancel:
            view = await self._follower.cancel(self.task.task_id)
            screen.note(f"task {view.task_id}: {view.status}")
        else:
            screen.note(f"task {self.task.task_id} runs on: the server does not cancel tasks")
