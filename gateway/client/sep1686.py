"""The words of tasks on the wire, as SEP-1686 has them; cold."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.protocol.envelope import Envelope, members, meta_of, text_of
from gateway.protocol.errors import UpstreamLost
from gateway.tasks.machine import TERMINAL

_TASK: Final = "modelcontextprotocol.io/task"
RELATED: Final = "modelcontextprotocol.io/related-task"
CREATED: Final = "notifications/tasks/created"
GET: Final = "tasks/get"
RESULT: Final = "tasks/result"
LIST: Final = "tasks/list"
DELETE: Final = "tasks/delete"

_DEFAULT_POLL: Final = 1.0
_LEAST_POLL: Final = 0.05


class TaskView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task as `tasks/get` shows it (section 6); durations in milliseconds."""

    task_id: str
    status: str
    keep_alive: int | float | msgspec.UnsetType | None = msgspec.UNSET
    poll_frequency: int | float | None = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the status is terminal (section 4.3)."""
        return self.status in TERMINAL

    @property
    def poll_seconds(self) -> float:
        """How long to wait before the next look (section 4.5.4)."""
        if self.poll_frequency is None:
            return _DEFAULT_POLL
        return max(_LEAST_POLL, self.poll_frequency / 1000)


class TaskPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One page of `tasks/list`."""

    tasks: list[TaskView]
    next_cursor: str | None = None


def augment(task_id: str, keep_alive: int | msgspec.UnsetType | None) -> dict[str, Any]:
    """Return the `_meta` members that make a request a task (section 3.1)."""
    task: dict[str, Any] = {"taskId": task_id}
    if keep_alive is not msgspec.UNSET:
        task["keepAlive"] = keep_alive
    return {_TASK: task}


def related(task_id: str) -> dict[str, Any]:
    """Return the `_meta` of every message about a task (section 4.7)."""
    return {RELATED: {"taskId": task_id}}


def about(task_id: str) -> dict[str, Any]:
    """Return the params of get, result and delete (sections 3.2, 3.3, 3.6)."""
    return {"taskId": task_id, "_meta": related(task_id)}


def related_id(envelope: Envelope) -> str | None:
    """Return the id of the task that a request or notification belongs to."""
    found = meta_of(envelope.params).get(RELATED)
    return None if found is None else text_of(members(bytes(found)).get("taskId"))


def read_task(result: bytes, task_id: str) -> TaskView:
    """Return the answer to `tasks/get`; raise `UpstreamLost` where it is not one."""
    try:
        view = msgspec.json.decode(result, type=TaskView)
    except msgspec.DecodeError as wrong:
        raise UpstreamLost(f"the answer to {GET} is not a task: {wrong}") from None
    if view.task_id != task_id:
        raise UpstreamLost(f"the answer to {GET} is about another task")
    return view


def read_page(result: bytes) -> TaskPage:
    """Return the answer to `tasks/list`; raise `UpstreamLost` where it is not one."""
    try:
        return msgspec.json.decode(result, type=TaskPage)
    except msgspec.DecodeError as wrong:
        raise UpstreamLost(f"the answer to {LIST} is not a list of tasks: {wrong}") from None
