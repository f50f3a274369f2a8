"""The figures of a run: a table for people, JSON for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final, cast

from tests.chaos.checker import Violation
from tests.chaos.history import History
from tests.chaos.run import Measured, Size
from tests.chaos.schedule import WEIGHTS
from tests.chaos.stories import TERMINAL, Story, stories
from tests.chaos.world import SKEWS, library

UNKNOWN: Final = "Outcome unknown"


def figures(
    size: Size, history: History, measured: Measured, violations: list[Violation]
) -> dict[str, Any]:
    """Return everything that is worth a number."""
    told = stories(history)
    tasks = [story for story in told if story.announced is not None]
    plain = [one for one in history.asked if one.op == "plain"]
    return {
        "seed": size.seed,
        "seconds": round(measured.seconds, 1),
        "replicas": size.replicas,
        "users": size.users,
        "tasks": len(tasks),
        "tasks_by_dialect": _count(story.first.dialect for story in tasks),
        "tasks_by_upstream": _count(story.first.upstream for story in tasks),
        "outcomes": _count(_outcome(story) for story in tasks),
        "failures": _count(_reason(story) for story in tasks if _outcome(story) == "failed"),
        "outcome_unknown": _count(
            f"{story.first.upstream} {story.first.tool}" for story in tasks if _reason(story) == UNKNOWN
        ),
        "requests": _count(one.op for one in history.asked),
        "requests_that_failed": _count(
            f"{one.op} {one.came}"
            for one in history.asked
            if one.came in ("error", "lost", "late") and not one.status
        ),
        "plain_calls": _count(one.came for one in plain),
        "executions": sum(1 for one in history.ran if one.event == "begin"),
        "executions_again": sum(len(story.runs) - 1 for story in told if len(story.runs) > 1),
        "faults": sum(1 for one in history.faults if one.name in WEIGHTS),
        "faults_by_name": _count(one.name for one in history.faults if one.name in WEIGHTS),
        "clocks_wrong_by_s": [0] if library() is None else list(SKEWS),
        "machine_starved": sum(1 for one in history.faults if one.name == "machine_starved"),
        "worst_seconds_to_end": round(max((_life(story) for story in tasks), default=0.0), 1),
        "memory_kib": list(measured.kib),
        "open_files": measured.files,
        "restarts": measured.restarts,
        "violations": _count(one.rule for one in violations),
        "found": [asdict(one) for one in violations[:200]],
    }


def table(found: dict[str, Any]) -> str:
    """Return the figures as lines for a terminal."""
    lines: list[str] = []
    for name, value in found.items():
        if name == "found":
            continue
        shown = value
        if isinstance(value, dict):
            counts = cast("dict[str, int]", value)
            shown = ", ".join(f"{key} {number}" for key, number in counts.items()) or "none"
        lines.append(f"{name.replace('_', ' '):<24} {shown}")
    return "\n".join(lines)


def told_violations(violations: list[Violation], limit: int = 40) -> str:
    """Return the violations in words."""
    lines = [f"{one.rule} [{one.nonce}] {one.words}" for one in violations[:limit]]
    if len(violations) > limit:
        lines.append(f"… and {len(violations) - limit} more")
    return "\n".join(lines)


def extract(history: History, nonce: str) -> list[str]:
    """Return all that a history says of one call, in the order of time, with the faults near it."""
    about = [one for one in history.asked if one.nonce == nonce]
    ran = [one for one in history.ran if one.nonce == nonce]
    if not about and not ran:
        return []
    begun = min([one.sent for one in about] + [one.at for one in ran])
    over = max([one.answered for one in about] + [one.at for one in ran])
    near = [one for one in history.faults if one.begun <= over and one.over >= begun - 5]
    lines = [
        (
            one.sent,
            f"+{one.answered - one.sent:.3f} {one.op} {one.came} {one.status} {one.http} {one.code}"
            f" {one.words[:120]!r} {one.replica}",
        )
        for one in about
    ]
    lines += [(one.at, f"       {one.upstream} {one.pid} {one.event} {one.tool}") for one in ran]
    lines += [(one.begun, f"+{one.over - one.begun:.3f} FAULT {one.name} {one.target}") for one in near]
    return [f"{when - begun:9.3f} {words}" for when, words in sorted(lines)]


def _count(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())


def _outcome(story: Story) -> str:
    ends = [one.status for one in story.seen if one.status in TERMINAL]
    if ends:
        return ends[-1]
    return "deleted" if story.deleted_at is not None else "result" if story.ends else "none"


def _reason(story: Story) -> str:
    words = next((one.words for one in story.seen if one.status == "failed" and one.words), "")
    return words.partition(":")[0][:40] if words and not words.startswith("{") else "tool error"


def _life(story: Story) -> float:
    ends = [one.answered for one in story.seen if one.status in TERMINAL]
    return min(ends) - story.first.sent if ends else 0.0
