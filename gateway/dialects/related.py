"""The related-task mark of the handshake era's dialects, which differ in its key alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gateway.protocol.envelope import dump, members, text_of
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import set_member

# What a stream may carry that is news of the server, not of the task.
_UNRELATED: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


def relate_message(message: bytes, key: str, task_id: str) -> bytes:
    """Return a request or notification with the mark in `params._meta`; news of the server as it is."""
    if text_of(members(message).get("method")) in _UNRELATED:
        return message
    return set_member(message, ("params", "_meta", key), dump({"taskId": task_id}))


def relate_result(result: bytes, key: str, task_id: str) -> bytes:
    """Return a result with the mark in `_meta`; one that cannot carry it as it is."""
    if result[:1] != b"{":
        return result
    with suppress(Refusal):
        return set_member(result, ("_meta", key), dump({"taskId": task_id}))
    return result
