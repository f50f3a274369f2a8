"""Dialect A: tasks as SEP-1686 has them, asked for in `_meta` with an id of the client's choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.dialects.port import About, AboutKind, Ask, Manner, Offer
from gateway.dialects.related import relate_message, relate_result
from gateway.dialects.spelling import named_task, no_method, own_capabilities
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    meta_of,
    notification,
    response,
    text_of,
    value,
)
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import drop_member, set_member
from gateway.tasks.model import DialectName, Outcome, Task

TASK_KEY: Final = "modelcontextprotocol.io/task"
RELATED_KEY: Final = "modelcontextprotocol.io/related-task"
CREATED: Final = "notifications/tasks/created"
MAX_KEEP_ALIVE: Final = 2**53
_MAX_DIGITS: Final = 30

_ABOUT: Final[dict[str, AboutKind]] = {
    "tasks/get": "get",
    "tasks/result": "result",
    "tasks/list": "list",
    "tasks/delete": "delete",
}
_VERB: Final[dict[AboutKind, str]] = {
    "get": "Failed to retrieve task",
    "result": "Failed to retrieve task result",
    "list": "Failed to list tasks",
    "delete": "Failed to delete task",
}


class Sep1686:
    """The translator of dialect A."""

    name: DialectName = "a"
    # SEP-1686 sections 4.3.1 and 4.5.3.
    manner = Manner(first_status="submitted", kept_from="end", client_ids=True)

    def advertise(self, opened: bytes, offer: Offer) -> bytes:
        """Add `capabilities.tasks`: request categories with a boolean each (SEP-1686 section 2).

        What the upstream says of its own tasks stays.
        """
        found: dict[str, dict[str, bool]] = {}
        for method in offer.methods:
            category, _, name = method.partition("/")
            found.setdefault(category, {})[name] = True
        for category, names in found.items():
            path = ("result", "capabilities", "tasks", category)
            opened = set_member(opened, path, dump(names))
        return opened

    def knows_tasks(self, opened: bytes) -> bool:
        """Tell whether the response has `capabilities.tasks`."""
        return "tasks" in own_capabilities(opened)

    def is_about(self, method: str) -> bool:
        """Tell whether a method is `tasks/get`, `tasks/result`, `tasks/list` or `tasks/delete`."""
        return method in _ABOUT

    def wants_task(self, request: Envelope) -> bool:
        """Tell whether `params._meta` has the task key (SEP-1686 section 3.1)."""
        return TASK_KEY in meta_of(request.params)

    def read_ask(self, request: Envelope, max_id_bytes: int) -> Ask:
        """Return the wish (SEP-1686 section 6 "Task Metadata"); refuse with -32602."""
        raw = meta_of(request.params)[TASK_KEY]
        if bytes(raw)[:1] != b"{":
            raise _bad_ask("must be an object")
        wish = members(bytes(raw))
        task_id = _check_id(value(wish.get("taskId")), max_id_bytes, present="taskId" in wish)
        if "keepAlive" not in wish:
            return Ask(task_id)
        keep_alive = wish["keepAlive"]
        if bytes(keep_alive) == b"null":
            return Ask(task_id, None, forever=True)
        return Ask(task_id, _check_keep_alive(keep_alive))

    def strip(self, message: bytes) -> bytes:
        """Return the request without the task key, and without a `_meta` that it leaves empty."""
        return drop_member(message, ("params", "_meta", TASK_KEY), prune=True)

    def read_about(self, request: Envelope) -> About | None:
        """Return what is asked (SEP-1686 sections 3.2, 3.3, 3.5, 3.6); refuse with -32602."""
        kind = _ABOUT.get(request.method)
        if kind is None:
            return None
        params = members(request.params)
        if kind == "list":
            raw = params.get("cursor")
            cursor = text_of(raw)
            if cursor is None and raw is not None and bytes(raw) != b"null":
                raise self.bad_cursor()
            return About(kind, cursor=cursor)
        return About(kind, named_task(params, _VERB[kind]))

    def created(self, task: Task, words: str | None = None) -> bytes:
        """Return `notifications/tasks/created` (SEP-1686 section 3.4), which has no place for words."""
        del words
        return notification(CREATED, dump({"_meta": _related(task.key.task_id)}))

    def relayed(self, task_id: str, message: bytes) -> bytes:
        """Return a request or notification with the related-task key (SEP-1686 section 4.7)."""
        return relate_message(message, RELATED_KEY, task_id)

    def final(self, task: Task, outcome: Outcome) -> bytes | None:
        """Return what the plain call would have been answered, related to its task.

        A cancelled request is not answered (2025-11-25 "Cancellation").
        """
        if outcome.result is not None:
            return self._answer(task.request_id, task, outcome.result)
        if outcome.rpc_error is not None:
            return error_response(task.request_id, outcome.rpc_error)
        if outcome.status == "cancelled":
            return None
        words = outcome.error or "the outcome is unknown"
        return error_response(task.request_id, dump({"code": INTERNAL_ERROR, "message": words}))

    def described(self, task: Task, outcome: Outcome | None = None) -> bytes:
        """Return the result of `tasks/get` (SEP-1686 sections 3.2 and 7.2)."""
        del outcome
        return dump(_described(task) | {"_meta": _related(task.key.task_id)})

    def result(self, ident: bytes, task: Task, outcome: Outcome | None) -> bytes:
        """Return the response to `tasks/result`: only of a completed task (SEP-1686 section 4.6)."""
        if outcome is None or outcome.result is None or task.status != "completed":
            words = f"Cannot retrieve result: Task status is '{task.status}', not 'completed'"
            error = None if task.is_error else task.error
            data = {"status": task.status} | ({"error": error} if error else {})
            raise Refusal(INVALID_PARAMS, words, data)
        return self._answer(ident, task, outcome.result)

    def listed(self, tasks: Sequence[Task], cursor: str | None) -> bytes:
        """Return the result of `tasks/list` (SEP-1686 section 3.5)."""
        page: dict[str, Any] = {"tasks": [_described(task) for task in tasks]}
        if cursor is not None:
            page["nextCursor"] = cursor
        return dump(page)

    def removed(self, task_id: str) -> bytes:
        """Return the result of `tasks/delete` (SEP-1686 section 3.6)."""
        return dump({"_meta": _related(task_id)})

    def cancelled(self, task: Task) -> bytes:
        """Refuse with -32601: a task is cancelled as its request is (SEP-1686 section 4.8)."""
        del task
        raise no_method("tasks/cancel")

    def updated(self) -> bytes:
        """Refuse with -32601: input comes as responses to requests (SEP-1686 section 4.4)."""
        raise no_method("tasks/update")

    def status(self, task: Task, outcome: Outcome | None = None) -> bytes | None:
        """Return nothing: requesters poll."""
        del task, outcome
        return None

    def bad_cursor(self) -> Refusal:
        """Return -32602 (SEP-1686 section 7.1)."""
        return Refusal(INVALID_PARAMS, "Failed to list tasks: Cursor is invalid")

    def not_found(self, about: About) -> Refusal:
        """Return -32602 in the words of SEP-1686 section 7.1."""
        return Refusal(INVALID_PARAMS, f"{_VERB[about.kind]}: Task not found")

    def exists(self, task_id: str) -> Refusal:
        """Return -32602 in the words of SEP-1686 section 7.1."""
        return Refusal(INVALID_PARAMS, f"Task ID already exists: {task_id}")

    def ended(self, task: Task) -> Refusal:
        """Return -32602; no request of the dialect is refused so."""
        return Refusal(INVALID_PARAMS, f"Cannot cancel task: already in terminal status '{task.status}'")

    def _answer(self, ident: bytes, task: Task, result: bytes) -> bytes:
        return response(ident, relate_result(result, RELATED_KEY, task.key.task_id))


def _described(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {
        "taskId": task.key.task_id,
        "status": task.status,
        "keepAlive": task.keep_alive,
    }
    if task.poll_interval is not None:
        found["pollFrequency"] = task.poll_interval
    if task.error is not None and task.status == "failed":
        found["error"] = task.error
    return found


def _related(task_id: str) -> dict[str, Any]:
    return {RELATED_KEY: {"taskId": task_id}}


def _bad_ask(what: str, data: dict[str, Any] | None = None) -> Refusal:
    return Refusal(INVALID_PARAMS, f'Invalid task metadata: "{TASK_KEY}" {what}', data)


def _check_id(found: object, max_bytes: int, *, present: bool) -> str:
    if not present:
        raise _bad_ask("must have a taskId")
    if not isinstance(found, str):
        raise _bad_ask("must have a taskId that is a string")
    if not found:
        raise _bad_ask("must have a taskId that is not empty")
    try:
        size = len(found.encode())
    except UnicodeEncodeError:
        raise _bad_ask("must have a taskId that is valid Unicode") from None
    if size > max_bytes:
        words = f"must have a taskId of at most {max_bytes} bytes (limit task_id_bytes)"
        raise _bad_ask(words, {"limit": "task_id_bytes", "max": max_bytes})
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in found):
        raise _bad_ask("must have a taskId without control characters")
    return found


def _check_keep_alive(raw: msgspec.Raw) -> int:
    if bytes(raw).isdigit() and len(raw) > _MAX_DIGITS:
        return MAX_KEEP_ALIVE
    found = value(raw)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _bad_ask("must have a keepAlive that is a number of milliseconds or null")
    if found < 0:
        raise _bad_ask("must have a keepAlive that is not negative")
    if found != found // 1:
        raise _bad_ask("must have a keepAlive in whole milliseconds")
    return int(min(found, MAX_KEEP_ALIVE))
