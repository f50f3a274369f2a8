"""Families of metrics with bounded labels, whose series are found at the cost of a dict look-up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from prometheus_client import Counter, Gauge, Histogram

Child = TypeVar("Child", Counter, Gauge, Histogram)

OTHER: Final = "other"
OPEN_BOUND: Final = 100


class Label:
    """A label and the values it may have; anything else is `other`.

    Without `values` the first `OPEN_BOUND` values that come are the ones it may have.
    """

    def __init__(self, name: str, values: Iterable[str] | None = None) -> None:
        self.name = name
        self._open = values is None
        self._values = set(values or ())

    def admit(self, values: Iterable[str]) -> None:
        """Let the label have more values."""
        self._values.update(values)

    def settle(self, value: str) -> str:
        """Return the value to count under."""
        if value in self._values:
            return value
        if self._open and len(self._values) < OPEN_BOUND:
            self._values.add(value)
            return value
        return OTHER


class Family(Generic[Child]):
    """All series of one metric."""

    def __init__(self, metric: Child, labels: tuple[Label, ...]) -> None:
        self._metric = metric
        self._labels = labels
        self._children: dict[tuple[str, ...], Child] = {}

    def __repr__(self) -> str:
        return f"<Family of {len(self._children)} series>"

    def labels(self, *values: str) -> Child:
        """Return the series of these label values, in the order of the table; unknown ones are `other`."""
        child = self._children.get(values)
        return self._settle(values) if child is None else child

    def _settle(self, values: tuple[str, ...]) -> Child:
        settled = tuple(label.settle(str(value)) for label, value in zip(self._labels, values, strict=True))
        child = self._children.get(settled)
        if child is None:
            child = self._children[settled] = self._metric.labels(*settled)
        return child


def part(gauge: Gauge) -> Callable[[int], None]:
    """Return what takes the number of one of several that are counted by a gauge together."""
    last = 0

    def take(number: int) -> None:
        nonlocal last
        gauge.inc(number - last)
        last = number

    return take
