"""Tasks of a server of the stateless era itself (the tasks extension), written from its text.

The tool `job` is a task for clients that declare the extension, `must_job` for nobody else. A task
ends when the tool `release` is called with its key; with `ask` it wants a name before, with `fail` it
then fails.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from tests.wire.modern_words import ASK, META, Failed, Json, missing, said

TTL_MS: Final = 60_000
POLL_MS: Final = 50
UNKNOWN: Final = "The upstream knows no such task"
_ENDED: Final = ("completed", "failed", "cancelled")


class Tasks:
    """All tasks; `publish` hears of each change."""

    def __init__(self, publish: Callable[[Json], Awaitable[None]]) -> None:
        self._publish = publish
        self._tasks: dict[str, Json] = {}
        self._calls: dict[str, Json] = {}

    def knows(self, task_id: str) -> bool:
        """Tell whether there is such a task."""
        return task_id in self._tasks

    def begin(self, message: Json) -> Json | None:
        """Make a task of a call; `None` for a client that does not take one."""
        if not _declares(message):
            return None
        now = datetime.now(UTC).isoformat()
        arguments = message["params"].get("arguments", {})
        task: Json = {
            "taskId": f"up-{secrets.token_hex(8)}",
            "status": "working",
            "statusMessage": "At work.",
            "createdAt": now,
            "lastUpdatedAt": now,
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_MS,
        }
        created = {"resultType": "task", **task}
        if arguments.get("ask"):
            task |= {"status": "input_required", "inputRequests": ASK}
        self._tasks[task["taskId"]] = task
        self._calls[task["taskId"]] = arguments
        return created

    async def answer(self, message: Json) -> Json:
        """Answer what is asked about a task."""
        if not _declares(message):
            raise missing({"extensions": {f"{META}tasks": {}}})
        task = self._tasks.get(message["params"]["taskId"])
        if task is None:
            raise Failed(-32602, UNKNOWN)
        match message["method"]:
            case "tasks/get":
                return {"resultType": "complete", **task}
            case "tasks/cancel":
                await self._end(task, "cancelled")
            case "tasks/update":
                await self._update(task, message["params"]["inputResponses"])
            case method:
                raise Failed(-32601, f"Method not found: {method}")
        return {"resultType": "complete"}

    async def release(self, key: str) -> None:
        """Let the tasks of a key end."""
        for task_id, arguments in self._calls.items():
            task = self._tasks[task_id]
            if arguments.get("key") == key and task["status"] == "working":
                await self._finish(task, f"Done: {key}.", fails=bool(arguments.get("fail")))

    async def _update(self, task: Json, answers: Json) -> None:
        if task["status"] == "input_required" and "name" in answers:
            del task["inputRequests"]
            answer = answers["name"]
            name = answer.get("content", {}).get("name", answer["action"])
            await self._finish(task, f"Hello, {name}!", fails=False)

    async def _finish(self, task: Json, words: str, *, fails: bool) -> None:
        if fails:
            await self._end(task, "failed", error={"code": -32050, "message": words})
        else:
            await self._end(task, "completed", result=said(words))

    async def _end(self, task: Json, status: str, **more: Json) -> None:
        if task["status"] in _ENDED:
            return
        task.pop("inputRequests", None)
        now = datetime.now(UTC).isoformat()
        task.update(status=status, lastUpdatedAt=now, statusMessage="Ended.", **more)
        await self._publish(task)


def _declares(message: Json) -> bool:
    capabilities = message["params"]["_meta"].get(f"{META}clientCapabilities", {})
    return f"{META}tasks" in capabilities.get("extensions", {})
