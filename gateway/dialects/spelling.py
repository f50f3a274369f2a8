"""What more than one dialect spells alike: times, retention, words, and requests that name a task."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gateway.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from gateway.protocol.envelope import members, text_of
from gateway.protocol.errors import Refusal
from gateway.tasks.model import Status, Task

# The largest integer that every client can read (ECMAScript's MAX_SAFE_INTEGER).
MAX_SAFE: Final = 2**53 - 1
# Status names of 2025-11-25 and of the tasks extension; one of ours that is missing here they share.
_STATUS: Final[Mapping[Status, str]] = {"submitted": "working", "unknown": "failed"}


def status_word(status: Status) -> str:
    """Return the name that 2025-11-25 and the tasks extension have for a status."""
    return _STATUS.get(status, status)


def timestamp(at: int) -> str:
    """Return milliseconds since the epoch as an RFC 3339 time in UTC."""
    return f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def lifetime(task: Task) -> int | None:
    """Return the retention counted from the creation, in milliseconds; `None` is without end.

    Of a task that is kept from its end this is what is certain so far.
    """
    if task.keep_alive is None:
        return None
    lived = 0 if task.kept_from == "creation" else (task.ended_at or task.updated_at) - task.created_at
    return min(max(lived, 0) + task.keep_alive, MAX_SAFE)


def words_of(task: Task) -> str | None:
    """Return what a person should know of the status, `None` where there is nothing to say.

    The last progress of a call says nothing of how it ended.
    """
    return (task.error if task.ended else task.status_message) or None


def task_fields(task: Task, status: str, *, ttl: str, poll: str) -> dict[str, Any]:
    """Return a task's fields under the names that the dialect has for its two durations.

    Optional ones are left out rather than null, which some clients refuse.
    """
    found: dict[str, Any] = {"taskId": task.key.task_id, "status": status}
    words = words_of(task)
    if words is not None:
        found["statusMessage"] = words
    found["createdAt"] = timestamp(task.created_at)
    found["lastUpdatedAt"] = timestamp(task.updated_at)
    found[ttl] = lifetime(task)
    if task.poll_interval is not None:
        found[poll] = task.poll_interval
    return found


def named_task(params: Mapping[str, msgspec.Raw], verb: str) -> str:
    """Return `taskId`; raise `Refusal` -32602 where it is no string or empty."""
    task_id = text_of(params.get("taskId"))
    if not task_id:
        raise Refusal(INVALID_PARAMS, f"{verb}: taskId must be a non-empty string")
    return task_id


def own_capabilities(opened: bytes) -> dict[str, msgspec.Raw]:
    """Return the capabilities in a response to `initialize` or `server/discover`."""
    return members(members(members(opened).get("result")).get("capabilities"))


def no_method(method: str) -> Refusal:
    """Return -32601: the dialect has no such request."""
    return Refusal(METHOD_NOT_FOUND, f"Method not found: {method}")


def expired(verb: str) -> Refusal:
    """Return the refusal for a task whose outcome is gone."""
    return Refusal(INVALID_PARAMS, f"{verb}: Task has expired")
