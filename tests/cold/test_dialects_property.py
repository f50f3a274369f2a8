"""What holds of the translators whatever happens: valid messages, legal statuses, nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Literal, cast

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dialects.port import Dialect
from gateway.dialects.sep1686 import Sep1686
from gateway.dialects.sep2663 import Sep2663
from gateway.dialects.v2025_11_25 import Tasks20251125
from gateway.protocol.envelope import dump
from gateway.tasks import call
from gateway.tasks.inputs import key_of
from gateway.tasks.machine import MOVES
from gateway.tasks.model import DialectName, Outcome, Pending, Status, Task
from tests.cold import told
from tests.cold.playbook_tasks import ID, Table, at, task_of
from tests.cold.valid import Checked
from tests.schemas import mistakes

Letter = Literal["b", "c"]
STATUSES: Final[tuple[Status, ...]] = tuple(MOVES)
FIRST: Final[tuple[DialectName, ...]] = ("a", "b", "c")
A, B, C = Sep1686(), Tasks20251125(), Sep2663()
# 2025-11-25 tasks "Task Status Lifecycle"; ext-tasks has the same diagram.
LEGAL: Final = {
    "working": {"input_required", "completed", "failed", "cancelled"},
    "input_required": {"working", "completed", "failed", "cancelled"},
    "completed": set[str](),
    "failed": set[str](),
    "cancelled": set[str](),
}
# SEP-1686 section 4.3.2.
LEGAL_A: Final = {
    "submitted": {"working", "input_required", "completed", "failed", "cancelled", "unknown"},
    "working": {"input_required", "completed", "failed", "cancelled", "unknown"},
    "input_required": {"working", "completed", "failed", "cancelled", "unknown"},
    **{end: set[str]() for end in ("completed", "failed", "cancelled", "unknown")},
}
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Luca"}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "hi"},
        "model": "m",
    },
    "roots/list": {"roots": []},
}
ENDS: Final[tuple[dict[str, Any], ...]] = (
    {"result": {"content": [{"type": "text", "text": "72 °F"}], "isError": False}},
    {"result": {"content": [{"type": "text", "text": "no"}], "isError": True}},
    {"result": {"content": [], "structuredContent": {"n": 1.5}, "resultType": "task", "_meta": {"k": 1}}},
    {"error": {"code": -32000, "message": "no such city", "data": [1.5]}},
)
CLIENT: Final = ("get", "result", "list", "cancel", "update", "answer", "listen", "nobody", "garbage")
UPSTREAM: Final = ("progress", "log", *told.ASKED, "ping", "end")
EVENTS: Final = st.lists(
    st.tuples(st.sampled_from((*CLIENT, *UPSTREAM)), st.integers(0, 3)), min_size=1, max_size=25
)


class Play:
    """A client and an upstream that do what they are told, before a table; every message is checked."""

    def __init__(self, letter: Letter) -> None:
        self.letter: Letter = letter
        self.checked = Checked(letter)
        self.keys: dict[str, Any] = {}
        self._table = Table({"tells": letter == "b"})
        self._questions: list[tuple[str, str]] = []
        self._number = 0
        self._ended = False
        self._ask("tools/call", {"name": "t", "arguments": {}, **({"task": {}} if letter == "b" else {})})

    def do(self, event: str, number: int) -> None:
        """Let one thing happen."""
        if event in UPSTREAM:
            self._upstream(event, number)
        elif event == "answer":
            self._answer(number)
        elif event == "update":
            answers = dict(self._answers()[: number + 1])
            self._ask("tasks/update", {"taskId": ID, "inputResponses": {**answers, "nobody": {}}})
        elif event == "listen":
            self._ask("subscriptions/listen", {"notifications": {"taskIds": [ID, "nobody"]}})
        elif event == "nobody":
            self._ask("tasks/get", {"taskId": "nobody"})
        elif event == "garbage":
            self._ask("tasks/cancel", {"taskId": [None, 7, {}, ""][number]})
        else:
            self._ask(f"tasks/{event}", {} if event == "list" else {"taskId": ID})

    def _ask(self, method: str, params: dict[str, Any]) -> None:
        if method == "subscriptions/listen" and self.letter == "b":
            return
        self._number += 1
        if self.letter == "c":
            params = params | {"_meta": META}
        self._client({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})

    def _client(self, message: dict[str, Any]) -> None:
        self.checked.sent(message)
        self._check(self._table.play("client", json.dumps(message).encode(), None))

    def _answers(self) -> list[tuple[str, dict[str, Any]]]:
        return [(key, ANSWERS[entry["method"]]) for key, entry in self.keys.items()]

    def _answer(self, number: int) -> None:
        if self.letter == "b" and self._questions:
            ident, method = self._questions[number % len(self._questions)]
            self._client({"jsonrpc": "2.0", "id": ident, "result": ANSWERS[method]})

    def _upstream(self, event: str, number: int) -> None:
        if self._ended:
            return
        message: dict[str, Any] = {"jsonrpc": "2.0"}
        if event == "end":
            self._ended = True
            message |= {"id": "u-1", **ENDS[number]}
        elif event == "progress":
            params = {"progressToken": "u-1", "progress": number, "total": 4}
            message |= {"method": "notifications/progress", "params": params}
        elif event == "log":
            message |= {"method": "notifications/message", "params": {"level": "info", "data": number}}
        else:
            message |= {"id": number, "method": event, "params": told.ASKED.get(event, {})}
        self._check(self._table.play("upstream", json.dumps(message).encode(), None))

    def _check(self, out: list[dict[str, Any]]) -> None:
        for message in [one["message"] for one in out if one["to"] == "client"]:
            assert self.checked.wrong(message) == [], message
            if "method" in message and "id" in message:
                self._questions.append((message["id"], message["method"]))
            told_of: dict[str, Any] = message.get("result") or message.get("params") or {}
            for key, entry in told_of.get("inputRequests", {}).items():
                assert self.keys.setdefault(key, entry) == entry
        if any("notifications/cancelled" in str(one) for one in out):
            self._ended = True


@pytest.mark.parametrize("letter", ["b", "c"])
@given(events=EVENTS)
def test_whatever_happens_each_message_is_one_of_the_schemas(
    letter: Letter, events: list[tuple[str, int]]
) -> None:
    play = Play(letter)
    for event, number in events:
        play.do(event, number)


@pytest.mark.parametrize("letter", ["b", "c"])
@given(events=EVENTS)
def test_I4_what_one_client_sees_of_a_task_is_a_legal_sequence(
    letter: Letter, events: list[tuple[str, int]]
) -> None:
    play = Play(letter)
    for event, number in events:
        play.do(event, number)
    assert play.checked.statuses[0] == "working"
    assert _illegal(play.checked.statuses, LEGAL) == []


@given(moves=st.lists(st.sampled_from(STATUSES), max_size=12), first=st.sampled_from(FIRST))
def test_I4_any_way_through_the_machine_is_legal_in_every_dialect(
    moves: list[Status], first: DialectName
) -> None:
    dialects: dict[str, Dialect] = {"a": A, "b": B, "c": C}
    status: Status = dialects[first].manner.first_status
    seen: dict[str, list[str]] = {name: [] for name in dialects}
    ways: list[Status] = [status, *moves]
    for target in ways:
        if target != status and target not in MOVES[status]:
            continue
        status = target
        task, outcome = _in_status(status, first)
        for name, dialect in dialects.items():
            described = json.loads(dialect.described(task, outcome))
            seen[name].append(described["status"])
            assert _mistakes(name, described) == []
    assert _illegal(seen["a"], LEGAL_A) == []
    assert _illegal(seen["b"], LEGAL) == []
    assert _illegal(seen["c"], LEGAL) == []


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40)), unique=True))
def test_keys_of_input_requests_are_never_used_again(asked: list[tuple[int, int]]) -> None:
    """The second ask of a replica, and the first of another that took the task over, are two requests."""
    keys = [key_of(call.relay_id(told.KEY, epoch, number)) for epoch, number in asked]
    assert len(set(keys)) == len(keys)


# Out and back: a task read from what a dialect tells of it is told of in the same words again.


@given(told.tasks())
@example((told.task(keep_alive=2**53), None))
def test_nothing_that_dialect_b_can_say_is_lost(known: tuple[Task, Outcome | None]) -> None:
    task, outcome = known
    described = json.loads(B.described(task, outcome))
    again, _ = task_of({"task": described})
    assert json.loads(B.described(again, None)) == described
    assert (again.created_at, again.updated_at) == (task.created_at, task.updated_at)
    assert (again.key.task_id, again.poll_interval) == (task.key.task_id, task.poll_interval)
    _same_retention(task, again)
    if outcome is not None:
        answer = json.loads(B.result(b"1", task, outcome))
        back = _outcome_of(answer, again.status)
        told_again = json.loads(B.result(b"1", again, back))
        assert told_again == answer


@given(told.tasks())
@example((told.task(keep_alive=2**53), None))
def test_nothing_that_dialect_c_can_say_is_lost(known: tuple[Task, Outcome | None]) -> None:
    task, outcome = known
    described = json.loads(C.described(task, outcome))
    waits = [
        Pending(f"x.y.{key}", b"1", entry["method"], dump({"jsonrpc": "2.0", "id": 1, **entry}))
        for key, entry in described.get("inputRequests", {}).items()
    ]
    inline = {name: described[name] for name in ("result", "error") if name in described}
    again, back = task_of({"task": described, "pending": waits, **inline})
    assert json.loads(C.described(again, back)) == described
    assert json.loads(C.status(again, back) or b"{}")["params"] | {"resultType": "complete"} == described
    assert (again.created_at, again.updated_at) == (task.created_at, task.updated_at)
    _same_retention(task, again)


@given(told.tasks())
def test_what_both_newer_dialects_can_say_survives_the_way_through_either(
    known: tuple[Task, Outcome | None],
) -> None:
    """A task read in C by a client that asked for it in B, and then in B again, is the same task."""
    task, outcome = known
    direct = json.loads(B.described(task, outcome))
    in_c = json.loads(C.described(task, outcome))
    inline = {name: in_c[name] for name in ("result", "error") if name in in_c}
    again, back = task_of({"task": in_c, **inline})
    assert json.loads(B.described(again, back)) == direct


@given(told.tasks())
def test_nothing_that_dialect_a_can_say_is_lost(known: tuple[Task, Outcome | None]) -> None:
    task, outcome = known
    described = json.loads(A.described(task, outcome))
    again = msgspec.structs.replace(
        told.task(described["status"], "a"),
        key=msgspec.structs.replace(task.key, task_id=described["taskId"]),
        keep_alive=described["keepAlive"],
        poll_interval=described.get("pollFrequency"),
        error=described.get("error"),
    )
    assert json.loads(A.described(again)) == described
    assert described["status"] == task.status
    assert described.get("pollFrequency") == task.poll_interval


@given(st.integers(0, 4_000_000_000_000))
def test_times_come_back_to_the_millisecond(moment: int) -> None:
    described = json.loads(B.described(told.task(created_at=moment, updated_at=moment), None))
    assert at(described["createdAt"]) == at(described["lastUpdatedAt"]) == moment


def _illegal(statuses: Sequence[str], legal: dict[str, set[str]]) -> list[tuple[str, str]]:
    steps = [(one, other) for one, other in pairwise(statuses) if one != other]
    return [(one, other) for one, other in steps if other not in legal[one]]


def _in_status(status: Status, dialect: DialectName) -> tuple[Task, Outcome | None]:
    if status not in ("completed", "failed", "cancelled", "unknown"):
        return told.task(status, dialect), None
    outcome = {
        "completed": told.OUTCOMES["completed"],
        "failed": told.OUTCOMES["rpc error"],
        "cancelled": told.OUTCOMES["cancelled"],
        "unknown": told.OUTCOMES["unknown"],
    }[status]
    return told.ended(outcome, dialect=dialect), outcome


def _mistakes(name: str, described: dict[str, Any]) -> list[str]:
    if name == "a":
        # SEP-1686 section 3.2: the text has no schema of its own.
        return [] if {"taskId", "status", "keepAlive", "_meta"} <= set(described) else ["a"]
    schema: Any = "2025-11-25" if name == "b" else "tasks-extension"
    return mistakes(schema, "GetTaskResult", described)


def _same_retention(task: Task, again: Task) -> None:
    """Retention from the end is told as what is certain from the creation on."""
    if task.keep_alive is None:
        assert again.keep_alive is None
    elif task.kept_from == "creation":
        assert again.keep_alive == min(task.keep_alive, 2**53 - 1)
    else:
        lived = (task.ended_at or task.updated_at) - task.created_at
        assert again.keep_alive == min(task.keep_alive + lived, 2**53 - 1)


def _outcome_of(answer: dict[str, Any], status: Status) -> Outcome:
    if "result" in answer:
        result = cast("dict[str, Any]", answer["result"])
        return Outcome(status=status, result=dump(result), is_error=bool(result.get("isError")))
    return Outcome(status=status, rpc_error=dump(answer["error"]))
