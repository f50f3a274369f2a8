"""What ten million tasks a day need, computed from what the run has measured: a model on paper.

Nothing is measured here. CPU of a task is taken as if it did not change with their number; polls, and tasks
that run for long, are counted apart, since only users know how long theirs take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from tests.bench import payloads
from tests.bench.figures import Outcome
from tests.bench.memory import RUNNING
from tests.bench.replicas import ALONE, named

A_DAY: Final = 10_000_000
PEAK: Final = 5  # times the mean
DAY: Final = 86_400  # seconds
MEAN: Final = A_DAY / DAY
FILL: Final = 0.5  # of a core that is planned to be used at the peak
RETENTIONS: Final = {"1 h": 3_600, "24 h": DAY}
# How often a result crosses between replica and client in the measured cycle.
CROSSINGS: Final = {"a": 2, "c": 1}
SIZES: Final = {"1 kB": "kb1", "100 kB": "kb100"}


class Cost(msgspec.Struct, frozen=True):
    """What a task takes, as measured in a row: ms of CPU, kB to and from clients and Redis, scripts."""

    row: str
    replica: float
    balancer: float
    redis: float
    client_kb: float
    redis_kb: float
    scripts: float


def on_paper(outcomes: Sequence[Outcome]) -> str:
    """Return the table; a line that says what is missing, where not enough was measured in the run."""
    found = {outcome.scenario: outcome for outcome in outcomes}
    title = (
        f"{A_DAY:,} tasks a day, on paper: {MEAN:.0f} a second, {MEAN * PEAK:.0f} at a peak of {PEAK} times"
    )
    costs = {dialect: cost for dialect in CROSSINGS if (cost := _cost(found.get(f"replicas-{dialect}")))}
    memory = found.get("memory")
    if not costs or memory is None:
        return f"{title}: computed where `replicas` and `memory` are measured in the same run"
    poll = _cost(found.get("replicas-poll"))
    columns = [_column(dialect, cost, poll, memory) for dialect, cost in costs.items()]
    head = [word for dialect in costs for word in (f"{dialect.upper()} mean", f"{dialect.upper()} peak")]
    rows = [["", *head], *([what, *(cell for one in columns for cell in one[what])] for what in columns[0])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(
        [title, *(line.rstrip() for line in lines), *_notes(next(iter(costs.values())), memory)]
    )


def _column(dialect: str, cost: Cost, poll: Cost | None, memory: Outcome) -> dict[str, tuple[str, str]]:
    """Return the rows of one dialect, each with what it is on average and at the peak."""
    rows = {
        "cores of replicas": _both(cost.replica / 1e3),
        f"replicas, a core {FILL:.0%} used": _both(cost.replica / 1e3 / FILL, whole=True),
        "cores of HAProxy": _both(cost.balancer / 1e3),
        "cores of Redis": _both(cost.redis / 1e3),
        "scripts of Redis a second": _both(cost.scripts),
    }
    if poll is not None:
        rows["cores of replicas for each further tasks/get"] = _both(poll.replica / 1e3)
        rows["cores of Redis for each further tasks/get"] = _both(poll.redis / 1e3)
    for size, tool in SIZES.items():
        more = (len(payloads.RESULTS[tool]) - len(payloads.RESULTS["small"])) / 1e3
        clients = cost.client_kb + CROSSINGS[dialect] * more
        # A result goes to Redis once, and is read once.
        rows[f"Mbit/s with clients, results of {size}"] = _both(clients * 8 / 1e3)
        rows[f"Mbit/s with Redis, results of {size}"] = _both((cost.redis_kb + 2 * more) * 8 / 1e3)
        kept = _median(memory, f"{dialect.upper()}, {size}", "task_kb")
        for name, seconds in RETENTIONS.items():
            mean, peak = _both(kept * seconds / 1e6)
            # No day is all peak.
            rows[f"GB of Redis, {size} kept for {name}"] = (mean, peak if seconds < DAY else mean)
    return rows


def _notes(cost: Cost, memory: Outcome) -> list[str]:
    task, replica = (_median(memory, RUNNING, column) for column in ("task_kb", "replica_kb"))
    at_once = MEAN * PEAK * 60
    return [
        f"  CPU of a task as with {cost.row}; a cycle is call, status and result, with no more polls",
        f"  tasks that run for a minute are {at_once:,.0f} at once at the peak: "
        f"{at_once * task / 1e6:.2f} GB of Redis ({task:.1f} kB each), "
        f"{at_once * replica / 1e6:.2f} GB of replicas ({replica:.1f} kB each)",
    ]


def _both(each: float, *, whole: bool = False) -> tuple[str, str]:
    mean, peak = each * MEAN, each * MEAN * PEAK
    if whole:
        return str(math.ceil(mean)), str(math.ceil(peak))
    return f"{mean:,.2f}", f"{peak:,.2f}"


def _median(outcome: Outcome, row: str, column: str) -> float:
    cell = outcome.cell(row, column)
    return 0.0 if cell is None else cell.median


def _cost(outcome: Outcome | None) -> Cost | None:
    """Return what an exchange takes behind HAProxy with the most replicas measured, else alone."""
    if outcome is None:
        return None
    row = next((name for name in (named(4), named(2), named(1), ALONE) if outcome.rounds.get(name)), None)
    if row is None:
        return None
    columns = ("cpu", "balancer_cpu", "redis_cpu", "client_kb", "redis_kb", "scripts")
    return Cost(row, *(_median(outcome, row, column) for column in columns))
