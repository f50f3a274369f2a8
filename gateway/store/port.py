"""The store in domain words: what the task service asks of it, whatever keeps the data.

Every method raises `StoreAway` when the store does not answer. Times are the store's own clock
(milliseconds since the epoch), so that replicas whose clocks differ agree (design section 6).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, Protocol

import msgspec

from gateway.aio.clock import Clock
from gateway.tasks.model import LogEntry, NewTask, Outcome, Pending, Scope, Task, TaskKey


class Claim(msgspec.Struct, frozen=True):
    """The right to write to a running task: the replica and its epoch. A newer epoch fences it off."""

    owner: str
    epoch: int


class Bounds(msgspec.Struct, frozen=True):
    """What a scope may hold: tasks that have not ended, and tasks in all."""

    active: int
    stored: int


class Exists(msgspec.Struct, frozen=True):
    """Creation refused: the scope already has a task of that id (SEP-1686 section 7.1)."""


class Full(msgspec.Struct, frozen=True):
    """Creation refused: the scope holds as many tasks as it may; `which` is the bound that was met."""

    which: Literal["active", "stored"]
    bound: int


CommandKind = Literal[
    "cancel",
    "answer",
    "attend",
    "unattend",
    "offer",
    "status",
    "seek",
    "left",
    "unwait",
    "ended",
    "said",
    "orphans",
]


class Command(msgspec.Struct, frozen=True):
    """A word from one replica to another, or to all; `sender` is the replica that says it.

    To the one that runs a task: `cancel` (the record says so already, stop the call) and `answer`
    (`message` is the client's response with the upstream's own id put back, `relay_id` the id it
    answers), `attend` and `unattend` (the sender has, or has no more, somebody who reads the task). To
    whoever has the stream of `session`: `offer` (`message` is a server request that waits for an answer,
    or a notification) and `status` (the task has another status). To all:
    `seek` (the sender has opened the stream of `session`), `left` (it has it no more), `unwait` (the
    client of `session` has cancelled the request whose id is `message`), `ended` (its client has ended
    it), `said` (its client has said `message` for a plain call that the sender does not have) and
    `orphans` (the sender lets go of tasks that it ran: they wait for who takes them up).
    """

    kind: CommandKind
    key: TaskKey
    message: bytes = b""
    session: str = ""
    sender: str = ""
    relay_id: str = ""


class SharedClock(Clock, Protocol):
    """The store's clock as this replica knows it, for times that another replica judges."""

    async def look(self) -> None:
        """Hear the store's time."""
        ...


class Line(msgspec.Struct, frozen=True):
    """The calls of one rule of an upstream, which wait for turns together.

    `at_once` bounds the turns of all replicas at the same time, `per_scope` those of one scope; `None` is
    without limit.
    """

    upstream: str
    pattern: str
    at_once: int | None
    per_scope: int | None = None


class Asker(msgspec.Struct, frozen=True):
    """A replica, and for how long it counts as alive after each word; then what it has is free again."""

    replica: str
    lease_ms: int


Named = Literal["new", "some", "all"]
"""What a replica names: what is new beside nothing, some of what it has, or all; then the rest is freed."""


class Ask(msgspec.Struct, frozen=True):
    """A ticket of a replica, unique there, and what is said of it.

    `wait`: it wants a turn. `hold`: its call is on its way. `known`: another question about it is open.
    """

    kind: Literal["wait", "hold", "known"]
    scope: Scope
    ticket: str


GIVEN: Final = -1
CROWDED: Final = -2


class Turned(msgspec.Struct, frozen=True):
    """What is known of a line: how many wait, how long a turn takes (ms), and what was asked about.

    For each question `GIVEN` (it has its turn), `CROWDED` (it may not even wait), else about how many go
    before it.
    """

    waiting: int
    mean_ms: int | None
    states: list[int]


def bell_of(replica: str, ticket: str) -> TaskKey:
    """Return the name under which the bus rings when a ticket that waits gets its turn."""
    return TaskKey.from_digest(Scope("turns", replica), ticket)


