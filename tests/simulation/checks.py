"""What must hold after a simulation: the invariants of the design, over what was seen and what was run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from tests.simulation.clients import Seen
from tests.simulation.upstream import Execution, SimUpstream

# SEP-1686 section 4.3, written down once more: from each status those that may be seen after it.
_AFTER: Final = {
    "submitted": {"submitted", "working", "input_required", "completed", "failed", "cancelled", "unknown"},
    "working": {"working", "input_required", "completed", "failed", "cancelled", "unknown"},
    "input_required": {"working", "input_required", "completed", "failed", "cancelled", "unknown"},
    "completed": {"completed"},
    "failed": {"failed"},
    "cancelled": {"cancelled"},
    "unknown": {"unknown"},
}
_ENDS: Final = ("completed", "failed", "cancelled", "unknown")
MOST_STARTS: Final = 6
# Time limit, a lease or two for each fault on the way, and the pauses of clients.
BOUND: Final = 140.0


def complaints(seen: Iterable[Seen], upstreams: dict[str, SimUpstream], *, troubled: bool) -> list[str]:
    """Return what is wrong, in words."""
    found: list[str] = []
    for one in seen:
        ran = upstreams[one.plan.upstream].executions.get(one.plan.nonce, [])
        found += [f"{one.plan.nonce}: {words}" for words in _of_one(one, ran, troubled=troubled)]
    return found


def _of_one(one: Seen, ran: list[Execution], *, troubled: bool) -> list[str]:
    found = [
        f"I4: {after} seen after {before}"
        for statuses in one.statuses.values()
        for before, after in pairwise(statuses)
        if after not in _AFTER[before]
    ]
    most = MOST_STARTS if one.plan.retry else 1
    if len(ran) > most:
        found.append(f"I3: run {len(ran)} times")
    if not one.known and not one.maybe and ran:
        found.append("I3: run though its creation was refused")
    if one.made > 1:
        found.append(f"I3: created {one.made} times under one id")
    if one.known and one.ended_at is None and not (one.removed or one.lost_sight):
        found.append("I5: it never ended")
    if one.known and one.lost_sight and one.ended_at is None and not one.removed:
        found.append("I2: told of, and not found before its end")
    return found + _of_outcome(one, ran, troubled=troubled)


def _of_outcome(one: Seen, ran: list[Execution], *, troubled: bool) -> list[str]:
    outcome = one.outcome
    if outcome is None:
        return []
    match outcome.status:
        case "completed" if not any(execution.done for execution in ran):
            return ["completed, but no execution has ended"]
        case "completed" if one.plan.nonce.encode() not in (outcome.result or b""):
            return ["completed with a result that is not its own"]
        case "cancelled" if not (one.cancelled or one.removed):
            return ["cancelled, but nobody had asked for it"]
        case "failed" if not troubled:
            return [f"failed without a fault: {outcome.error}"]
        case _:
            return []
