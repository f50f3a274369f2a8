"""Dialects B and C against their vectors (2025-11-25 tasks; ext-tasks and SEP-2663)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cold.playbook_tasks import Table
from tests.cold.traces import Case, alike, cases, files, filled, read, slug

FILES: Final = [*files("b"), *files("c")]
CASES: Final = [pytest.param(case, id=name) for letter in "bc" for name, case in cases(letter)]


@pytest.mark.parametrize("case", CASES)
def test_the_vectors_of_both_texts_hold(case: Case) -> None:
    table, known = Table(case.given), dict[str, Any]()
    for number, step in enumerate(case.steps, 1):
        message = json.dumps(filled(step.message, known), ensure_ascii=False).encode()
        out = table.play(step.sender, message, step.headers)
        told = f"step {number} gave {json.dumps(out, indent=1, ensure_ascii=False)}"
        assert alike(step.out, out, known), told


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_a_vector_is_named_after_its_section(path: Path) -> None:
    vector = read(path)
    assert path.stem[2:] == slug(vector.rule)
    assert len({case.name for case in vector.cases}) == len(vector.cases)
