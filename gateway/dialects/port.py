"""What a dialect of tasks must be able to say, whatever its wire words are.

A dialect is a translator: messages in, questions about the internal model out, and back. It decides
nothing about storage, time or transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from gateway.protocol.envelope import Envelope
from gateway.tasks.model import DialectName, KeptFrom, Outcome, Status, Task

AboutKind = Literal["get", "result", "list", "delete"]


class Ask(msgspec.Struct, frozen=True):
    """A client's wish for a task.

    `task_id` is the client's own where the dialect has it choose, `keep_alive` in milliseconds where
    one was named, `forever` where the client asked for retention without end.
    """

    task_id: str
    keep_alive: int | None = None
    forever: bool = False


class About(msgspec.Struct, frozen=True):
    """A request about a task, or about the list of tasks."""

    kind: AboutKind
    task_id: str = ""
    cursor: str | None = None


class Manner(msgspec.Struct, frozen=True):
    """What a dialect decides of a new task: its first status, and what its retention is counted from."""

    first_status: Status
    kept_from: KeptFrom


class Dialect(Protocol):
    """One wire form of tasks. Everything that is malformed raises `Refusal` in the dialect's words."""

    @property
    def name(self) -> DialectName:
        """The letter of the design's table."""
        ...

    @property
    def manner(self) -> Manner:
        """What holds for every task of the dialect."""
        ...

    def advertise(self, initialized: bytes, methods: Sequence[str]) -> bytes:
        """Return an `initialize` response that says which request methods may be tasks."""
        ...

    def knows_tasks(self, initialized: bytes) -> bool:
        """Tell whether the upstream's `initialize` response speaks of tasks of its own."""
        ...

    def is_about(self, method: str) -> bool:
        """Tell whether a method is one of the dialect's own."""
        ...

    def wants_task(self, request: Envelope) -> bool:
        """Tell whether a request asks to be a task, however badly."""
        ...

    def read_ask(self, request: Envelope, max_id_bytes: int) -> Ask:
        """Return the wish; raise `Refusal` where it is malformed."""
        ...

    def strip(self, message: bytes) -> bytes:
        """Return the request without its task metadata, as the upstream shall see it."""
        ...

    def read_about(self, request: Envelope) -> About | None:
        """Return what a request asks about tasks, `None` where its method is not the dialect's."""
        ...

    def created(self, task: Task) -> bytes:
        """Return the message that tells the client of a new task."""
        ...

    def relayed(self, task_id: str, message: bytes) -> bytes:
        """Return an upstream's message as the client of the task shall see it."""
        ...

    def final(self, task: Task, outcome: Outcome) -> bytes | None:
        """Return the response to the original request, `None` where none is due."""
        ...

    def described(self, task: Task) -> bytes:
        """Return the result of the request for a task's status."""
        ...

    def result(self, task: Task, outcome: Outcome | None) -> bytes:
        """Return the result of the request for a task's result; refuse where there is none yet."""
        ...

    def listed(self, tasks: Sequence[Task], cursor: str | None) -> bytes:
        """Return the result of the request for a page of tasks."""
        ...

    def removed(self, task_id: str) -> bytes:
        """Return the result of the request to delete a task."""
        ...

    def bad_cursor(self) -> Exception:
        """Return the refusal for a cursor that is not one of ours."""
        ...

    def not_found(self, about: About) -> Exception:
        """Return the refusal for a task that is not there, or not the asker's."""
        ...

    def exists(self, task_id: str) -> Exception:
        """Return the refusal for a task id that is taken."""
        ...
