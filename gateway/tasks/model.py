"""What a task is inside the gateway, whatever dialect it was asked for in."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Literal

import msgspec

Status = Literal["submitted", "working", "input_required", "completed", "failed", "cancelled", "unknown"]
DialectName = Literal["a", "b", "c", "none"]
KeptFrom = Literal["end", "creation"]

RECORD_VERSION = 1
_SHORT = 64


def _digest(task_id: str) -> str:
    return _short_digest(task_id) if len(task_id) <= _SHORT else _hashed(task_id)


@lru_cache(maxsize=10_000)
def _short_digest(task_id: str) -> str:
    return _hashed(task_id)


def _hashed(task_id: str) -> str:
    return hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Scope(msgspec.Struct, frozen=True):
    """Who may see a task, always within one upstream (design section 1).

    `tag` is an opaque keyed hash: safe to log, safe in a key.
    """

    upstream: str
    tag: str


class TaskKey(msgspec.Struct, frozen=True):
    """The name of a task in the store: its scope and its id on the wire.

    Where only the digest is known (`from_digest`) the store still finds the task; the record it
    returns carries the whole key.
    """

    scope: Scope
    task_id: str
    known_digest: str = ""

    @classmethod
    def from_digest(cls, scope: Scope, digest: str) -> TaskKey:
        """Return a key that is good for finding a task whose id is not at hand."""
        return cls(scope, "", digest)

    @property
    def digest(self) -> str:
        """The task id as 32 hex digits: bounded, without odd characters; for keys and event ids."""
        return self.known_digest or _digest(self.task_id)


class Pending(msgspec.Struct, frozen=True):
    """A server request that waits for the client's answer.

    `relay_id` is the id the client sees, `upstream_id` the upstream's own as JSON bytes, `message`
    the upstream's request as it came. `to_session` says that nobody waited for the task when it came:
    it goes to the session's own stream.
    """

    relay_id: str
    upstream_id: bytes
    method: str
    message: bytes
    to_session: bool = False


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a task.

    Times are milliseconds since the epoch by the store's clock; durations are milliseconds;
    `keep_alive` of `None` is without end, and is counted from `kept_from`. `request_id` is the
    client's id of the original request as JSON bytes, `session` the tag of the session that asked.
    `version` is the stored form's.
    """

    key: TaskKey
    dialect: DialectName
    method: str
    tool: str | None
    pattern: str
    session: str
    request_id: bytes
    status: Status
    created_at: int
    updated_at: int
    started_at: int | None = None
    ended_at: int | None = None
    keep_alive: int | None
    kept_from: KeptFrom = "end"
    poll_interval: int | None
    timeout: int
    error: str | None = None
    status_message: str | None = None
    is_error: bool = False
    pending: tuple[Pending, ...] = ()
    owner: str = ""
    epoch: int = 0
    version: int = RECORD_VERSION

    @property
    def ended(self) -> bool:
        """Whether the task has reached a terminal status."""
        return self.status in ("completed", "failed", "cancelled", "unknown")

    @property
    def expires_at(self) -> int | None:
        """When a task that has ended is dropped; `None` for never, and for one that has not ended."""
        if self.keep_alive is None or self.ended_at is None:
            return None
        since = self.created_at if self.kept_from == "creation" else self.ended_at
        return max(self.ended_at, since + self.keep_alive)


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a task before the store has seen it; units as in `Task`.

    `course` is what another replica needs to take the call up, empty where none can, and `request` the
    request itself, to be sent by another; both are opaque here and gone when the task ends. The
    request is gone when the call starts, unless it is `request_kept` to be sent again.
    """

    key: TaskKey
    dialect: DialectName
    method: str
    tool: str | None
    pattern: str
    session: str
    request_id: bytes
    keep_alive: int | None
    kept_from: KeptFrom = "end"
    poll_interval: int | None
    timeout: int
    first_status: Status
    course: bytes = b""
    request: bytes = b""
    request_kept: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended.

    `result` is the upstream's raw `result`, `rpc_error` its raw JSON-RPC `error`; at most one of
    them is there. `error` says in words what went wrong where the task did not complete,
    or where its tool did not. `is_error` marks a tool result with `isError: true` (SEP-1686 section 7.2).
    """

    status: Status
    result: bytes | None = None
    rpc_error: bytes | None = None
    error: str | None = None
    is_error: bool = False


class LogEntry(msgspec.Struct, frozen=True):
    """One message of a task's event log; `offset` grows and names the place to read on from."""

    offset: str
    message: bytes
