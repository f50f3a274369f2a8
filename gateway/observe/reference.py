"""The reference of all metrics, made from their table: `python -m gateway.observe.reference` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import Counter, Gauge, Histogram

from gateway.observe.families import Family, Label
from gateway.observe.metrics import (
    CALL_OUTCOMES,
    DIALECTS,
    METHODS,
    OUTCOMES,
    PREFIX,
    STATUSES,
    TAKEN_WAYS,
    WORKER_STATES,
    Metrics,
    Table,
    WorkerMetrics,
)

FILE: Final = Path(__file__).with_name("METRICS.md")

_HEAD: Final = """\
# Metrics

Made from the code by `python -m gateway.observe.reference`; do not edit.

The admin port serves them at `/metrics`. Times are in seconds. Each replica counts what it does itself:
sum over replicas. The usual `process_*` metrics of the Prometheus client are there too, on Linux.
With `workers`, the supervisor serves the sums of all workers, and those of `process_*` with its own.
What a worker has counted stays in the sums when it dies, but for what it counted in its last seconds.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""

HEARD: Final = ("heard", "failed", "timed_out")

# Values that the configuration names, or that are too many to list, are told in words.
_VALUES: Final[tuple[tuple[str, str, Sequence[str]], ...]] = (
    ("dialect", "the wire form that the task was made in", DIALECTS),
    (
        "limit",
        "the option that was met, those under `limits` without that word",
        ("max_queued", "rates.create"),
    ),
    ("method", "the method of the message, or what it was instead", sorted(METHODS)),
    ("operation", "the operation of the store, in the words of `gateway/store/port.py`", ()),
    ("outcome", f"of `{PREFIX}tasks_finished_total`", OUTCOMES),
    ("outcome", f"of `{PREFIX}upstream_calls_total`", CALL_OUTCOMES),
    ("outcome", f"of `{PREFIX}hook_events_total`, and words of the plugin", HEARD),
    ("outcome", f"of `{PREFIX}config_reloads_total`", ("taken", "refused")),
    ("pattern", "the rule's pattern, as configured", ("default", "none")),
    ("plugin", "the plugin's name, as configured", ()),
    ("state", f"of `{PREFIX}workers`", WORKER_STATES),
    ("state", f"of `{PREFIX}turns`", ("held", "waiting")),
    ("status", f"of `{PREFIX}tasks`", STATUSES),
    ("status", f"of `{PREFIX}requests_total`: the HTTP status; on stdio", ("ok", "error")),
    ("upstream", "the upstream's name, as configured", ()),
    ("side", "which side of a line to another replica: it asks, or has the link", ("asked", "served")),
    ("way", "how a task of another replica went on", TAKEN_WAYS),
    ("where", "the queue that was full: a task's stream, or that of the plugins", ("task_stream", "hooks")),
    ("worker", "the number of the worker", ("1", "2")),
)

_LABELS: Final = """
## Labels

Their values are bounded: one that is neither listed nor configured is counted as `other`.

| label | meaning | values |
| --- | --- | --- |
"""


class Row(NamedTuple):
    """One metric: the name as it is scraped, its type, its labels, what it says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    words: str


class _Noted(Table):
    """Metrics as a table of what was declared."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        super().__init__()

    def _counter(self, name: str, words: str, *labels: Label) -> Family[Counter]:
        self._note(f"{name}_total", "counter", words, labels)
        return super()._counter(name, words, *labels)

    def _gauge(self, name: str, words: str, *labels: Label) -> Family[Gauge]:
        self._note(name, "gauge", words, labels)
        return super()._gauge(name, words, *labels)

    def _histogram(
        self, name: str, words: str, buckets: tuple[float, ...], *labels: Label
    ) -> Family[Histogram]:
        self._note(name, "histogram", words, labels)
        return super()._histogram(name, words, buckets, *labels)

    def _note(self, name: str, kind: str, words: str, labels: tuple[Label, ...]) -> None:
        self.rows.append(Row(PREFIX + name, kind, tuple(label.name for label in labels), words))


class _OfGateway(Metrics, _Noted):
    pass


class _OfSupervisor(WorkerMetrics, _Noted):
    pass


def rows() -> list[Row]:
    """Return every metric in the order of the table."""
    found = [*_OfGateway("0").rows, *_OfSupervisor().rows]
    return list({row.name: row for row in found}.values())


def reference() -> str:
    """Return the reference in Markdown."""
    text = _HEAD
    for row in rows():
        labels = ", ".join(f"`{label}`" for label in row.labels)
        text += f"| `{row.name}` | {row.kind} | {labels} | {row.words} |\n"
    text += _LABELS
    for label, meaning, values in _VALUES:
        text += f"| `{label}` | {meaning} | {', '.join(f'`{value}`' for value in values)} |\n"
    return text


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
