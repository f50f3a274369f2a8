"""Dialect C: the tasks extension of 2026-07-28 (SEP-2663), in which the server decides what is a task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.dialects.port import About, AboutKind, Ask, Manner, Offer
from gateway.dialects.spelling import (
    expired,
    named_task,
    no_method,
    own_capabilities,
    status_word,
    task_fields,
)
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from gateway.protocol.envelope import Envelope, dump, members, notification, response, text_of
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import Parts, drop_member, put_together, set_member, take_apart
from gateway.tasks.inputs import input_requests
from gateway.tasks.model import DialectName, Outcome, Task

EXTENSION: Final = "io.modelcontextprotocol/tasks"
STATUS: Final = "notifications/tasks"
METHOD: Final = "tools/call"
_COMPLETE: Final = b'"complete"'
_DONE: Final = b'{"resultType":"complete"}'

_ABOUT: Final[dict[str, AboutKind]] = {
    "tasks/get": "get",
    "tasks/update": "update",
    "tasks/cancel": "cancel",
}
_VERB: Final[dict[AboutKind, str]] = {
    "get": "Failed to retrieve task",
    "update": "Failed to update task",
    "cancel": "Cannot cancel task",
}


class Sep2663:
    """The translator of dialect C."""

    name: DialectName = "c"
    manner = Manner(first_status="working", kept_from="creation", at_once=True, inline=True)

    def advertise(self, opened: bytes, offer: Offer) -> bytes:
        """Add the extension to a `server/discover` response (ext-tasks "Capability Negotiation").

        The capability of 2025-11-25 must not stand beside it (SEP-2663 "Backward Compatibility").
        """
        opened = drop_member(opened, ("result", "capabilities", "tasks"))
        if METHOD not in offer.methods:
            return opened
        return set_member(opened, ("result", "capabilities", "extensions", EXTENSION), b"{}")

    def knows_tasks(self, opened: bytes) -> bool:
        """Tell whether the response has the extension."""
        return EXTENSION in members(own_capabilities(opened).get("extensions"))

    def is_about(self, method: str) -> bool:
        """Tell whether a method is `tasks/get`, `tasks/update` or `tasks/cancel`."""
        return method in _ABOUT

    def wants_task(self, request: Envelope) -> bool:
        """Tell that no request asks: the server decides (ext-tasks "Capability Negotiation")."""
        del request
        return False

    def read_ask(self, request: Envelope, max_id_bytes: int) -> Ask:
        """Return no wish at all."""
        del request, max_id_bytes
        return Ask()

    def strip(self, message: bytes) -> bytes:
        """Return the request without `params.task`, which means nothing in this era."""
        return drop_member(message, ("params", "task"))

    def read_about(self, request: Envelope) -> About | None:
        """Return what is asked; refuse with -32602.

        `None` for `tasks/result` and `tasks/list` too, which are gone (SEP-2663).
        """
        kind = _ABOUT.get(request.method)
        if kind is None:
            return None
        params = members(request.params)
        task_id = named_task(params, _VERB[kind])
        if kind != "update":
            return About(kind, task_id)
        raw = bytes(params.get("inputResponses", b"null"))
        if raw[:1] != b"{":
            raise Refusal(INVALID_PARAMS, f"{_VERB[kind]}: inputResponses must be an object")
        answers = {key: bytes(answer) for key, answer in members(raw).items()}
        return About(kind, task_id, answers=answers)

    def created(self, task: Task, words: str | None = None) -> bytes:
        """Return the response with a `CreateTaskResult` (ext-tasks "Task Creation").

        `words` stand where the task has none of its own: hosts may show them to the model.
        """
        fields = _fields(task, status_word(task.status))
        if words and "statusMessage" not in fields:
            fields["statusMessage"] = dump(words)
        return response(task.request_id, put_together({"resultType": b'"task"', **fields}))

    def relayed(self, task_id: str, message: bytes) -> bytes:
        """Return the message as it is: no other message carries a task's name."""
        del task_id
        return message

    def final(self, task: Task, outcome: Outcome) -> None:
        """Return nothing: the request was answered with the task."""
        del task, outcome

    def described(self, task: Task, outcome: Outcome | None) -> bytes:
        """Return the result of `tasks/get` (ext-tasks "Task Polling").

        Refuses with -32602 where the task completed and its result is gone.
        """
        return put_together({"resultType": _COMPLETE, **_detailed(task, outcome)})

    def result(self, ident: bytes, task: Task, outcome: Outcome | None) -> bytes:
        """Refuse with -32601: the method is gone (SEP-2663)."""
        del ident, task, outcome
        raise no_method("tasks/result")

    def listed(self, tasks: Sequence[Task], cursor: str | None) -> bytes:
        """Refuse with -32601: the method is gone (SEP-2663)."""
        del tasks, cursor
        raise no_method("tasks/list")

    def removed(self, task_id: str) -> bytes:
        """Refuse with -32601: the dialect deletes nothing."""
        del task_id
        raise no_method("tasks/delete")

    def cancelled(self, task: Task) -> bytes:
        """Return the empty result of `tasks/cancel` (ext-tasks "Task Cancellation")."""
        del task
        return _DONE

    def updated(self) -> bytes:
        """Return the empty result of `tasks/update` (ext-tasks "Task Update Requests")."""
        return _DONE

    def status(self, task: Task, outcome: Outcome | None) -> bytes | None:
        """Return `notifications/tasks` (ext-tasks "Task Status Notifications").

        `None` where the task completed and its result is gone.
        """
        with suppress(Refusal):
            return notification(STATUS, put_together(_detailed(task, outcome)))
        return None

    def bad_cursor(self) -> Refusal:
        """Return -32601: there are no lists of tasks."""
        return no_method("tasks/list")

    def not_found(self, about: About) -> Refusal:
        """Return -32602 in the words of ext-tasks "Protocol Errors"."""
        return Refusal(INVALID_PARAMS, f"{_VERB[about.kind]}: Task not found")

    def exists(self, task_id: str) -> Refusal:
        """Return -32603: ids are the gateway's own."""
        return Refusal(INTERNAL_ERROR, f"Task ID already exists: {task_id}")

    def ended(self, task: Task) -> Refusal:
        """Return -32602; a cancel that comes late is to be acknowledged instead (`cancelled`)."""
        words = f"{_VERB['cancel']}: already in terminal status '{status_word(task.status)}'"
        return Refusal(INVALID_PARAMS, words)


