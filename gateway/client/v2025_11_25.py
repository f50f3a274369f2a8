"""Dialect B: tasks as protocol 2025-11-25 has them (basic/utilities/tasks); cold."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.client.trees import as_object
from gateway.client.view import Letter, TaskView, shown
from gateway.protocol.envelope import members

RELATED: Final = "io.modelcontextprotocol/related-task"
STATUS: Final = "notifications/tasks/status"


class _Task(msgspec.Struct, rename="camel"):
    # `ttl` must be there, but the official Python package leaves it out where it is null.
    task_id: str
    status: str
    ttl: int | float | msgspec.UnsetType | None = msgspec.UNSET
    status_message: str | None = None
    poll_interval: int | float | None = None


class V20251125:
    """How dialect B speaks of a task."""

    letter: Letter = "b"

    def about(self, task_id: str) -> dict[str, Any]:
        """Return the params of get, result and cancel, without related-task metadata."""
        return {"taskId": task_id}

    def read(self, raw: bytes) -> TaskView:
        """Return a task ("Data Types"); raise `msgspec.DecodeError` where it is not one."""
        task = msgspec.json.decode(raw, type=_Task)
        return TaskView(
            task_id=task.task_id,
            status=task.status,
            kept=task.ttl,
            poll=task.poll_interval,
            words=task.status_message,
            shown=shown(raw),
        )


def augment(ttl: int | msgspec.UnsetType | None) -> dict[str, Any]:
    """Return the `task` param; for ever is the server's to decide, so that nothing is said then."""
    return {"ttl": ttl} if isinstance(ttl, int) else {}


def created(result: bytes) -> TaskView | None:
    """Return the task of a `CreateTaskResult`, `None` where the result is another one."""
    raw = members(result).get("task")
    if raw is None:
        return None
    try:
        return V20251125().read(bytes(raw))
    except msgspec.DecodeError:
        return None


def offered(capabilities: dict[str, Any]) -> bool:
    """Tell whether tools can be tasks ("Capabilities")."""
    requests = as_object(as_object(capabilities.get("tasks")).get("requests"))
    return isinstance(as_object(requests.get("tools")).get("call"), dict)


def can(capabilities: dict[str, Any], action: str) -> bool:
    """Tell whether tasks can be listed or cancelled: each is a capability of its own."""
    return isinstance(as_object(capabilities.get("tasks")).get(action), dict)


def support(tool: dict[str, Any]) -> str:
    """Return a tool's `execution.taskSupport` ("Tool-Level Negotiation"): absent is forbidden."""
    return str(as_object(tool.get("execution")).get("taskSupport", "forbidden"))
