"""A client on the pipes of a child in either era and every dialect, from the texts; all is checked.

One process is one client; a test decides which eras it speaks, and may speak both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from tests.processes import ROOT
from tests.wire.checked import book
from tests.wire.modern_words import META, VERSION, Json
from tests.wire.seed_client import PAUSE, WAIT, Ident
from tests.wire.seed_pipe import SeedPipe
from tests.wire.stateless_rules import ALL, TASKS, TERMINAL
from tests.wire.tasks_b_client import RELATED

LEGACY: Final = "2025-11-25"
_LINE: Final = 2**27


class EraPipe(SeedPipe):
    """The client. `open` shakes hands; `new` speaks statelessly, which needs no opening."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        super().__init__(command)
        self._env = env
        self._said: list[str] = []
        self._hearing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EraPipe:
        self._child = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=ROOT,
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE,
        )
        self._hearing = asyncio.create_task(self._hear())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        assert self._hearing is not None
        await self._hearing
        if error is None:
            assert "Traceback" not in self.said, self.said

    @property
    def said(self) -> str:
        """What came on the error output by now."""
        return "".join(self._said)

    async def ended(self, seconds: float = WAIT) -> int:
        """Wait for the end of the process, all its words read; return the exit code."""
        assert self._hearing is not None
        async with asyncio.timeout(seconds):
            await self.rest()
            code = await self.child.wait()
            await self._hearing
        return code

    async def open(self, version: str = LEGACY, capabilities: Json | None = None) -> Json:
        """Shake hands; keep and return the result, which must be one."""
        params: Json = {
            "protocolVersion": version,
            "capabilities": ALL if capabilities is None else capabilities,
            "clientInfo": {"name": "pipe", "version": "1"},
        }
        answer = await self.ask("initialize", params)
        assert "result" in answer, answer
        self.welcome = answer["result"]
        book(LEGACY).check(answer, {"id": answer["id"], "method": "initialize"})
        await self.notify("notifications/initialized")
        return self.welcome

    def request(
        self,
        method: str,
        params: Json | None = None,
        *,
        tasks: bool = True,
        ident: Ident | None = None,
        **meta: Any,
    ) -> Json:
        """Return a request of the stateless era."""
        extensions: Json = {"extensions": {TASKS: {}}} if tasks else {}
        own: Json = {
            f"{META}protocolVersion": VERSION,
            f"{META}clientInfo": {"name": "pipe", "version": "1"},
            f"{META}clientCapabilities": {**ALL, **extensions},
            **meta,
        }
        given = params or {}
        number = next(self._idents) if ident is None else ident
        head: Json = {"jsonrpc": "2.0", "id": number, "method": method}
        return {**head, "params": {**given, "_meta": {**own, **given.get("_meta", {})}}}

    async def send_new(self, method: str, params: Json | None = None, **more: Any) -> Json:
        """Send a request of the stateless era and return it."""
        message = self.request(method, params, **more)
        book(VERSION).check(message)
        await self.say(message)
        return message

    async def answer_to(self, message: Json) -> Json:
        """Read up to the response to a request of the stateless era."""
        answer = await self.response(message["id"])
        book(VERSION).check(answer, message)
        return answer

    async def new(self, method: str, params: Json | None = None, **more: Any) -> Json:
        """Send a request of the stateless era and return the response."""
        return await self.answer_to(await self.send_new(method, params, **more))

    async def call_new(self, tool: str, *, tasks: bool = False, **arguments: Any) -> Json:
        """Call a tool statelessly and return the result, which must be one."""
        answer = await self.new("tools/call", {"name": tool, "arguments": arguments}, tasks=tasks)
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, tool: str, **arguments: Any) -> Json:
        """Call a tool in the session and return the response."""
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def start(self, tool: str, **arguments: Any) -> str:
        """Call a tool as a task of dialect B and return the task's id."""
        params: Json = {"name": tool, "arguments": arguments, "task": {"ttl": 60_000}}
        answer = await self.ask("tools/call", params)
        book(LEGACY).check(answer, {"id": answer["id"], "method": "tools/call", "params": params})
        return answer["result"]["task"]["taskId"]

    async def reach_new(self, task_id: str, *statuses: str) -> Json:
        """Poll a task statelessly until it has one of the statuses and return it."""
        async with asyncio.timeout(WAIT):
            while True:
                task = (await self.new("tasks/get", {"taskId": task_id}))["result"]
                if task["status"] in statuses:
                    return task
                assert task["status"] not in TERMINAL, f"wanted {statuses}: {task}"
                await asyncio.sleep(PAUSE)

    async def cancel(self, ident: Ident) -> None:
        """Cancel a request, in either era."""
        await self.notify("notifications/cancelled", {"requestId": ident})

    async def _hear(self) -> None:
        assert self.child.stderr is not None
        while line := await self.child.stderr.readline():
            self._said.append(line.decode(errors="replace"))


def related_in_b(message: Json) -> Any:
    """Return the task that a message of dialect B says it is about."""
    place = message.get("params", message.get("result", {}))
    return place.get("_meta", {}).get(RELATED, {}).get("taskId")
