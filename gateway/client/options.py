"""What a user asked for on the command line, as frozen values."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.client.view import Letter

Action = Literal["list", "get", "result", "update", "delete", "cancel"]
DialectChoice = Literal["auto", "a", "b", "c"]
LATEST = "2025-11-25"

# What a dialect has no request for.
LACKS: Final[dict[tuple[str, Letter], str]] = {
    ("list", "c"): "dialect c has no list of tasks: their ids must be kept",
    ("delete", "b"): "dialect b cannot delete a task: it goes when its time is over",
    ("delete", "c"): "dialect c cannot delete a task: it goes when its time is over",
    ("update", "a"): "dialect a has no update: `tasks result --wait` answers what the server asks",
    ("update", "b"): "dialect b has no update: `tasks result --wait` answers what the server asks",
}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go and how to show it.

    `session` of `None` begins a session of its own; `repeat` are the options that a follow-up
    command needs again, without secrets.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    dialect: DialectChoice = "auto"
    session: str | None = None
    version: str = LATEST
    as_json: bool = False
    repeat: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One `tools/call`; `keep_alive` in milliseconds, `None` for ever, unset where not asked for."""

    target: Target
    tool: str
    arguments: dict[str, msgspec.Raw] = {}
    task: bool = False
    keep_alive: int | msgspec.UnsetType | None = msgspec.UNSET
    detach: bool = False
    answers: dict[str, msgspec.Raw] | None = None
    log_level: str | None = None


class Tasks(msgspec.Struct, frozen=True, kw_only=True):
    """One command about tasks.

    `request_id` is the original request's id as JSON bytes; `inputs` are whole responses by key.
    """

    target: Target
    action: Action
    task_id: str = ""
    request_id: bytes = b""
    limit: int = 100
    wait: bool = False
    answers: dict[str, msgspec.Raw] | None = None
    inputs: dict[str, msgspec.Raw] = {}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a call or task stands: `result` is the raw result, `error` a JSON-RPC error or its like.

    `task_id` is `None` where the server ran the request as an ordinary one.
    """

    status: str
    task_id: str | None = None
    result: bytes | None = None
    error: dict[str, object] | None = None
