"""What a dialect of tasks must be able to say, whatever its wire words are.

A dialect is a translator: messages in, questions about the internal model out, and back. It decides
nothing about storage, time or transport. Reading a task made in another dialect must work too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from gateway.protocol.envelope import Envelope
from gateway.protocol.errors import Refusal
from gateway.tasks.model import DialectName, KeptFrom, Outcome, Status, Task

AboutKind = Literal["get", "result", "list", "delete", "cancel", "update"]


class Ask(msgspec.Struct, frozen=True):
    """A client's wish for a task.

    `task_id` is the client's own where the dialect has it choose, else empty; `keep_alive` in
    milliseconds where one was named, `forever` where the client asked for retention without end.
    """

    task_id: str = ""
    keep_alive: int | None = None
    forever: bool = False


class About(msgspec.Struct, frozen=True):
    """A request about a task, or about the list of tasks.

    `answers` are the raw JSON results by input key that an update brings.
    """

    kind: AboutKind
    task_id: str = ""
    cursor: str | None = None
    answers: Mapping[str, bytes] = {}


class Manner(msgspec.Struct, frozen=True):
    """What holds for every task of a dialect.

    `client_ids` says that the client chooses ids; `at_once` that the request is answered with the
    task, not with its result; `waits` that a request for the result waits for the end; `inline` that
    the status carries the outcome, so that describing a task needs it.
    """

    first_status: Status
    kept_from: KeptFrom
    client_ids: bool = False
    at_once: bool = False
    waits: bool = False
    inline: bool = False


class Offer(msgspec.Struct, frozen=True):
    """What the gateway offers: request methods that may be tasks, and whether tasks can be listed."""

    methods: Sequence[str]
    listed: bool


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

    def advertise(self, opened: bytes, offer: Offer) -> bytes:
        """Return the response to `initialize` or `server/discover` that tells of tasks."""
        ...

    def knows_tasks(self, opened: bytes) -> bool:
        """Tell whether the upstream's own response speaks of tasks of its own."""
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

    def created(self, task: Task, words: str | None = None) -> bytes:
        """Return the message that tells the client of a new task.

        A notification, or the response to its request where the dialect answers at once. `words` is
        text for the model meanwhile.
        """
        ...

    def relayed(self, task_id: str, message: bytes) -> bytes:
        """Return an upstream's message as the client of the task shall see it."""
        ...

    def final(self, task: Task, outcome: Outcome) -> bytes | None:
        """Return the response to the original request, `None` where none is due."""
        ...

    def described(self, task: Task, outcome: Outcome | None) -> bytes:
        """Return the result of the request for a task's status."""
        ...

    def result(self, ident: bytes, task: Task, outcome: Outcome | None) -> bytes:
        """Return the response (of id `ident`, raw JSON) to the request for a task's result.

        Refuses where there is none yet.
        """
        ...

    def listed(self, tasks: Sequence[Task], cursor: str | None) -> bytes:
        """Return the result of the request for a page of tasks."""
        ...

    def removed(self, task_id: str) -> bytes:
        """Return the result of the request to delete a task."""
        ...

    def cancelled(self, task: Task) -> bytes:
        """Return the result of the request to cancel a task."""
        ...

    def updated(self) -> bytes:
        """Return the result of the request that brought input."""
        ...

    def status(self, task: Task, outcome: Outcome | None) -> bytes | None:
        """Return the notification of a task's new status, `None` where the dialect has none."""
        ...

    def bad_cursor(self) -> Refusal:
        """Return the refusal for a cursor that is not one of ours."""
        ...

    def not_found(self, about: About) -> Refusal:
        """Return the refusal for a task that is not there, or not the asker's."""
        ...

    def exists(self, task_id: str) -> Refusal:
        """Return the refusal for a task id that is taken."""
        ...

    def ended(self, task: Task) -> Refusal:
        """Return the refusal to cancel a task that has ended."""
        ...
