"""A history told call by call: what was asked about each, what ran for it, what was broken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tests.chaos.history import EVERYTHING, Asked, Fault, History, Ran, Terms

TERMINAL: Final = frozenset({"completed", "failed", "cancelled", "unknown"})


@dataclass
class Story:
    """All records of one call."""

    nonce: str
    terms: Terms
    asked: list[Asked]
    ran: list[Ran]
    faults: list[Fault]

    @cached_property
    def first(self) -> Asked:
        """The record that tells whose call it is."""
        return self.asked[0]

    @cached_property
    def runs(self) -> list[Ran]:
        """The executions: how often the upstream began."""
        return [one for one in self.ran if one.event == "begin"]

    @cached_property
    def ends(self) -> list[Ran]:
        """The executions that came to their end."""
        return [one for one in self.ran if one.event == "end"]

    @cached_property
    def creations(self) -> list[Asked]:
        """The attempts to make a task of it."""
        return [one for one in self.asked if one.op == "create"]

    @cached_property
    def seen(self) -> list[Asked]:
        """The answers that told a status."""
        return [one for one in self.asked if one.came in ("task", "status") and one.status]

    @cached_property
    def announced(self) -> Asked | None:
        """The first answer that told of a task; what is seen of a refused creation is no promise."""
        refused = bool(self.creations) and all(
            one.came == "error" and one.status != "taken" for one in self.creations
        )
        told = [one for one in self.asked if one.came in ("task", "status") and one.op != "foreign"]
        return None if refused else min(told, key=lambda one: one.answered, default=None)

    @cached_property
    def deleted_at(self) -> float | None:
        """When the client first asked for its deletion."""
        return min((one.sent for one in self.asked if one.op == "delete"), default=None)

    @cached_property
    def stopped_at(self) -> float | None:
        """When the client first asked to cancel or delete it."""
        return min((one.sent for one in self.asked if one.op in ("cancel", "delete")), default=None)

    @cached_property
    def kept_until(self) -> float:
        """Until when it is there at least: the retention from the earliest time that it may count from."""
        kept = max((one.kept for one in self.asked if one.kept is not None), default=None)
        if self.announced is None or kept is None:
            return float("inf")
        if any(one.kept_from_end for one in self.asked):
            running = [one.sent for one in self.seen if one.status not in TERMINAL]
            return max([self.announced.sent, *running]) + kept
        return min(one.sent for one in self.creations or [self.announced]) + kept

    @cached_property
    def bound(self) -> float:
        """By when it must have ended."""
        assert self.announced is not None
        return self.announced.answered + self.terms.timeout + self.terms.lease + self.terms.slack

    def touched(self, since: float, until: float) -> bool:
        """Whether something was broken that may have to do with it, within a lease of that time."""
        near = self.terms.lease
        return any(
            fault.begun <= until + near
            and fault.over >= since - near
            and (EVERYTHING in fault.touches or self.first.upstream in fault.touches)
            for fault in self.faults
        )

    def wiped(self, since: float, until: float) -> bool:
        """Whether the memory of Redis was taken away meanwhile."""
        return any(fault.wipes and fault.begun <= until and fault.over >= since for fault in self.faults)


def stories(history: History) -> list[Story]:
    """Return the calls that clients asked for, each with its records in the order of their sending."""
    asked: defaultdict[str, list[Asked]] = defaultdict(list)
    ran: defaultdict[str, list[Ran]] = defaultdict(list)
    for one in sorted(history.asked, key=lambda each: each.sent):
        asked[one.nonce].append(one)
    for run in history.ran:
        ran[run.nonce].append(run)
    return [
        Story(nonce, history.terms, records, ran[nonce], history.faults) for nonce, records in asked.items()
    ]
