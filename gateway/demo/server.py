"""The tools of the demo upstream; each shows one thing that a task has to cope with."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel, Field

STEP = 0.5
LIMIT = 3600.0
MAX_KIB = 64 * 1024
PAGE = (
    "The demo upstream is a plain MCP server. Whatever it knows of tasks, the gateway taught its clients."
)

server = MCPServer(
    "demo-upstream",
    version="1.0.0",
    instructions="Try slow_count as a task, hang up, come back later and fetch the result.",
    log_level="WARNING",
)


class Name(BaseModel):
    """Who you are."""

    name: str = Field(description="Your name")


@server.tool()
async def slow_count(ctx: Context[Any, Any], seconds: float = 10.0) -> str:
    """Count for some seconds, with progress every half second, then say how far it came."""
    if not 0 <= seconds <= LIMIT:
        raise ToolError(f"seconds must be between 0 and {LIMIT:.0f}")
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while (passed := loop.time() - begin) < seconds:
        await ctx.report_progress(round(passed, 1), seconds, f"{passed:.1f} of {seconds:g} seconds")
        await asyncio.sleep(min(STEP, seconds - passed))  # noqa: TID251 - the demo knows no gateway clock
    await ctx.report_progress(seconds, seconds, "done")
    return f"Counted for {seconds:g} seconds."


@server.tool()
async def ask_name(ctx: Context[Any, Any]) -> str:
    """Ask the user for a name and greet."""
    answer = await ctx.elicit("What is your name?", Name)
    if answer.action == "accept":
        return f"Hello, {answer.data.name}!"
    return f"No name was given ({answer.action})."


@server.tool()
async def summarise(ctx: Context[Any, Any], text: str) -> str:
    """Have the client's model summarise a text."""
    prompt = TextContent(type="text", text=f"Summarise in one sentence:\n\n{text}")
    answer = await ctx.session.create_message(  # pyright: ignore[reportDeprecated] - legacy servers sample
        [SamplingMessage(role="user", content=prompt)], max_tokens=200, related_request_id=ctx.request_id
    )
    content = answer.content
    return content.text if isinstance(content, TextContent) else f"The model answered with {content.type}."


@server.tool()
def fail() -> str:
    """Fail as tools do: with a result that says isError."""
    raise ToolError("This tool always fails.")


@server.tool()
def protocol_error() -> str:
    """Answer with a JSON-RPC error in place of a result."""
    raise MCPError(-32050, "This tool always answers with a protocol error.", {"tool": "protocol_error"})


@server.tool(structured_output=False)
def large(kib: int = 256) -> str:
    """Return a text of so many KiB."""
    if not 0 < kib <= MAX_KIB:
        raise ToolError(f"kib must be between 1 and {MAX_KIB}")
    line = "0123456789abcdef" * 4
    return line * (kib * 1024 // len(line))


@server.tool()
async def never() -> str:
    """Run until somebody cancels it."""
    await asyncio.Event().wait()
    return "never said"


@server.resource("demo://about", mime_type="text/plain")
def about() -> str:
    """Say what this server is."""
    return PAGE


@server.prompt()
def plan_day(city: str) -> str:
    """Plan a day in a city."""
    return f"Plan a day in {city}: one museum, one walk, one meal."
