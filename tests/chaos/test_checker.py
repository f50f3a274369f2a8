"""The judge of chaos, judged: a good history passes, and each rule catches a bad one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import RULES, check
from tests.chaos.history import Asked, Fault, History, Left, Ran, Terms, read, write
from tests.chaos.schedule import WEIGHTS, plan

TERMS = Terms(lease=1.0, timeout=5.0, slack=2.0)
T = 1000.0


def asked(op: str, came: str, at: float = 0.0, **more: Any) -> Asked:
    """Return a record of the call `n`, sent `at` seconds after the start and answered 0.1 s later."""
    fields: dict[str, Any] = {
        "client": "u1",
        "scope": "s1",
        "dialect": "a",
        "upstream": "events",
        "tool": "work",
        "nonce": "n",
        "sent": T + at,
        "answered": T + at + 0.1,
        **more,
    }
    return Asked(op=op, came=came, **fields)  # pyright: ignore[reportArgumentType] (words of the tests)


def ran(event: str, at: float, **more: Any) -> Ran:
    """Return a line of the upstream's log about the call `n`."""
    fields: dict[str, Any] = {"upstream": "events", "pid": 1, "nonce": "n", "scope": "s1", "tool": "work"}
    return Ran(at=T + at, event=event, **{**fields, **more})


def fault(name: str, begun: float, over: float, **more: Any) -> Fault:
    """Return a fault."""
    return Fault(name=name, target="all", begun=T + begun, over=T + over, **more)


CREATED = asked("create", "task", 0)
WORKING = asked("get", "status", 0.5, status="working", kept=30.0, kept_from_end=True)
COMPLETED = asked("get", "status", 1.5, status="completed", kept=30.0, kept_from_end=True)
RESULT = asked("result", "result", 2.0, got_nonce="n", got_scope="s1")
BEGIN, END = ran("begin", 0.1), ran("end", 1.0)
DEAD_SESSION = "Upstream lost: the upstream no longer knows the session"
NOT_FOUND = asked("get", "error", 3.0, status="not_found", code=-32602, words="Task not found")
GOOD = (CREATED, WORKING, COMPLETED, RESULT, BEGIN, END)


def rules(*records: Asked | Fault | Ran | Left) -> set[str]:
    """Return the names of the rules that a history violates."""
    return {one.rule for one in check(History(TERMS).with_more(*records))}


@pytest.mark.parametrize(
    "records",
    [
        GOOD,
        (*GOOD, asked("delete", "ok", 2.5), NOT_FOUND),
        (*GOOD, replace(NOT_FOUND, sent=T + 31, answered=T + 31.1)),
        (*GOOD, NOT_FOUND, fault("redis_wiped", 2.5, 2.6, wipes=True)),
        (asked("plain", "result", got_nonce="n", got_scope="s1"), BEGIN, replace(END, at=T + 0.05)),
        (asked("create", "error", words="no"), fault("redis_cut", 0, 0)),
        (CREATED, BEGIN, asked("get", "status", 2, status="failed"), fault("replica_kill", 0.5, 1)),
        (CREATED, BEGIN, asked("cancel", "ok", 1), asked("get", "status", 2, status="cancelled")),
        (asked("foreign", "error", status="not_found", code=-32602, task_id="x", nonce="p"),),
        (
            replace(CREATED, tool="retry_work"),
            *(replace(one, tool="retry_work") for one in (BEGIN, replace(BEGIN, at=T + 0.3), END)),
            replace(COMPLETED, tool="retry_work"),
        ),
    ],
)
def test_what_may_be_is_let_through(records: tuple[Asked | Fault | Ran | Left, ...]) -> None:
    assert rules(*records) == set()


