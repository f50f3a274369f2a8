"""A client of dialect A on the pipes of a child, as a desktop host starts it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from tests.processes import ROOT
from tests.wire.seed_client import PAUSE, TERMINAL, WAIT, Ident, Json, about, augmented, same

_LINE_LIMIT: Final = 2**27


class SeedPipe:
    """A requester over stdio; messages that nobody waits for are kept in the order they came."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.kept: list[Json] = []
        self.seen: list[Json] = []
        self.welcome: Json = {}
        self._idents = itertools.count(1000)
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._child = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_LIMIT,
        )
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.child.returncode is None:
            self.child.kill()
        await self.child.wait()
        # The pipes of the child close in later turns of the loop.
        await asyncio.sleep(0.05)

    @property
    def child(self) -> asyncio.subprocess.Process:
        """The process."""
        assert self._child is not None
        return self._child

    async def initialize(self) -> None:
        """Shake hands; keep the result of `initialize`."""
        params: Json = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"elicitation": {}, "sampling": {}},
            "clientInfo": {"name": "seed", "version": "1"},
        }
        self.welcome = (await self.ask("initialize", params))["result"]
        await self.notify("notifications/initialized")

    async def say(self, message: Json | bytes) -> None:
        """Send a line."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.child.stdin is not None
        self.child.stdin.write(line + b"\n")
        await self.child.stdin.drain()

    def close_input(self) -> None:
        """End what the gateway reads."""
        assert self.child.stdin is not None
        self.child.stdin.close()

    async def until(self, wanted: Callable[[Json], bool], seconds: float = WAIT) -> Json:
        """Return the first message that is wanted; raise `AssertionError` at the end of the output."""
        for number, message in enumerate(self.kept):
            if wanted(message):
                return self.kept.pop(number)
        assert self.child.stdout is not None
        async with asyncio.timeout(seconds):
            while line := await self.child.stdout.readline():
                message: Json = json.loads(line)
                self.seen.append(message)
                if wanted(message):
                    return message
                self.kept.append(message)
        raise AssertionError(f"the output ended without it; kept: {self.kept}")

    async def rest(self) -> None:
        """Read to the end of the output, which must come."""
        assert self.child.stdout is not None
        async with asyncio.timeout(WAIT):
            while line := await self.child.stdout.readline():
                self.seen.append(json.loads(line))

    async def response(self, ident: Ident | None) -> Json:
        """Read up to the response to a request."""
        return await self.until(lambda m: "method" not in m and same(m.get("id"), ident))

    async def notification(self, method: str) -> Json:
        """Read up to a notification."""
        return await self.until(lambda m: m.get("method") == method and "id" not in m)

    async def asked(self) -> Json:
        """Read up to a request of the server."""
        return await self.until(lambda m: "method" in m and "id" in m)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        await self.say(message if params is None else {**message, "params": params})

    async def answer(self, request: Json, result: Json) -> None:
        """Answer a request of the server."""
        await self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its response."""
        ident = next(self._idents)
        message: Json = {"jsonrpc": "2.0", "id": ident, "method": method}
        await self.say(message if params is None else {**message, "params": params})
        return await self.response(ident)

    async def begin(
        self, task_id: str, name: str, arguments: Json, ident: Ident, task: Json | None = None
    ) -> None:
        """Send a tool call that is augmented with a task."""
        params = {"name": name, "arguments": arguments}
        await self.say(augmented(task_id, params, "tools/call", ident, task))

    async def get(self, task_id: str) -> Json:
        """Return the response to `tasks/get`."""
        return await self.ask("tasks/get", about(task_id))

    async def fetch(self, task_id: str) -> Json:
        """Return the response to `tasks/result`."""
        return await self.ask("tasks/result", about(task_id))

    async def reach(self, task_id: str, *statuses: str) -> Json:
        """Poll until a task has one of the statuses and return its fields."""
        async with asyncio.timeout(WAIT):
            while True:
                task = (await self.get(task_id))["result"]
                if task["status"] in statuses:
                    return task
                assert task["status"] not in TERMINAL, f"wanted {statuses}: {task}"
                await asyncio.sleep(PAUSE)
