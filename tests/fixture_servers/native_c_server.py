"""FastMCP 4's own task server: dialect C, native, run in a virtual environment of its own.

`python -m tests.fixture_servers.native_c_server PORT`; its tools are named like those of the others.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

server = FastMCP("native-c")
server.add_extension(TasksExtension(url="memory://", name="native-c", concurrency=20))


@server.tool(task=True, output_schema=None)
async def slow_count(ctx: Context, seconds: float = 10.0) -> str:
    """Count for some seconds, with progress in four steps."""
    for step in range(4):
        await ctx.report_progress(step, 4, f"step {step} of 4")
        await asyncio.sleep(seconds / 4)
    return f"Counted for {seconds:g} seconds."


@server.tool(output_schema=None)
async def echo(message: str) -> str:
    """Say the same."""
    return f"Echo: {message}"


@server.tool(task=True, output_schema=None)
async def fail() -> str:
    """Fail with isError."""
    raise ToolError("This tool always fails.")


@server.tool(task=True, output_schema=None)
async def protocol_error() -> str:
    """Fail with a JSON-RPC error."""
    raise MCPError(-32050, "This tool answers with a protocol error.")


@server.tool(task=True, output_schema=None)
async def never() -> str:
    """Run until cancelled."""
    await asyncio.Event().wait()
    return ""


@server.tool(task=True, output_schema=None)
async def ask_name(ctx: Context) -> str | InputRequiredResult:
    """Elicit a name by a form and greet."""
    asking = None if ctx.is_background_task else ctx.request_context
    if asking and asking.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        given = await ctx.elicit("What is your name?", str)
        return f"Hello, {given.data}!"
    answers = ctx.input_responses
    if not answers:
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        question = {"message": "What is your name?", "requestedSchema": form}
        asked = ElicitRequest.model_validate({"method": "elicitation/create", "params": question})
        return InputRequiredResult(input_requests={"name": asked})
    answer = ElicitResult.model_validate(answers["name"])
    return f"Hello, {(answer.content or {})['name']}!"


if __name__ == "__main__":
    server.run(
        transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="error"
    )