def _fields(task: Task, status: str) -> Parts:
    found = task_fields(task, status, ttl="ttlMs", poll="pollIntervalMs")
    return {name: dump(part) for name, part in found.items()}


def _detailed(task: Task, outcome: Outcome | None) -> Parts:
    """Return a `DetailedTask`: what belongs to the status stands inline."""
    status = status_word(task.status)
    if status == "input_required":
        return _fields(task, status) | {"inputRequests": input_requests(task)}
    if status == "failed":
        return _fields(task, status) | {"error": _error(task, outcome)}
    if status != "completed":
        return _fields(task, status)
    if outcome is None or outcome.result is None:
        raise expired(_VERB["get"])
    if outcome.result[:1] != b"{":
        return _fields(task, "failed") | {"error": _no_object()}
    return _fields(task, status) | {"result": _complete(outcome.result)}


def _error(task: Task, outcome: Outcome | None) -> bytes:
    if outcome is not None and outcome.rpc_error is not None and outcome.rpc_error[:1] == b"{":
        return outcome.rpc_error
    words = (None if outcome is None else outcome.error) or task.error or "the outcome is unknown"
    return dump({"code": INTERNAL_ERROR, "message": words})


def _no_object() -> bytes:
    return dump({"code": INTERNAL_ERROR, "message": "The upstream's result is not an object"})


def _complete(result: bytes) -> bytes:
    """Return a result as complete, which those of the handshake era do not say."""
    with suppress(Refusal):
        if text_of(take_apart(result).get("resultType")) != "complete":
            return set_member(result, ("resultType",), _COMPLETE)
    return result
