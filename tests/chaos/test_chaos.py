"""Chaos in its short form: nothing that must hold is violated under faults (I2 to I9, I12)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos import history as histories
from tests.chaos.checker import check
from tests.chaos.report import extract, figures, told_violations
from tests.chaos.run import run, short

SEED = int(os.environ.get("CHAOS_SEED", "9"))


@pytest.mark.timeout(180)
async def test_under_faults_nothing_is_lost_run_twice_mixed_up_or_left_behind(tmp_path: Path) -> None:
    size = short(SEED)
    history, measured = await run(size, tmp_path)
    histories.write(history, tmp_path / "history.jsonl")
    violations = check(history)
    about = [line for one in violations[:5] for line in (one.nonce, *extract(history, one.nonce))]
    assert not violations, "\n".join([told_violations(violations), *about, f"seed {size.seed}"])
    found = figures(size, history, measured, violations)
    # A run that did nothing would violate nothing.
    assert found["faults"] == size.faults
    assert found["tasks"] >= size.tasks / 3
    assert set(found["tasks_by_dialect"]) == {"a", "b", "c"}
    assert found["outcomes"]["completed"] >= found["tasks"] / 3
