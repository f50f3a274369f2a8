"""A server of the stateless era on the `mcp` package: `stdio`, or `http PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any, Any]
Json = dict[str, Any]

ASK_NAME = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
SCHEMA = {"type": "object"}
MIRRORED = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
NAMES = ("count", "ask", "touch", "never", "who")
bus = InMemorySubscriptionBus()
ended: list[str] = []


async def count(context: Context, params: types.CallToolRequestParams) -> Any:
    for step in range(3):
        await context.session.report_progress(step + 1, 3)
    return said("counted")


async def ask(context: Context, params: types.CallToolRequestParams) -> Any:
    """Ask for a name, then for the roots; the name travels as the state."""
    answers: Any = params.input_responses or {}
    if "roots" in answers:
        return said(f"{params.request_state}: {answers['roots'].roots[0].uri}")
    if "name" in answers:
        given: Json = answers["name"].content or {}
        return asks({"roots": {"method": "roots/list"}}, str(given.get("name", answers["name"].action)))
    return asks({"name": ASK_NAME}, None)


async def touch(context: Context, params: types.CallToolRequestParams) -> Any:
    await bus.publish(ToolsListChanged())
    await bus.publish(ResourceUpdated(uri=str((params.arguments or {})["uri"])))
    return said("touched")


async def never(context: Context, params: types.CallToolRequestParams) -> Any:
    await context.session.report_progress(1)
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("never")


async def who(context: Context, params: types.CallToolRequestParams) -> Any:
    meta = (context.params or {}).get("_meta")
    return types.CallToolResult.model_validate(
        {"content": [], "structuredContent": {"meta": meta, "ended": ended}}
    )


async def mirror(context: Context, params: types.CallToolRequestParams) -> Any:
    return said(f"in {(params.arguments or {}).get('region')}")


RUNS = {"count": count, "ask": ask, "touch": touch, "never": never, "who": who, "mirror": mirror}


def said(text: str) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": [{"type": "text", "text": text}]})


def asks(entries: Json, state: str | None) -> types.InputRequiredResult:
    found: Json = {"resultType": "input_required", "inputRequests": entries}
    return types.InputRequiredResult.model_validate({**found, "requestState": state} if state else found)


async def call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
    if params.name not in RUNS:
        raise MCPError(-32602, f"Unknown tool: {params.name}")
    return await RUNS[params.name](context, params)


async def list_tools(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    if params is None or params.cursor is None:
        tools = [{"name": name, "inputSchema": SCHEMA} for name in NAMES]
        return types.ListToolsResult.model_validate({"tools": tools, "nextCursor": "2"})
    return types.ListToolsResult.model_validate({"tools": [{"name": "mirror", "inputSchema": MIRRORED}]})


server = Server[Any](
    "stateless",
    version="1.0",
    instructions="Ask.",
    on_call_tool=call_tool,
    on_list_tools=list_tools,
    on_subscriptions_listen=ListenHandler(bus),
)


async def over_pipe() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    if sys.argv[1] == "stdio":
        anyio.run(over_pipe)
    else:
        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")


if __name__ == "__main__":
    main()
