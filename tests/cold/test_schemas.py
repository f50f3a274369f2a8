"""The check against the official schemas notices what they do not allow."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.schemas import mistakes

TASK: Final[dict[str, Any]] = {
    "taskId": "t",
    "status": "working",
    "createdAt": "2025-11-25T10:30:00Z",
    "lastUpdatedAt": "2025-11-25T10:40:00Z",
}


@pytest.mark.parametrize(
    "change",
    [
        {"statusMessage": None},
        {"status": "submitted"},
        {"pollInterval": 200.5},
        {"taskId": 7},
        {"ttl": "1"},
    ],
)
def test_a_wrong_field_is_noticed(change: dict[str, Any]) -> None:
    assert mistakes("2025-11-25", "Task", TASK | {"ttl": 1}) == []
    assert mistakes("2025-11-25", "Task", TASK | {"ttl": 1} | change)
    assert mistakes("2025-11-25", "Task", TASK)


def test_a_field_that_belongs_to_the_status_is_missed() -> None:
    found = TASK | {"ttlMs": None, "resultType": "complete"}
    assert mistakes("tasks-extension", "GetTaskResult", found) == []
    for status in ("completed", "failed", "input_required"):
        assert mistakes("tasks-extension", "GetTaskResult", found | {"status": status})


def test_a_type_that_does_not_exist_is_no_silent_pass() -> None:
    with pytest.raises(LookupError):
        mistakes("2025-11-25", "TaskOfOurs", {})