class TurnStore(Protocol):
    """Who may call now, among all replicas; scopes take turns, and are first come first served within."""

    async def ask(
        self,
        line: Line,
        asker: Asker,
        asks: Sequence[Ask],
        *,
        bound: int | None = None,
        named: Named = "new",
    ) -> Turned | None:
        """Ask for turns, tell of those in use, and stay alive; all that is free is given.

        No more than `bound` may wait, but for the first of each scope, up to twice as many. A replica
        that is not known, or not any more, and names `some` gets `None`: it must name all first.
        """
        ...

    async def leave(self, line: Line, asker: Asker, left: Sequence[tuple[str, int | None]]) -> None:
        """Give turns back, each with the milliseconds it was used for, or leave the queue."""
        ...


class Left(msgspec.Struct, frozen=True):
    """What the replica that ran a task left for the one that takes it up.

    `course` and `request` are those of its creation, empty where there are none; `place` is the last
    event of the upstream's stream that was heard; `starts` how often the call was begun; `answers` are
    the client's that may not have reached the upstream: relay id, the upstream's id, message.
    """

    course: bytes = b""
    request: bytes = b""
    place: str = ""
    starts: int = 0
    answers: tuple[tuple[str, bytes, bytes], ...] = ()


class Store(Protocol):
    """Records, results and logs of tasks. Each method is one atomic step of one scope."""

    @property
    def turns(self) -> TurnStore:
        """Who may call now, among all replicas."""
        ...

    async def create(self, new: NewTask, owner: str, lease_ms: int, bounds: Bounds) -> Task | Exists | Full:
        """Store a new task with its request-id mapping and its lease in one round trip.

        The task's epoch is 1. When this returns a `Task`, any replica's `get` finds it (I2).
        """
        ...

    async def get(self, key: TaskKey) -> Task | None:
        """Return the record in one read; `None` where there is none (never was, expired, deleted)."""
        ...

    async def outcome(self, key: TaskKey) -> tuple[Task, Outcome | None] | None:
        """Return the record with its outcome, in one read; the outcome is `None` before the end."""
        ...

    async def find_request(self, scope: Scope, session: str, request_id: bytes) -> TaskKey | None:
        """Return the task that was made by a session's request of that id."""
        ...

    async def start(self, key: TaskKey, claim: Claim) -> Task | None:
        """Move submitted → working; `None` where the task is gone, ended or no longer ours."""
        ...

    async def ask(self, key: TaskKey, claim: Claim, pending: Pending, place: str = "") -> Task | None:
        """Add a pending server request and move to input_required; `None` as in `start`.

        `place` is that of the request in the upstream's stream, noted as by `mark`.
        """
        ...

    async def take_pending(
        self, key: TaskKey, relay_id: str, answer: bytes = b""
    ) -> tuple[Task, Pending] | None:
        """Take a pending server request out, once; back to working when it was the last.

        The `answer` is kept until it is `delivered`, so that it outlives the replica that delivers it.
        `None` where there is no such pending request, among them any of a task that has ended.
        The returned task is as it was after the move.
        """
        ...

    async def drop_pending(self, key: TaskKey, claim: Claim, upstream_id: bytes) -> Task | None:
        """Drop the pending request that the upstream itself withdrew (notifications/cancelled)."""
        ...

    async def note(self, key: TaskKey, claim: Claim, status_message: str) -> bool:
        """Set the status message; false where the task is gone, ended or no longer ours."""
        ...

    async def append(self, key: TaskKey, claim: Claim, message: bytes, place: str = "") -> str | None:
        """Append a message to the task's capped log and return its offset; `None` as in `start`.

        `place` is that of the message in the upstream's stream, noted as by `mark`.
        """
        ...

    async def mark(self, key: TaskKey, claim: Claim, place: str, course: bytes = b"") -> bool:
        """Note how far the upstream's stream was heard, and a new course where one is given.

        False where the task is gone, ended or no longer ours.
        """
        ...

    async def delivered(self, key: TaskKey, claim: Claim, relay_id: str) -> None:
        """Let go of an answer that has reached the upstream."""
        ...

    async def bespeak(self, key: TaskKey, relay_id: str, asker: Asker, waiter: str = "") -> int | None:
        """Let a replica alone ask the client a pending request, for the lease; with 0 ms, let go of it.

        Returns 0 where it is the replica's, else for how many milliseconds it is another's yet; `None`
        where no such request waits. Who comes as the same `waiter`, where one is named, takes it along.
        """
        ...

    async def left(self, key: TaskKey, claim: Claim) -> Left | None:
        """Return what the replica left that ran the task before; `None` as in `start`."""
        ...

    async def hold(self, key: TaskKey, claim: Claim, lease_ms: int) -> Task | None:
        """Hold on to a task whose lease may have ended: nobody takes it over for so long.

        `None` where it is gone, ended or no longer ours.
        """
        ...

    async def finish(self, key: TaskKey, claim: Claim, outcome: Outcome) -> Task | None:
        """Move to a terminal status with the outcome, give all keys their one expiry, end the lease.

        `None` where the task is gone, has ended already or is no longer ours: a soft no-op.
        """
        ...

    async def cancel(self, key: TaskKey, words: str) -> Task | None:
        """Move to cancelled, whoever runs it; raise `IllegalMove` when it has ended; `None` if gone."""
        ...

    async def remove(self, key: TaskKey) -> Task | None:
        """Delete everything about a task, in any state; return what it was, `None` if gone."""
        ...

    async def page(self, scope: Scope, after: str | None, limit: int) -> tuple[list[Task], str | None]:
        """Return tasks in the order of creation and the place to go on from, `None` at the end.

        A place stays valid while tasks come and go, its own task among them.
        """
        ...

    async def read_log(self, key: TaskKey, after: str | None, limit: int) -> list[LogEntry]:
        """Return log entries after an offset (`None`: from the start), oldest first."""
        ...

    async def renew(self, keys: Sequence[TaskKey], owner: str, lease_ms: int) -> None:
        """Renew the leases of running tasks, in one round trip for all; for 0 ms they end now."""
        ...

    async def claim_lost(self, owner: str, lease_ms: int, limit: int) -> list[Task]:
        """Take over tasks whose lease has ended: owner and epoch change, atomically for each.

        Leases of tasks that are gone or have ended are swept on the way.
        """
        ...

    async def sweep(self) -> None:
        """Let go of what has expired, where the store does not do that by itself."""
        ...

    async def end_session(self, session: str, ttl_ms: int) -> None:
        """Remember for a while that a session has been ended by its client."""
        ...

    async def session_ended(self, session: str) -> bool:
        """Tell whether a session has been ended by its client."""
        ...

    async def shared_secret(self, make: Callable[[], bytes]) -> bytes:
        """Return the secret that all replicas share; the first replica's `make` decides it."""
        ...

    async def ping(self) -> None:
        """Return when the store answers."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


class Wakeup(Protocol):
    """A bell for one task: rings at each append, move and end, on whichever replica it happened."""

    async def wait(self) -> None:
        """Return when it has rung since the last return; may ring without cause."""
        ...


class Bus(Protocol):
    """Words between replicas: wake-ups for readers, commands for the replica that runs a task.

    Delivery is best effort; the store holds the truth.
    """

    async def send(self, owner: str, command: Command) -> bool:
        """Send a command to a replica; tell whether anybody heard it."""
        ...

    async def send_all(self, command: Command) -> None:
        """Send a command to every replica, this one among them."""
        ...

    def commands(self) -> AsyncIterator[Command]:
        """Yield the commands to this replica, for as long as it lives, across lost connections."""
        ...

    def watch(self, key: TaskKey) -> AbstractAsyncContextManager[Wakeup]:
        """Hear of changes to one task; cheap, and costs the store nothing per watcher."""
        ...

    def hear(self, key: TaskKey, ring: Callable[[], None]) -> None:
        """Have `ring` called when a `Wakeup` for the task would ring; for many who wait for long."""
        ...

    def unhear(self, key: TaskKey, ring: Callable[[], None]) -> None:
        """Have it called no more."""
        ...

    async def close(self) -> None:
        """Stop listening."""
        ...


RateKind = Literal["create", "get", "result", "list"]


class RateLimits(Protocol):
    """Rates per scope (SEP-1686 section 8.1.3)."""

    async def hit(self, kind: RateKind, scope: Scope) -> float | None:
        """Count one; `None` where it is allowed, else the seconds until it would be.

        When the store is away everything is allowed: rates must not stop plain work.
        """
        ...