BAD: list[tuple[str, tuple[Asked | Fault | Ran | Left, ...]]] = [
    ("no_task_is_lost", (*GOOD, NOT_FOUND)),
    ("no_task_is_lost", (CREATED, BEGIN, replace(NOT_FOUND, sent=T + 0.3), fault("redis_restart", 0, 1))),
    ("no_task_is_lost", (*GOOD, NOT_FOUND, asked("delete", "ok", 4))),
    ("nothing_runs_twice", (*GOOD, ran("begin", 0.4))),
    (
        "nothing_runs_twice",
        tuple(
            replace(one, tool="retry_work")
            for one in (CREATED, COMPLETED, END, *(ran("begin", n / 10) for n in range(4)))
        ),
    ),
    ("nothing_runs_twice", (asked("plain", "lost"), BEGIN, ran("begin", 0.2), fault("replica_kill", 0, 1))),
    (
        "nothing_runs_that_was_refused",
        (asked("create", "error"), ran("begin", 1), fault("redis_cut", 0, 0)),
    ),
    ("every_move_is_legal", (*GOOD, asked("get", "status", 3, status="working"))),
    ("every_move_is_legal", (*GOOD, asked("get", "status", 3, status="failed"), fault("x", 0, 4))),
    ("every_move_is_legal", (*GOOD, asked("get", "status", 1.0, status="submitted"))),
    ("every_move_is_legal", (asked("create", "task", status="submitted", dialect="b"), COMPLETED, END)),
    ("nobody_gets_what_is_anothers", (*GOOD, replace(RESULT, got_nonce="m"))),
    ("nobody_gets_what_is_anothers", (*GOOD, replace(RESULT, got_scope="s2"))),
    (
        "nobody_gets_what_is_anothers",
        (asked("foreign", "status", nonce="p", task_id="x", status="working"),),
    ),
    ("nobody_gets_what_is_anothers", (asked("foreign", "error", nonce="p", task_id="x", code=-32602),)),
    ("every_task_ends", (CREATED, WORKING, BEGIN, END)),
    ("every_task_ends", (*GOOD, asked("get", "status", 8.3, status="working"))),
    ("every_outcome_is_true", (CREATED, WORKING, BEGIN, COMPLETED)),
    ("every_outcome_is_true", (CREATED, BEGIN, RESULT)),
    ("every_outcome_is_true", (*GOOD, replace(RESULT, words="unasked"))),
    ("every_outcome_is_true", (CREATED, BEGIN, asked("get", "status", 2, status="failed"))),
    ("every_outcome_is_true", (CREATED, BEGIN, asked("get", "status", 2, status="unknown"))),
    ("every_outcome_is_true", (CREATED, BEGIN, asked("get", "status", 2, status="cancelled"))),
    (
        "every_outcome_is_true",
        (CREATED, BEGIN, asked("get", "status", 2, status="failed"), fault("x", 0, 1, touches=("plain",))),
    ),
    (
        "every_outcome_is_true",
        (
            *(replace(one, tool="fail_work", dialect="b") for one in (CREATED, COMPLETED)),
            *(replace(one, tool="fail_work") for one in (BEGIN, END)),
        ),
    ),
    ("every_request_is_answered", (asked("plain", "lost"), BEGIN)),
    ("every_request_is_answered", (asked("plain", "error", words="no"), BEGIN)),
    ("every_request_is_answered", (asked("plain", "late"), BEGIN, fault("replica_kill", 0, 1))),
    (
        "nobody_stays_in_a_dead_session",
        tuple(
            replace(one, nonce=f"n{number}")
            for number in range(4)
            for one in (CREATED, asked("get", "status", 1, status="failed", words=DEAD_SESSION))
        ),
    ),
    ("nothing_runs_unasked", (*GOOD, ran("begin", 0.1, nonce="m"))),
    ("nothing_is_left", (*GOOD, Left(what="key", where="chaos:x", words="is there"))),
]


@pytest.mark.parametrize(("rule", "records"), BAD)
def test_what_must_not_be_is_caught(rule: str, records: tuple[Asked | Fault | Ran | Left, ...]) -> None:
    assert rule in rules(*records)


def test_every_rule_has_a_bad_history() -> None:
    assert {rule for rule, _ in BAD} >= {rule.__name__ for rule in RULES}


def test_a_creation_that_was_sent_again_without_the_store_is_an_ordinary_call() -> None:
    twice = (asked("create", "lost", 0), asked("create", "result", 1, got_nonce="n", got_scope="s1"))
    runs = (BEGIN, replace(END, at=T + 0.5), ran("begin", 1.01), ran("end", 1.05))
    assert rules(*twice, *runs, fault("redis_restart", 0, 2)) == set()
    assert "nothing_runs_twice" in rules(*twice, *runs, fault("replica_kill", 0, 2))


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = History(TERMS).with_more(*GOOD, fault("x", 0, 1), Left(what="key", where="k", words="w"))
    write(history, tmp_path / "history.jsonl")
    again = read(tmp_path / "history.jsonl")
    assert again == replace(history, asked=sorted(history.asked, key=lambda one: one.sent))


def test_a_schedule_comes_from_its_seed_alone() -> None:
    assert plan(7, 200, 600, 3.0, 3) == plan(7, 200, 600, 3.0, 3)
    assert plan(7, 200, 600, 3.0, 3) != plan(8, 200, 600, 3.0, 3)


def test_a_long_schedule_has_every_fault_and_spares_the_first_replica() -> None:
    made = plan(1, 200, 600, 3.0, 3)
    assert len(made) == 200
    assert {one.name for one in made} == set(WEIGHTS)
    assert all(0 <= one.at < 600 for one in made)
    assert not [one for one in made if one.name == "replica_kill" and one.target == "replica0"]
