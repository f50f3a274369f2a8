"""The fixture contents on `mcp` 1.x with the tasks of that package: dialect B, native.

`only_as_task` is a tool that its server runs as a task alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp import types
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.experimental.task_support import TaskSupport
from mcp.shared.exceptions import McpError

from tests.fixture_servers import common_tools, mcp1_server, serving
from tests.fixture_servers.contents import Contents, Json, RpcFailed

ONLY = "only_as_task"
GROUP: ContextVar[TaskGroup] = ContextVar("GROUP")


@asynccontextmanager
async def _run(_: TaskSupport) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        GROUP.set(group)
        yield
        group.cancel_scope.cancel()


# The package keeps one group for all sessions, which the first session that ends takes away.
TaskSupport.run = _run
TaskSupport.task_group = property(lambda _: GROUP.get())


class Call(mcp1_server.Call):
    """A tool's way back to its caller, by way of its task."""

    def __init__(self, context: Any, task: ServerTaskContext) -> None:
        super().__init__(context)
        self._task = task

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Show progress in the status too."""
        if message:
            await self._task.update_status(message, notify=False)
        await super().progress(done, total, message)

    async def ask(self, method: str, params: Json, name: str | None = None) -> Json:
        """Elicit by way of the task; what else is asked goes the plain way."""
        if method != "elicitation/create":
            return await super().ask(method, params, name)
        answer = await self._task.elicit(params["message"], params["requestedSchema"])
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def build(contents: Contents) -> mcp1_server.Served:
    """Return a server of the contents, with tasks."""
    server = mcp1_server.build(contents)
    server.experimental.enable_tasks()
    plain = server.request_handlers[types.CallToolRequest]
    contents.listed[:] = [
        {**tool, "execution": {"taskSupport": "required" if tool["name"] == ONLY else "optional"}}
        for tool in contents.listed
    ]

    async def call_tool(request: types.CallToolRequest) -> Any:
        context = server.request_context
        name = request.params.name
        if not context.experimental.is_task:
            if name == ONLY:
                raise McpError(types.ErrorData(code=types.METHOD_NOT_FOUND, message=f"{name} is a task"))
            return await plain(request)

        async def work(task: ServerTaskContext) -> types.CallToolResult:
            try:
                answer = await contents.call(Call(context, task), name, request.params.arguments or {})
            except RpcFailed as failure:
                raise McpError(types.ErrorData(code=failure.code, message=failure.message)) from failure
            return types.CallToolResult.model_validate(answer)

        return types.ServerResult(await context.experimental.run_task(work))

    server.request_handlers[types.CallToolRequest] = call_tool
    return server


async def _only(call: Any, arguments: Json) -> str:
    return "Done as a task."


if __name__ == "__main__":
    chosen = serving.arguments(__doc__)
    made = common_tools.make(chosen.page_size, chosen.extra_tools)
    made.add(ONLY, "Run as a task alone.", {"type": "object"}, _only)
    serving.serve(build(made), made, chosen)
