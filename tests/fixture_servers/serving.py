"""How a fixture server is reached: arguments, transports, the line that says it is ready.

The modules of the SDK that are used here have the same shape in `mcp` 1.30 and 2.x.
"""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import uvicorn
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.fixture_servers.contents import Contents, RunLog

LOCAL = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=["127.0.0.1:*", "localhost:*"],
    allowed_origins=["http://127.0.0.1:*", "http://localhost:*"],
)


class Runs(Protocol):
    """The part of an SDK server that both generations share."""

    def create_initialization_options(self) -> Any:
        """Return what `run` needs to answer `initialize`."""
        ...

    async def run(self, read_stream: Any, write_stream: Any, initialization_options: Any) -> None:
        """Serve one session."""
        ...


class MemoryEvents(EventStore):
    """Events kept for `Last-Event-ID`, for as long as the process lives."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep an event; its id is its place in the list."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed on the stream of an event."""
        if not last_event_id.isdecimal() or not 0 < int(last_event_id) <= len(self._events):
            return None
        place = int(last_event_id)
        stream_id = self._events[place - 1][0]
        for number, (stream, message) in enumerate(self._events[place:], place + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


class _Endpoint:
    """An ASGI application at one path; a plain function would be taken for a request handler."""

    def __init__(self, serve: ASGIApp) -> None:
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)


def arguments(description: str | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("transport", choices=["stdio", "http", "sse"])
    parser.add_argument("port", type=int, nargs="?", default=0, help="0 takes a free one")
    parser.add_argument("--stateless", action="store_true", help="no sessions (http)")
    parser.add_argument("--json", action="store_true", help="JSON answers in place of streams (http)")
    parser.add_argument("--events", action="store_true", help="number the events and replay them (http)")
    parser.add_argument("--retry", type=int, metavar="MS", help="the retry field of primed streams (http)")
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="one JSON line per start and end of a tool"
    )
    parser.add_argument("--page-size", type=int, default=0, help="tools in a page, 0 for all")
    parser.add_argument("--extra-tools", type=int, default=0, help="so many more tools")
    return parser.parse_args()


def serve(server: Runs, contents: Contents, options: argparse.Namespace) -> None:
    """Serve until the process is ended (http, sse) or its input closes (stdio)."""
    logging.disable(logging.WARNING)
    contents.log = RunLog(options.log)
    if options.transport == "stdio":
        anyio.run(_stdio, server)
    else:
        anyio.run(
            _http, _sse_app(server) if options.transport == "sse" else _http_app(server, options), options
        )


async def _stdio(server: Runs) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _http_app(server: Any, options: argparse.Namespace) -> Starlette:
    manager = StreamableHTTPSessionManager(
        app=server,
        event_store=MemoryEvents() if options.events else None,
        json_response=options.json,
        stateless=options.stateless,
        security_settings=LOCAL,
        retry_interval=options.retry,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route("/mcp", _Endpoint(manager.handle_request))], lifespan=lifespan)


def _sse_app(server: Runs) -> Starlette:
    transport = SseServerTransport("/messages/", security_settings=LOCAL)

    async def connect(scope: Scope, receive: Receive, send: Send) -> None:
        async with transport.connect_sse(scope, receive, send) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    return Starlette(
        routes=[
            Route("/sse", _Endpoint(connect), methods=["GET"]),
            Mount("/messages/", app=transport.handle_post_message),
        ]
    )


async def _http(app: Starlette, options: argparse.Namespace) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    listener.listen(128)
    path = "sse" if options.transport == "sse" else "mcp"
    sys.stdout.write(f"ready http://127.0.0.1:{listener.getsockname()[1]}/{path}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])
