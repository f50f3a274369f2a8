"""Dialect B: tasks as protocol version 2025-11-25 has them, asked for in `params.task`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from gateway.dialects.port import About, AboutKind, Ask, Manner, Offer
from gateway.dialects.related import relate_message, relate_result
from gateway.dialects.spelling import (
    expired,
    named_task,
    no_method,
    own_capabilities,
    status_word,
    task_fields,
)
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    notification,
    response,
    text_of,
    value,
)
from gateway.protocol.eras import TASKS_IN_CORE
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import drop_member, set_member
from gateway.tasks.model import DialectName, Outcome, Task

RELATED_KEY: Final = "io.modelcontextprotocol/related-task"
WORDS_KEY: Final = "io.modelcontextprotocol/model-immediate-response"
# FastMCP 2.14 reads the answer as a tool result and looks for the task here.
_SHIM_KEY: Final = "modelcontextprotocol.io/task"
STATUS: Final = "notifications/tasks/status"
METHOD: Final = "tools/call"
MAX_TTL: Final = 2**53
_MAX_DIGITS: Final = 30
ToolErrors = Literal["failed", "completed"]

_ABOUT: Final[dict[str, AboutKind]] = {
    "tasks/get": "get",
    "tasks/result": "result",
    "tasks/list": "list",
    "tasks/cancel": "cancel",
}
_VERB: Final[dict[AboutKind, str]] = {
    "get": "Failed to retrieve task",
    "result": "Failed to retrieve task result",
    "list": "Failed to list tasks",
    "cancel": "Cannot cancel task",
}


class Tasks20251125:
    """The translator of dialect B.

    `tool_errors` is the status of a task whose tool answered `isError: true`: `failed` as the text has
    it, `completed` for clients that fetch no result of a failed task.
    """

    name: DialectName = "b"
    # 2025-11-25 tasks "Task Status Lifecycle" 1, "TTL and Resource Management", "Result Retrieval".
    manner = Manner(first_status="working", kept_from="creation", at_once=True, waits=True)

    def __init__(self, tool_errors: ToolErrors = "failed") -> None:
        self._tool_errors: ToolErrors = tool_errors

    def advertise(self, opened: bytes, offer: Offer) -> bytes:
        """Add `capabilities.tasks` to an `initialize` response (2025-11-25 tasks "Server Capabilities").

        What is said there already stays.
        """
        version = text_of(members(members(opened).get("result")).get("protocolVersion")) or ""
        if not offer.methods or version < TASKS_IN_CORE:
            return opened
        if offer.listed:
            opened = _declare(opened, "list")
        opened = _declare(opened, "cancel")
        if METHOD in offer.methods:
            opened = _declare(opened, "requests", "tools", "call")
        return opened

    def knows_tasks(self, opened: bytes) -> bool:
        """Tell whether the response has `capabilities.tasks`."""
        return "tasks" in own_capabilities(opened)

    def is_about(self, method: str) -> bool:
        """Tell whether a method is `tasks/get`, `tasks/result`, `tasks/list` or `tasks/cancel`."""
        return method in _ABOUT

    def wants_task(self, request: Envelope) -> bool:
        """Tell whether a `tools/call` has `params.task` (2025-11-25 tasks "Creating Tasks")."""
        params = request.params
        if request.method != METHOD or params is None:
            return False
        return (b'"task"' in params or b"\\u" in params) and "task" in members(params)

    def read_ask(self, request: Envelope, max_id_bytes: int) -> Ask:
        """Return the wish (2025-11-25 tasks "Task Parameters"); refuse with -32602."""
        del max_id_bytes
        raw = bytes(members(request.params).get("task", b"null"))
        if raw[:1] != b"{":
            raise _bad_ask("must be an object")
        ttl = members(raw).get("ttl")
        if ttl is None:
            return Ask()
        if bytes(ttl) == b"null":
            return Ask(forever=True)
        return Ask(keep_alive=_check_ttl(ttl))

    def strip(self, message: bytes) -> bytes:
        """Return the request without `params.task`."""
        return drop_member(message, ("params", "task"))

    def read_about(self, request: Envelope) -> About | None:
        """Return what is asked (2025-11-25 tasks "Protocol Messages"); refuse with -32602."""
        kind = _ABOUT.get(request.method)
        if kind is None:
            return None
        params = members(request.params)
        if kind != "list":
            return About(kind, named_task(params, _VERB[kind]))
        raw = params.get("cursor")
        cursor = text_of(raw)
        if cursor is None and raw is not None and bytes(raw) != b"null":
            raise self.bad_cursor()
        return About(kind, cursor=cursor)

    def created(self, task: Task, words: str | None = None) -> bytes:
        """Return the response with a `CreateTaskResult` (2025-11-25 tasks "Creating Tasks")."""
        fields = self._fields(task)
        meta: dict[str, Any] = {RELATED_KEY: {"taskId": task.key.task_id}}
        if words:
            meta[WORDS_KEY] = words
        meta[_SHIM_KEY] = {"taskId": task.key.task_id, "status": fields["status"]}
        return response(task.request_id, dump({"task": fields, "content": [], "_meta": meta}))

    def relayed(self, task_id: str, message: bytes) -> bytes:
        """Return a request or notification with the related-task key ("Related Task Metadata")."""
        return relate_message(message, RELATED_KEY, task_id)

    def final(self, task: Task, outcome: Outcome) -> None:
        """Return nothing: the request was answered with the task."""
        del task, outcome

    def described(self, task: Task, outcome: Outcome | None = None) -> bytes:
        """Return the result of `tasks/get` (2025-11-25 tasks "Getting Tasks")."""
        del outcome
        return dump(self._fields(task))

    def result(self, ident: bytes, task: Task, outcome: Outcome | None) -> bytes:
        """Return what the plain call would have been answered (2025-11-25 tasks "Result Retrieval").

        Refuses with -32602 before the end, which whoever asks is to wait for.
        """
        if not task.ended:
            words = f"{_VERB['result']}: Task status is '{self._status(task)}', which is not terminal"
            raise Refusal(INVALID_PARAMS, words, {"status": self._status(task)})
        if outcome is None:
            raise expired(_VERB["result"])
        if outcome.result is not None:
            return response(ident, relate_result(outcome.result, RELATED_KEY, task.key.task_id))
        if outcome.rpc_error is not None:
            return error_response(ident, outcome.rpc_error)
        words = outcome.error or task.error or "the outcome is unknown"
        if outcome.status == "cancelled":
            words = f"Task was cancelled: {words}" if outcome.error else "Task was cancelled"
        return error_response(ident, dump({"code": INTERNAL_ERROR, "message": words}))

    def listed(self, tasks: Sequence[Task], cursor: str | None) -> bytes:
        """Return the result of `tasks/list` (2025-11-25 tasks "Listing Tasks").

        Tasks of dialect A carry that one's names of the fields too: one who asked for them in it may
        read them here.
        """
        page: dict[str, Any] = {"tasks": [self._entry(task) for task in tasks]}
        if cursor is not None:
            page["nextCursor"] = cursor
        return dump(page)

    def removed(self, task_id: str) -> bytes:
        """Refuse with -32601: the dialect deletes nothing."""
        del task_id
        raise no_method("tasks/delete")

    def cancelled(self, task: Task) -> bytes:
        """Return the result of `tasks/cancel`: the task (2025-11-25 tasks "Cancelling Tasks")."""
        return dump(self._fields(task))

    def updated(self) -> bytes:
        """Refuse with -32601: input comes as responses to requests."""
        raise no_method("tasks/update")

    def status(self, task: Task, outcome: Outcome | None = None) -> bytes | None:
        """Return `notifications/tasks/status` (2025-11-25 tasks "Task Status Notification")."""
        del outcome
        return notification(STATUS, dump(self._fields(task)))

    def bad_cursor(self) -> Refusal:
        """Return -32602 (2025-11-25 tasks "Protocol Errors")."""
        return Refusal(INVALID_PARAMS, "Failed to list tasks: Cursor is invalid")

    def not_found(self, about: About) -> Refusal:
        """Return -32602 in the words of 2025-11-25 tasks "Protocol Errors"."""
        return Refusal(INVALID_PARAMS, f"{_VERB[about.kind]}: Task not found")

    def exists(self, task_id: str) -> Refusal:
        """Return -32603: ids are the gateway's own."""
        return Refusal(INTERNAL_ERROR, f"Task ID already exists: {task_id}")

    def ended(self, task: Task) -> Refusal:
        """Return -32602 in the words of 2025-11-25 tasks "Protocol Errors"."""
        words = f"{_VERB['cancel']}: already in terminal status '{self._status(task)}'"
        return Refusal(INVALID_PARAMS, words)

    def _status(self, task: Task) -> str:
        if task.status == "completed" and task.is_error:
            return self._tool_errors
        return status_word(task.status)

    def _fields(self, task: Task) -> dict[str, Any]:
        return task_fields(task, self._status(task), ttl="ttl", poll="pollInterval")

    def _entry(self, task: Task) -> dict[str, Any]:
        found = self._fields(task)
        if task.dialect != "a":
            return found
        found["keepAlive"] = task.keep_alive
        if task.poll_interval is not None:
            found["pollFrequency"] = task.poll_interval
        if task.status == "failed" and task.error is not None:
            found["error"] = task.error
        return found


def _declare(opened: bytes, *path: str) -> bytes:
    """Add an empty object to the tasks capability where the path leads to none yet."""
    found = members(own_capabilities(opened).get("tasks"))
    for name in path[:-1]:
        found = members(found.get(name))
    there = found.get(path[-1])
    if there is not None and bytes(there)[:1] == b"{":
        return opened
    return set_member(opened, ("result", "capabilities", "tasks", *path), b"{}")


def _bad_ask(what: str) -> Refusal:
    return Refusal(INVALID_PARAMS, f'Invalid task metadata: "task" {what}')


def _check_ttl(raw: msgspec.Raw) -> int:
    if bytes(raw).isdigit() and len(raw) > _MAX_DIGITS:
        return MAX_TTL
    found = value(raw)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _bad_ask("must have a ttl that is a number of milliseconds or null")
    if found < 0:
        raise _bad_ask("must have a ttl that is not negative")
    if found >= MAX_TTL:
        return MAX_TTL
    if found % 1:
        raise _bad_ask("must have a ttl in whole milliseconds")
    return int(found)
