"""The moves of a task against SEP-1686 section 4.3, written down here by hand."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.errors import IllegalMove
from gateway.tasks.machine import MOVES, TERMINAL, check_move
from gateway.tasks.model import Status
from tests.cold.playbook import make_task

ALL: Final[tuple[Status, ...]] = (
    "submitted",
    "working",
    "input_required",
    "completed",
    "failed",
    "cancelled",
    "unknown",
)
# Sections 4.3.2.1 to 4.3.2.4.
LEGAL: Final[frozenset[tuple[Status, Status]]] = frozenset(
    {
        ("submitted", "working"),
        ("submitted", "input_required"),
        ("submitted", "completed"),
        ("submitted", "failed"),
        ("submitted", "cancelled"),
        ("submitted", "unknown"),
        ("working", "input_required"),
        ("working", "completed"),
        ("working", "failed"),
        ("working", "cancelled"),
        ("working", "unknown"),
        ("input_required", "working"),
        ("input_required", "completed"),
        ("input_required", "failed"),
        ("input_required", "cancelled"),
        ("input_required", "unknown"),
    }
)


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("status", ALL)
def test_I4_a_task_makes_the_moves_of_section_4_3_and_no_others(status: Status, target: Status) -> None:
    if (status, target) in LEGAL:
        check_move(status, target)
        return
    with pytest.raises(IllegalMove) as caught:
        check_move(status, target)
    assert (caught.value.status, caught.value.target) == (status, target)
    assert str(caught.value) == f"a task cannot move from {status} to {target}"


def test_I4_the_table_names_every_status_once() -> None:
    assert tuple(MOVES) == ALL
    assert {(status, target) for status, targets in MOVES.items() for target in targets} == LEGAL


def test_I4_a_terminal_status_is_one_that_nothing_leaves() -> None:
    assert {"completed", "failed", "cancelled", "unknown"} == TERMINAL
    assert {status for status, targets in MOVES.items() if not targets} == TERMINAL


@pytest.mark.parametrize("status", ALL)
def test_a_record_has_ended_where_its_status_is_terminal(status: Status) -> None:
    assert make_task(status=status).ended is (status in TERMINAL)


@given(st.lists(st.sampled_from(ALL), max_size=12))
def test_I4_whatever_is_tried_nothing_follows_a_terminal_status(targets: list[Status]) -> None:
    path: list[Status] = ["submitted"]
    for target in targets:
        try:
            check_move(path[-1], target)
        except IllegalMove:
            continue
        path.append(target)
    assert not TERMINAL.intersection(path[:-1])
    assert "submitted" not in path[1:]
