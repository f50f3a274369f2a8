"""Metrics of several processes added up, so that they read like those of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

Labels: TypeAlias = tuple[tuple[str, str], ...]

_COUNTED: Final = frozenset({"counter", "histogram", "summary"})
# Of these a sum says nothing: what is the same in all, and when the first of them began.
_CHOSEN: Final = {"mcp_gateway_build_info": max, "process_start_time_seconds": min}


class Series(msgspec.Struct, frozen=True, array_like=True):
    """One sample: the name as it is scraped, its labels, its value."""

    name: str
    labels: Labels
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """All series of one metric of one process."""

    name: str
    kind: str
    words: str
    series: list[Series]


def families(registry: CollectorRegistry) -> list[Family]:
    """Return what a registry holds now."""
    return [
        Family(
            metric.name,
            metric.type,
            metric.documentation,
            [Series(one.name, tuple(sorted(one.labels.items())), one.value) for one in metric.samples],
        )
        for metric in registry.collect()
    ]


@dataclass
class _Total:
    kind: str
    words: str
    values: dict[tuple[str, Labels], float] = field(default_factory=dict[tuple[str, Labels], float])


class Sums:
    """Adds up what processes tell, and remembers what ended processes have counted."""

    def __init__(self) -> None:
        self._buried: list[Family] = []

    def bury(self, last: Iterable[Family]) -> None:
        """Keep what an ended process had counted, so that no sum goes down; its gauges end with it."""
        totals = _add([self._buried, [family for family in last if family.kind in _COUNTED]])
        self._buried = [
            Family(
                name, total.kind, total.words, [Series(*key, value) for key, value in total.values.items()]
            )
            for name, total in totals.items()
        ]

    def render(self, living: Iterable[Iterable[Family]]) -> bytes:
        """Return the text that `/metrics` answers with, for what each living process told last."""
        return generate_latest(_Rendered(_add([self._buried, *living])))


def _add(processes: Iterable[Iterable[Family]]) -> dict[str, _Total]:
    totals: dict[str, _Total] = {}
    for told in processes:
        for family in told:
            total = totals.setdefault(family.name, _Total(family.kind, family.words))
            choose = _CHOSEN.get(family.name)
            for one in family.series:
                key = (one.name, one.labels)
                before = total.values.get(key)
                if before is None:
                    total.values[key] = one.value
                else:
                    total.values[key] = choose(before, one.value) if choose else before + one.value
    return totals


class _Rendered(Collector):
    """Totals as the Prometheus client wants them."""

    def __init__(self, totals: dict[str, _Total]) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        for name, total in self._totals.items():
            metric = Metric(name, total.words, total.kind)
            for (sample, labels), value in total.values.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric
