"""A plain MCP server of the official package on a free port of this machine: it knows no tasks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage
from pydantic import BaseModel, Field


class Order(BaseModel):
    """What the form of `order` asks for."""

    size: int = Field(ge=1, le=9, description="How many?")
    gift: bool = False


class Forever:
    """What is known of the tool `forever`."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()


def build(known: Forever) -> MCPServer:
    server = MCPServer("plain", log_level="CRITICAL")

    async def echo(text: str, times: int = 1) -> str:
        return " ".join([text] * times)

    async def steps(ctx: Context[Any, Any]) -> str:
        for step in range(1, 4):
            await ctx.report_progress(step, 3, f"step {step}")
        return "all steps"

    async def order(ctx: Context[Any, Any]) -> str:
        found = await ctx.elicit("Your order?", Order)
        return found.action if found.action != "accept" else found.data.model_dump_json()

    async def visit(ctx: Context[Any, Any]) -> str:
        found = await ctx.elicit_url("Please sign in", "https://example.com/login", "e1")
        return found.action

    async def fail() -> str:
        raise RuntimeError("the pump is broken")

    async def forever() -> str:
        known.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            known.ended.set()
        return "never"

    async def pause(ctx: Context[Any, Any]) -> str:
        await ctx.close_sse_stream()
        return "after the pause"

    for tool in (pause, echo, steps, order, visit, fail, forever):
        server.add_tool(tool)
    return server


class Events(EventStore):
    """The events of all streams, so that a stream can be read on from its last one."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream_id, _ = self.kept[int(last_event_id) - 1]
        for number, (stream, message) in enumerate(self.kept, 1):
            if stream == stream_id and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


class Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextlib.asynccontextmanager
async def serve(*, json_response: bool = False) -> AsyncGenerator[tuple[str, Forever]]:
    """Serve and yield the URL and what becomes of the tool `forever`."""
    known = Forever()
    app = build(known).streamable_http_app(
        json_response=json_response, event_store=Events(), retry_interval=50
    )
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1, ws="none")
    server = Server(config)
    sock = config.bind_socket()
    serving = asyncio.get_running_loop().create_task(server.serve([sock]))
    try:
        await asyncio.wait_for(server.listening.wait(), 10)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", known
    finally:
        server.should_exit = True
        await serving
        sock.close()
