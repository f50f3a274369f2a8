"""Plays a vector: messages in from either side, messages out, through the cold rooms alone.

The table keeps what a store would keep and decides nothing: what is refused, what a message means and what
goes out comes from the dialect, the life of a call and the policy.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec

from gateway.dialects.port import About
from gateway.dialects.sep1686 import Sep1686
from gateway.protocol.envelope import (
    Envelope,
    dump,
    members,
    peek,
    refusal_response,
    response,
    text_of,
)
from gateway.protocol.errors import Refusal
from gateway.tasks import call
from gateway.tasks.machine import check_move
from gateway.tasks.model import Outcome, Scope, Task, TaskKey
from gateway.tasks.policy import Policy, PolicyBook, grant_keep_alive

VECTORS: Final = Path(__file__).parents[1] / "vectors"
ANY: Final = "<any>"
_MISSING: Final = object()
MAX_ID_BYTES: Final = 512
Side = Literal["client", "upstream"]
SCOPE: Final = Scope("reports", "s-1")


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """One message that comes in, and all that goes out for it, in order."""

    sender: Side = msgspec.field(name="from")
    message: Any = msgspec.field(name="in")
    out: list[dict[str, Any]]


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is there before the first step: tasks as `tasks/get` tells them, the policy, the next page."""

    tasks: list[dict[str, Any]] = []
    policy: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}
    next_cursor: str | None = None


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """A trace of messages under a name that says what it shows."""

    name: str
    steps: list[Step]
    given: Given = Given()


class Vector(msgspec.Struct, forbid_unknown_fields=True):
    """One rule of SEP-1686 by its section, in a line of English, and the traces that show it."""

    rule: str
    says: str
    cases: list[Case]


def read_vector(path: Path) -> Vector:
    """Return the vector of a file."""
    return msgspec.json.decode(path.read_bytes(), type=Vector)


def make_task(task_id: str = "t", status: str = "working", **fields: Any) -> Task:
    """Return a record of dialect A."""
    known: dict[str, Any] = {
        "key": TaskKey(SCOPE, task_id),
        "dialect": "a",
        "method": "tools/call",
        "tool": "render",
        "pattern": "default",
        "session": "1",
        "request_id": b"1",
        "status": status,
        "created_at": 1,
        "updated_at": 1,
        "keep_alive": 30_000,
        "poll_interval": 5_000,
        "timeout": 60_000,
    }
    return Task(**(known | fields))


class Table:
    """The tasks of one requester, and one upstream call at most."""

    def __init__(self, given: Given) -> None:
        self._dialect = Sep1686()
        self._tasks: dict[str, tuple[Task, Outcome | None]] = {}
        self._policies = PolicyBook(
            default=Policy(**given.policy),
            methods={name: Policy(**rule) for name, rule in given.methods.items()},
        )
        self._next = given.next_cursor
        self._running = ""
        self._asked = 0
        for told in given.tasks:
            self._put(told)

    def play(self, sender: Side, message: bytes) -> list[dict[str, Any]]:
        """Take one message and return what goes out: `to` and `message`, in order."""
        if sender == "upstream":
            return [{"to": "client", "message": json.loads(out)} for out in self._from_upstream(message)]
        envelope: Envelope | None = None
        try:
            envelope = peek(message)
            return [{"to": to, "message": json.loads(out)} for to, out in self._from_client(envelope)]
        except Refusal as refusal:
            refused = refusal_response(None if envelope is None else envelope.id, refusal)
            return [{"to": "client", "message": json.loads(refused)}]

    def _put(self, told: dict[str, Any]) -> None:
        fields: dict[str, Any] = {"keep_alive": told["keepAlive"], "error": told.get("error")}
        fields["poll_interval"] = told.get("pollFrequency")
        task = make_task(told["taskId"], told["status"], **fields)
        outcome = None
        if task.ended:
            result = told.get("result")
            outcome = Outcome(
                status=task.status, result=None if result is None else dump(result), error=task.error
            )
        self._tasks[task.key.task_id] = task, outcome

    def _from_client(self, envelope: Envelope) -> list[tuple[Side, bytes]]:
        about = self._dialect.read_about(envelope)
        if about is not None:
            return [("client", self._about(envelope.id or b"", about))]
        policy = self._policies.find(envelope.method, text_of(members(envelope.params).get("name")))
        if not self._dialect.wants_task(envelope) or policy.mode == "forbidden":
            return [("upstream", envelope.raw)]
        ask = self._dialect.read_ask(envelope, MAX_ID_BYTES)
        if ask.task_id in self._tasks:
            raise self._dialect.exists(ask.task_id)
        task = make_task(
            ask.task_id,
            "submitted",
            request_id=envelope.id,
            keep_alive=grant_keep_alive(policy, ask.keep_alive, wanted_forever=ask.forever),
            poll_interval=policy.poll_interval,
        )
        self._tasks[ask.task_id] = task, None
        self._running = ask.task_id
        sent, _ = call.upstream_request(self._dialect.strip(envelope.raw), "u-1")
        return [("client", self._dialect.created(task)), ("upstream", sent)]

    def _about(self, ident: bytes, about: About) -> bytes:
        if about.kind == "list":
            page = self._dialect.listed([task for task, _ in self._tasks.values()], self._next)
            return response(ident, page)
        found = self._tasks.get(about.task_id)
        if found is None:
            raise self._dialect.not_found(about)
        if about.kind == "get":
            return response(ident, self._dialect.described(*found))
        if about.kind == "result":
            return self._dialect.result(ident, *found)
        del self._tasks[about.task_id]
        return response(ident, self._dialect.removed(about.task_id))

    def _from_upstream(self, message: bytes) -> list[bytes]:
        task, _ = self._tasks[self._running]
        heard = call.hear(message)
        match heard.kind:
            case "noise" | "ping":
                return []
            case "final":
                return self._ended(task, heard.outcome)
            case "ask":
                self._asked += 1
                self._wait(task)
                message = call.readdressed(message, dump(call.relay_id(task.key, 1, self._asked)))
            case "progress" | "notification" | "withdrawn":
                pass
        return [self._dialect.relayed(task.key.task_id, message)]

    def _ended(self, task: Task, outcome: Outcome | None) -> list[bytes]:
        assert outcome is not None
        check_move(task.status, outcome.status)
        task = msgspec.structs.replace(
            task, status=outcome.status, error=outcome.error, is_error=outcome.is_error
        )
        self._tasks[task.key.task_id] = task, outcome
        final = self._dialect.final(task, outcome)
        return [] if final is None else [final]

    def _wait(self, task: Task) -> None:
        if task.status != "input_required":
            check_move(task.status, "input_required")
            self._tasks[task.key.task_id] = msgspec.structs.replace(task, status="input_required"), None


def alike(wanted: Any, found: Any) -> bool:
    """Tell whether a message is the one that is wanted.

    `<any>` stands for anything; an error may carry `data` that the seed does not name.
    """
    if wanted == ANY:
        return True
    if type(wanted) is not type(found):
        return False
    if isinstance(wanted, dict):
        return _alike_members(cast("dict[str, Any]", wanted), cast("dict[str, Any]", found))
    if isinstance(wanted, list):
        pairs = list(zip_longest(cast("list[Any]", wanted), cast("list[Any]", found), fillvalue=_MISSING))
        return all(alike(one, other) for one, other in pairs)
    return bool(wanted == found)


def _alike_members(wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    extra = found.keys() - wanted.keys()
    if extra and not (extra == {"data"} and "code" in wanted):
        return False
    return all(name in found and alike(part, found[name]) for name, part in wanted.items())
