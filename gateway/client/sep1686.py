"""Dialect A: the words of tasks on the wire, as SEP-1686 has them; cold."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.client.trees import as_object
from gateway.client.view import Letter, TaskView, shown

_TASK: Final = "modelcontextprotocol.io/task"
RELATED: Final = "modelcontextprotocol.io/related-task"
CREATED: Final = "notifications/tasks/created"
DELETE: Final = "tasks/delete"


class _Task(msgspec.Struct, rename="camel"):
    task_id: str
    status: str
    keep_alive: int | float | msgspec.UnsetType | None = msgspec.UNSET
    poll_frequency: int | float | None = None
    error: str | None = None


class Sep1686:
    """How dialect A speaks of a task."""

    letter: Letter = "a"

    def about(self, task_id: str) -> dict[str, Any]:
        """Return the params of get, result and delete (sections 3.2, 3.3, 3.6)."""
        return {"taskId": task_id, "_meta": related(task_id)}

    def read(self, raw: bytes) -> TaskView:
        """Return a task (section 6); raise `msgspec.DecodeError` where it is not one."""
        task = msgspec.json.decode(raw, type=_Task)
        return TaskView(
            task_id=task.task_id,
            status=task.status,
            kept=task.keep_alive,
            kept_from="end",
            poll=task.poll_frequency,
            words=task.error,
            shown=shown(raw),
        )


def augment(task_id: str, keep_alive: int | msgspec.UnsetType | None) -> dict[str, Any]:
    """Return the `_meta` members that make a request a task (section 3.1)."""
    task: dict[str, Any] = {"taskId": task_id}
    if keep_alive is not msgspec.UNSET:
        task["keepAlive"] = keep_alive
    return {_TASK: task}


def related(task_id: str) -> dict[str, Any]:
    """Return the `_meta` of every message about a task (section 4.7)."""
    return {RELATED: {"taskId": task_id}}


def offered(capabilities: dict[str, Any]) -> bool:
    """Tell whether tools can be tasks: section 2 has booleans by request category."""
    tools = as_object(as_object(capabilities.get("tasks")).get("tools"))
    return tools.get("call") is True
