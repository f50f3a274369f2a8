"""The server of the stateless era alone, over HTTP in the test's own process, and what it has seen."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from tests.wire.checked import book
from tests.wire.modern_server import Modern
from tests.wire.modern_words import VERSION, Json
from tests.wire.seed_client import eventually
from tests.wire.stateless_rules import NAMED, sentinel

_STATUS: Final = {-32601: 404, -32020: 400, -32021: 400, -32022: 400}


class Seen:
    """What a server has seen: of this process, or in the log of another one."""

    def __init__(self, lines: Callable[[], list[Json]]) -> None:
        self._lines = lines
        self._begin = 0

    @property
    def lines(self) -> list[Json]:
        """All that was noted."""
        return self._lines()

    def asked(self, method: str, **arguments: object) -> list[Json]:
        """Return the messages of a method, calls of tools with these arguments alone."""
        return [
            one
            for one in self.lines
            if one.get("method") == method
            and arguments.items() <= one.get("params", {}).get("arguments", {}).items()
        ]

    def cancelled(self, **arguments: object) -> list[Json]:
        """Return the calls with these arguments that were cancelled."""
        found = [one["cancelled"] for one in self.lines if "cancelled" in one]
        return [one for one in found if arguments.items() <= one["params"].get("arguments", {}).items()]

    async def until(self, wanted: Callable[[], object]) -> None:
        """Wait until something is true of what was seen; raise `TimeoutError`."""
        await eventually(lambda: bool(wanted()))

    def check(self) -> None:
        """Check that each message is one of the era."""
        for one in self.lines:
            if "jsonrpc" in one and one.get("method") != "initialize":
                book(VERSION).check(one)


def seen_in(log: Path) -> Seen:
    """Return what the server of a log has seen."""

    def lines() -> list[Json]:
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    return Seen(lines)


def command(log: Path, *, tasks: bool = False) -> list[str]:
    """Return the command of the server on a pipe."""
    return [sys.executable, "-m", "tests.wire.modern_server", str(log), *(["tasks"] if tasks else [])]


# How `initialize` is refused: the text leaves that to the server.
REFUSALS: Final = {"/mcp": 400, "/tasks": 400, "/gone": 404, "/fine": 200, "/streamed": 200}


class ModernUpstream:
    """The servers, `/tasks` with tasks of its own, all others without."""

    def __init__(self) -> None:
        notes: dict[str, list[Json]] = {path: [] for path in REFUSALS}
        self._servers = {path: Modern(notes[path].append, tasks=path == "/tasks") for path in REFUSALS}
        self._notes = notes
        self._runner: web.AppRunner | None = None
        self._address = ""

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return f"{self._address}{path}"

    def seen(self, path: str) -> Seen:
        """Return what the server of a path has seen."""
        return Seen(lambda: self._notes[path])

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        for path in self._servers:
            app.router.add_route("*", path, self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self._address = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message: Any = json.loads(await request.read())
        self._notes[request.path].append(message)
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        wrong = _mismatch(message, request.headers)
        if wrong is not None:
            error = {"code": -32020, "message": f"Header mismatch: {wrong}"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})

        async def say(told: Json) -> None:
            if not stream.prepared:
                await stream.prepare(request)
            await stream.write(f"data: {json.dumps(told)}\n\n".encode())

        try:
            answer = await self._servers[request.path].answer(message, say)
        except asyncio.CancelledError:
            self._notes[request.path].append({"cancelled": message})
            raise
        refuses = message["method"] == "initialize"
        if not stream.prepared and not (refuses and request.path == "/streamed"):
            status = _STATUS.get(answer.get("error", {}).get("code"), 200)
            status = REFUSALS[request.path] if refuses else status
            return web.json_response(answer, status=status)
        await say(answer)
        await stream.write_eof()
        return stream


def _mismatch(message: Json, headers: Mapping[str, str]) -> str | None:
    """Return the header that does not say what the body does (transports, "Request Metadata")."""
    name = message.get("params", {}).get(NAMED.get(message["method"], ""))
    wanted = {
        "mcp-protocol-version": VERSION,
        "mcp-method": message["method"],
        "mcp-name": None if name is None else sentinel(name),
    }
    if message["method"] == "initialize":
        return None
    return next((key for key, value in wanted.items() if headers.get(key) != value), None)
