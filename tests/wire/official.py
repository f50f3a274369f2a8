"""The official client of `mcp` 2.x in the handshake era, and what it is asked and told."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import types
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.processes import ROOT

READ_LIMIT = 30.0


class Desk:
    """Answers what servers ask and keeps what they tell."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.logged: list[object] = []
        self.told: list[str] = []
        self.progress: list[tuple[float, float | None, str | None]] = []
        self._changed = anyio.Event()

    async def elicit(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Give a name for a form, consent for a URL."""
        self.questions.append(params.message)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": f"Ada {len(self.questions)}"})

    async def sample(
        self, context: object, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        """Answer as a model would."""
        self.questions.append("sampling")
        answer = types.TextContent(type="text", text="In short: good.")
        return types.CreateMessageResult(role="assistant", content=answer, model="test")

    async def roots(self, context: object) -> types.ListRootsResult:
        """Return two roots."""
        uris = ("file:///one", "file:///two")
        return types.ListRootsResult.model_validate({"roots": [{"uri": uri} for uri in uris]})

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Keep what was logged."""
        self.logged.append(params.data)

    async def hear(self, message: Any) -> None:
        """Keep the methods of notifications."""
        if isinstance(method := getattr(message, "method", None), str):
            self.told.append(method)
            self._changed.set()

    async def step(self, progress: float, total: float | None, message: str | None) -> None:
        """Keep progress."""
        self.progress.append((progress, total, message))

    async def wait_told(self, method: str) -> None:
        """Wait for a notification; raise `TimeoutError`."""
        with anyio.fail_after(READ_LIMIT):
            while method not in self.told:
                self._changed = anyio.Event()
                await self._changed.wait()


@asynccontextmanager
async def connect(target: str | Sequence[str], desk: Desk) -> AsyncGenerator[ClientSession]:
    """Open a session with a URL (one that ends in /sse by the legacy transport) or a command."""
    if not isinstance(target, str):
        opened = stdio_client(
            StdioServerParameters(command=target[0], args=list(target[1:]), cwd=ROOT), sys.stderr
        )
    elif target.endswith("/sse"):
        opened = sse_client(target)
    else:
        opened = streamable_http_client(target)
    async with (
        opened as streams,
        ClientSession(
            streams[0],
            streams[1],
            read_timeout_seconds=READ_LIMIT,
            sampling_callback=desk.sample,
            elicitation_callback=desk.elicit,
            list_roots_callback=desk.roots,
            logging_callback=desk.log,
            message_handler=desk.hear,
        ) as session,
    ):
        await session.initialize()
        yield session


def words(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
