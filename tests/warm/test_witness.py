"""What operators are told of a task: an audit line for each event (SEP-1686 section 8.3)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.observe.logs import JsonLines, TaskLog
from gateway.observe.metrics import Metrics
from gateway.service.witness import Witness
from gateway.tasks.model import Task
from tests.cold.playbook import SCOPE, make_task

Tell = Callable[[Witness, Task], None]
TELLS: Final[list[tuple[str, Tell]]] = [
    ("created", lambda witness, task: witness.created(task)),
    ("started", lambda witness, task: witness.started(task)),
    ("input_required", lambda witness, task: witness.asked(task, "roots/list")),
    ("answered", lambda witness, task: witness.answered(task, "roots/list")),
    ("finished", lambda witness, task: witness.finished(task, "completed")),
    ("fetched", lambda witness, task: witness.fetched(task)),
    ("deleted", lambda witness, task: witness.deleted(task)),
]


def told(caplog: pytest.LogCaptureFixture, tell: Tell) -> list[dict[str, Any]]:
    witness = Witness(Metrics("0", ["reports"], [], []), TaskLog(), lambda _: None)
    task = make_task("t-1", "completed", ended_at=5, started_at=2, keep_alive=10)
    with caplog.at_level(logging.INFO, logger="gateway.task"):
        tell(witness, task)
    return [json.loads(JsonLines().format(record)) for record in caplog.records]


@pytest.mark.parametrize(("event", "tell"), TELLS)
def test_each_event_of_a_task_is_one_line_with_scope_and_session(
    caplog: pytest.LogCaptureFixture, event: str, tell: Tell
) -> None:
    (line,) = told(caplog, tell)
    assert line["event"] == event
    assert (line["task_id"], line["upstream"], line["scope"]) == ("t-1", "reports", SCOPE.tag)
    assert line["session"] == "1"
    assert line["status"] == "completed"


def test_a_refused_task_is_told_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = told(caplog, lambda witness, _: witness.refused(SCOPE, "1", "t-1", "exists"))
    assert (line["event"], line["reason"], line["scope"]) == ("refused", "exists", SCOPE.tag)


def test_a_task_whose_keep_alive_is_over_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def expire(witness: Witness, task: Task) -> None:
        witness.finished(task, "completed")
        for now in (14, 15, 16):
            witness.tell_expired(now)

    assert [line["event"] for line in told(caplog, expire)] == ["finished", "expired"]
