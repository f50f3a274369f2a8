"""`mcp` 1.30 on pipes: a plain call, a task, and a task that asks, over a command.

`python -m tests.clients.py1_pipe COMMAND…` writes what it was answered as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import types
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(command: list[str]) -> dict[str, Any]:
    """Return the version, and what each call said."""

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write, elicitation_callback=elicit) as session,
    ):
        welcome = await session.initialize()
        plain = await session.call_tool("count", {})
        return {
            "version": welcome.protocolVersion,
            "plain": plain.content[0].text,
            "task": await _task(session, "count"),
            "asked": await _task(session, "ask_name"),
        }


async def _task(session: ClientSession, tool: str) -> str:
    tasks = session.experimental
    created = await tasks.call_tool_as_task(tool, {}, ttl=60_000)
    result = await tasks.get_task_result(created.task.taskId, types.CallToolResult)
    return result.content[0].text


sys.stdout.write(f"{json.dumps(asyncio.run(main(sys.argv[1:])))}\n")
