"""Dialect C: tasks as the extension `io.modelcontextprotocol/tasks` has them (SEP-2663); cold."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gateway.client.trees import as_object
from gateway.client.view import Letter, TaskView, shown
from gateway.protocol.envelope import members, text_of
from gateway.protocol.errors import UpstreamLost

EXTENSION: Final = "io.modelcontextprotocol/tasks"
UPDATE: Final = "tasks/update"

ResultType = Literal["complete", "input_required", "task"]


class _Task(msgspec.Struct, rename="camel"):
    task_id: str
    status: str
    ttl_ms: int | float | msgspec.UnsetType | None = msgspec.UNSET
    status_message: str | None = None
    poll_interval_ms: int | float | None = None
    input_requests: dict[str, msgspec.Raw] = {}
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Sep2663:
    """How dialect C speaks of a task."""

    letter: Letter = "c"

    def about(self, task_id: str) -> dict[str, Any]:
        """Return the params of get and cancel."""
        return {"taskId": task_id}

    def read(self, raw: bytes) -> TaskView:
        """Return a task with what its status carries; raise `msgspec.DecodeError` where it is not one."""
        task = msgspec.json.decode(raw, type=_Task)
        return TaskView(
            task_id=task.task_id,
            status=task.status,
            kept=task.ttl_ms,
            poll=task.poll_interval_ms,
            words=task.status_message,
            asks={key: bytes(part) for key, part in task.input_requests.items()},
            result=_bytes(task.result),
            error=_bytes(task.error),
            shown=shown(raw),
        )


class InputRequired(msgspec.Struct, frozen=True):
    """What a request needs before it can be carried out; `state` is raw JSON to give back as it is."""

    asks: dict[str, bytes]
    state: bytes | None


def result_type(result: bytes) -> ResultType:
    """Return what kind of result it is (2026-07-28 basic, "ResultType"); absent is complete.

    Raise `UpstreamLost` for any kind that this client has not declared.
    """
    raw = members(result).get("resultType")
    match text_of(raw):
        case None if raw is None:
            return "complete"
        case "complete" | "input_required" | "task" as kind:
            return kind
        case _:
            word = bytes(raw or b"").decode(errors="replace")
            raise UpstreamLost(f"the server answered with an unknown result type: {word}")


def read_input_required(result: bytes) -> InputRequired:
    """Return an `InputRequiredResult` (basic/patterns/mrtr); raise `UpstreamLost` where it is not one."""
    found = members(result)
    asks = {key: bytes(part) for key, part in members(found.get("inputRequests")).items()}
    state = found.get("requestState")
    if not asks and state is None:
        raise UpstreamLost("the server wants input and says not which")
    return InputRequired(asks, None if state is None else bytes(state))


def created(result: bytes) -> TaskView:
    """Return the task of a `CreateTaskResult`; raise `UpstreamLost` where it is not one."""
    try:
        return Sep2663().read(result)
    except msgspec.DecodeError as wrong:
        raise UpstreamLost(f"the server answered with a task that is none: {wrong}") from None


def offered(capabilities: dict[str, Any]) -> bool:
    """Tell whether the server declares the extension."""
    return isinstance(as_object(capabilities.get("extensions")).get(EXTENSION), dict)


def _bytes(part: msgspec.Raw | msgspec.UnsetType) -> bytes | None:
    return None if isinstance(part, msgspec.UnsetType) else bytes(part)
