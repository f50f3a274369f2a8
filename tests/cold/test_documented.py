"""What SEP-1686 section 8 asks to be documented is in the README or the configuration reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from gateway.tasks.policy import Policy

ROOT: Final = Path(__file__).parents[2]
REFERENCE: Final = ROOT / "gateway" / "config" / "REFERENCE.md"


def test_the_readme_says_what_tasks_are_bound_to() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for word in ("Authorization", "session", "scope", "shared", "guess"):
        assert re.search(rf"\b{word}", readme, re.IGNORECASE), f"the README does not speak of: {word}"


def test_the_readme_points_to_the_reference() -> None:
    assert "gateway/config/REFERENCE.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_most_that_a_task_is_kept_is_documented() -> None:
    assert Policy().keep_alive_max == 24 * 3_600_000
    section = REFERENCE.read_text(encoding="utf-8").partition("keep_alive`\n")[2].partition("\n## ")[0]
    assert re.search(r"\| `max` \|.*\b(24h|1d)\b", section)


def test_the_most_tasks_of_one_requester_are_documented() -> None:
    assert re.search(r"\| `tasks_per_scope` \|.*\b100\b", REFERENCE.read_text(encoding="utf-8"))
