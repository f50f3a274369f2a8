"""What was measured, round by round, and the medians, spreads and ratios that are shown of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

COLUMNS: Final[dict[str, str]] = {
    "rate": "1/s",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "first_p50": "first event p50 ms",
    "first_p99": "first event p99 ms",
    "heard_p50": "created p50 ms",
    "cpu": "CPU ms each",
    "balancer_cpu": "HAProxy CPU ms each",
    "redis_cpu": "Redis CPU ms each",
    "all_cpu": "these CPU ms each",
    "upstream_cpu": "upstream CPU ms each",
    "load_cpu": "load CPU ms each",
    "polls": "early polls each",
    "scripts": "Redis scripts each",
    "redis_kb": "kB to and from Redis each",
    "client_kb": "kB to and from clients each",
    "each": "ms each",
    "session_kb": "kB RSS per session",
    "waiter_kb": "kB RSS per waiter",
    "task_kb": "kB Redis memory a task",
    "usage_kb": "kB by MEMORY USAGE",
    "over_kb": "kB beside the result",
    "keys": "keys a task",
    "replica_kb": "kB RSS of the replica a task",
    "opened": "all open s",
    "open_cpu": "CPU ms to open each",
    "rss": "RSS MB",
    "commands": "Redis commands/s",
    "waiting_cpu": "% CPU while waiting",
    "answered_p50": "answered p50 s",
    "answered": "all answered s",
}
# Shown for who doubts the bench itself; a ratio of them says nothing.
PLAIN: Final = frozenset({"load_cpu", "polls", "upstream_cpu", "scripts", "redis_kb", "client_kb"})

Figures = dict[str, float]


class Cell(msgspec.Struct, frozen=True):
    """One figure of one contender: medians over the rounds; ratios are taken within each round."""

    median: float
    least: float
    most: float
    ratio: float | None = None
    ratio_least: float | None = None
    ratio_most: float | None = None


class Outcome(msgspec.Struct):
    """A scenario as measured: `rounds[contender]` is a list of figures, one a round, side by side."""

    scenario: str
    title: str
    base: str
    rounds: dict[str, list[Figures]] = {}
    notes: list[str] = []

    def names(self) -> list[str]:
        """Return the contenders that were measured."""
        return [name for name, rounds in self.rounds.items() if rounds]

    def columns(self) -> list[str]:
        """Return the figures there are, in the order they are shown in."""
        there = {key for rounds in self.rounds.values() for figures in rounds for key in figures}
        return [key for key in COLUMNS if key in there]

    def cell(self, name: str, column: str) -> Cell | None:
        """Return one cell, `None` where that contender has no such figure."""
        values = [figures[column] for figures in self.rounds.get(name, []) if column in figures]
        if not values:
            return None
        cell = Cell(statistics.median(values), min(values), max(values))
        ratios = self._ratios(name, column)
        if not ratios or column in PLAIN:
            return cell
        middle = statistics.median(ratios)
        return msgspec.structs.replace(cell, ratio=middle, ratio_least=min(ratios), ratio_most=max(ratios))

    def _ratios(self, name: str, column: str) -> list[float]:
        pairs = zip(self.rounds.get(name, []), self.rounds.get(self.base, []), strict=False)
        return [one[column] / other[column] for one, other in pairs if column in one and other.get(column)]


def table(outcome: Outcome) -> str:
    """Return the lines of one scenario: median, then ratio to the base with its least and most."""
    columns = outcome.columns()
    rows = [["", *(COLUMNS[column] for column in columns)]]
    rows += [[name, *(_show(outcome.cell(name, column)) for column in columns)] for name in outcome.names()]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [f"{outcome.title}   (ratios to {outcome.base})" if outcome.base else outcome.title]
    lines += ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    lines += [f"  {note}" for note in outcome.notes]
    return "\n".join(line.rstrip() for line in lines)


def summary(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """Return all cells as plain data, with the rounds they come from."""
    return [
        {
            "scenario": outcome.scenario,
            "base": outcome.base,
            "notes": outcome.notes,
            "rounds": outcome.rounds,
            "cells": {
                name: {column: outcome.cell(name, column) for column in outcome.columns()}
                for name in outcome.names()
            },
        }
        for outcome in outcomes
    ]


def _show(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    text = _number(cell.median)
    if cell.ratio is None or cell.ratio_least is None or cell.ratio_most is None:
        return text
    return f"{text} {cell.ratio:.2f}x [{cell.ratio_least:.2f}-{cell.ratio_most:.2f}]"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 20 else f"{value:.3f}"
