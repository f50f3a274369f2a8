"""A task as a server shows it, whichever dialect it speaks; and what a dialect must be able to read.

Each dialect's own words are in `sep1686`, `v2025_11_25` and `sep2663`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

import msgspec

from gateway.protocol.envelope import members
from gateway.protocol.errors import UpstreamLost
from gateway.tasks.machine import TERMINAL

Letter = Literal["a", "b", "c"]

GET: Final = "tasks/get"
RESULT: Final = "tasks/result"
LIST: Final = "tasks/list"
CANCEL: Final = "tasks/cancel"

_DEFAULT_POLL: Final = 1.0
_LEAST_POLL: Final = 0.05
# What belongs to the message and not to the task.
_NOT_SHOWN: Final = ("_meta", "resultType")


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task, seen once. Times are in milliseconds.

    `kept` of `None` is for ever, unset where the server does not say; `words` is what it says of the
    status; `asks` are raw requests by key, `result` and `error` are raw, where the status carries them;
    `shown` are the members as they came.
    """

    task_id: str
    status: str
    kept: int | float | msgspec.UnsetType | None = msgspec.UNSET
    kept_from: Literal["end", "creation"] = "creation"
    poll: int | float | None = None
    words: str | None = None
    asks: dict[str, bytes] = {}
    result: bytes | None = None
    error: bytes | None = None
    shown: dict[str, msgspec.Raw] = {}

    @property
    def ended(self) -> bool:
        """Whether the status is terminal."""
        return self.status in TERMINAL

    @property
    def poll_seconds(self) -> float:
        """How long to wait before the next look."""
        return _DEFAULT_POLL if self.poll is None else max(_LEAST_POLL, self.poll / 1000)

    @property
    def members(self) -> dict[str, Any]:
        """The members for a script."""
        return dict(self.shown) or {"taskId": self.task_id, "status": self.status}


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of `tasks/list`."""

    tasks: list[TaskView]
    cursor: str | None


class Words(Protocol):
    """What is needed to look at tasks in a dialect."""

    @property
    def letter(self) -> Letter:
        """The letter of the dialect."""
        ...

    def about(self, task_id: str) -> dict[str, Any]:
        """Return the params of a request about a task."""
        ...

    def read(self, raw: bytes) -> TaskView:
        """Return a task; raise `msgspec.DecodeError` where it is not one."""
        ...


def read_task(words: Words, result: bytes, task_id: str) -> TaskView:
    """Return the answer to `tasks/get`; raise `UpstreamLost` where it is not one."""
    try:
        view = words.read(result)
    except msgspec.DecodeError as wrong:
        raise UpstreamLost(f"the answer to {GET} is not a task: {wrong}") from None
    if view.task_id != task_id:
        raise UpstreamLost(f"the answer to {GET} is about another task")
    return view


class _Page(msgspec.Struct, rename="camel"):
    tasks: list[msgspec.Raw]
    next_cursor: str | None = None


def read_page(words: Words, result: bytes) -> TaskPage:
    """Return the answer to `tasks/list`; raise `UpstreamLost` where it is not one."""
    try:
        page = msgspec.json.decode(result, type=_Page)
        return TaskPage(tasks=[words.read(bytes(raw)) for raw in page.tasks], cursor=page.next_cursor)
    except msgspec.DecodeError as wrong:
        raise UpstreamLost(f"the answer to {LIST} is not a list of tasks: {wrong}") from None


def shown(raw: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of a task that are worth showing, as they came."""
    return {name: part for name, part in members(raw).items() if name not in _NOT_SHOWN}
