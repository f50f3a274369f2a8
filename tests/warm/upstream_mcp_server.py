"""An ordinary MCP server on the public API of the `mcp` package: `stdio`, or `http PORT` / `sse PORT`."""

from __future__ import annotations

import asyncio
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("fixture")


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Report progress so many times."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps)
    return f"counted to {steps}"


@server.tool()
async def wait(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ValueError("it failed")


def main() -> None:
    if sys.argv[1] == "stdio":
        server.run("stdio")
    elif sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("sse", host="127.0.0.1", port=int(sys.argv[2]))


if __name__ == "__main__":
    main()
