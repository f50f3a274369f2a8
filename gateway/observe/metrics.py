"""All metrics of the gateway, in one table.

They live on a registry of their own, so that several gateways fit into one process (tests). The number
of series is bounded: label values that nobody configured or named here are counted as `other`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from gateway.observe.families import OTHER, Family, Label

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
PREFIX: Final = "mcp_gateway_"

METHODS: Final = frozenset(
    {
        "initialize", "notifications/initialized", "ping", "server/discover", "subscriptions/listen",
        "tools/list", "tools/call", "resources/list", "resources/read", "resources/templates/list",
        "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get",
        "completion/complete", "logging/setLevel", "notifications/cancelled", "notifications/progress",
        "notifications/roots/list_changed", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel",
        "tasks/delete", "tasks/update", "response", "batch", "stream", "delete", "unreadable",
    }
)  # fmt: skip
DIALECTS: Final = ("a", "b", "c", "none")
STATUSES: Final = (
    "submitted", "working", "input_required", "completed", "failed", "cancelled", "unknown",
)  # fmt: skip
OUTCOMES: Final = (
    "completed", "tool_error", "rpc_error", "timed_out", "upstream_lost", "lost", "cancelled", "too_large",
)  # fmt: skip
TAKEN_WAYS: Final = ("resumed", "retried", "begun", "lost")
CALL_OUTCOMES: Final = ("ok", "error", "lost", "timed_out", "cancelled")
WORKER_STATES: Final = ("starting", "serving", "silent", "leaving", "down")
ANSWERS: Final = ("ok", "error", *(str(status) for status in range(100, 600)))

FAST: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
CALLS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
HOURS: Final = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)

# The time of creation of each series doubles their number and says nothing here.
disable_created_metrics()


def method_class(method: str) -> str:
    """Return the label of a method: itself where the protocol names it, else `other`."""
    return method if method in METHODS else OTHER


class Table:
    """Metrics on a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def render(self) -> bytes:
        """Return the text that `/metrics` answers with, of type `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _reloads(self) -> Family[Counter]:
        return self._counter(
            "config_reloads",
            "Configurations read anew (SIGHUP), by whether they were taken.",
            Label("outcome", ("taken", "refused")),
        )

    def _counter(self, name: str, words: str, *labels: Label) -> Family[Counter]:
        metric = Counter(PREFIX + name, words, [label.name for label in labels], registry=self.registry)
        return Family(metric, labels)

    def _gauge(self, name: str, words: str, *labels: Label) -> Family[Gauge]:
        metric = Gauge(PREFIX + name, words, [label.name for label in labels], registry=self.registry)
        return Family(metric, labels)

    def _histogram(
        self, name: str, words: str, buckets: tuple[float, ...], *labels: Label
    ) -> Family[Histogram]:
        names = [label.name for label in labels]
        metric = Histogram(PREFIX + name, words, names, buckets=buckets, registry=self.registry)
        return Family(metric, labels)


class WorkerMetrics(Table):
    """The metrics of a supervisor of workers."""

    def __init__(self) -> None:
        super().__init__()
        number = Label("worker")
        self.workers = self._gauge("workers", "Workers, by state.", Label("state", WORKER_STATES))
        self.restarts = self._counter(
            "worker_restarts", "How often a worker was started again after it had ended.", number
        )
        self.reloads = self._reloads()
        self.connections = self._gauge("worker_connections", "Connections of clients to a worker.", number)
        ProcessCollector(registry=self.registry)


class Metrics(Table):
    """The metrics of one gateway: `metrics.requests.labels(upstream, method, status).inc()`.

    `upstreams`, `patterns` and `plugins` are the names that the configuration knows; where one is left
    out, the first hundred values that come are taken. `patterns` need not hold `default` and `none`.
    """

    def __init__(
        self,
        version: str,
        upstreams: Iterable[str] | None = None,
        patterns: Iterable[str] | None = None,
        plugins: Iterable[str] | None = None,
    ) -> None:
        super().__init__()
        upstream = self._upstream = Label("upstream", upstreams)
        pattern = Label("pattern", None if patterns is None else ("default", "none", *patterns))
        self._pattern = pattern
        method = Label("method", METHODS)
        operation = Label("operation")

        self.tasks_created = self._counter(
            "tasks_created", "Tasks created.", upstream, pattern, Label("dialect", DIALECTS)
        )
        self.tasks_now = self._gauge(
            "tasks", "Tasks that this replica runs, by status.", upstream, Label("status", STATUSES)
        )
        self.tasks_finished = self._counter(
            "tasks_finished",
            "Tasks that have ended; tool_error is a result with isError, rpc_error a protocol error.",
            upstream,
            pattern,
            Label("outcome", OUTCOMES),
        )
        self.task_queued_seconds = self._histogram(
            "task_queued_seconds", "Time from creation to the start of the upstream call.", CALLS, upstream
        )
        self.task_run_seconds = self._histogram(
            "task_run_seconds",
            "Time from the start of the upstream call to its end.",
            HOURS,
            upstream,
            pattern,
        )
        self.turns_now = self._gauge(
            "turns",
            "Calls of this replica under `max_concurrent`, by whether they have their turn.",
            upstream,
            pattern,
            Label("state", ("held", "waiting")),
        )
        self.turns_refused = self._counter(
            "turns_refused", "Tasks refused because `max_queued` calls wait already.", upstream, pattern
        )
        self.tasks_taken_over = self._counter(
            "tasks_taken_over",
            "Tasks of replicas that died or stopped: their call was resumed, made again, begun, or lost.",
            upstream,
            Label("way", TAKEN_WAYS),
        )
        self.upstream_calls = self._counter(
            "upstream_calls", "Calls to upstreams.", upstream, method, Label("outcome", CALL_OUTCOMES)
        )
        self.upstream_call_seconds = self._histogram(
            "upstream_call_seconds", "Time of a call to an upstream.", CALLS, upstream, method
        )
        self.store_seconds = self._histogram(
            "store_operation_seconds", "Time of an operation of the store.", FAST, operation
        )
        self.store_failures = self._counter(
            "store_failures", "Operations that the store did not answer.", operation
        )
        self.requests = self._counter(
            "requests",
            "Messages from clients, by HTTP status, on stdio ok or error.",
            upstream,
            method,
            Label("status", ANSWERS),
        )
        self.limits_hit = self._counter("limits_hit", "Requests that met a limit.", Label("limit"))
        self.lookups_failed = self._counter(
            "task_lookups_failed", "Requests about tasks that are not there or not the asker's.", upstream
        )
        self.polls_too_fast = self._counter(
            "task_polls_too_fast", "Status requests that came sooner than was suggested.", upstream
        )
        self.sessions_now = self._gauge("sessions", "Sessions with open state on this replica.", upstream)
        self.links_now = self._gauge(
            "upstream_links", "Children and HTTP+SSE connections of this replica.", upstream
        )
        self.far_lines = self._gauge(
            "far_lines",
            "What is open between this replica and others about links: asked of them, served to them.",
            Label("side", ("asked", "served")),
        )
        self.held_now = self._gauge(
            "held_sessions",
            "Upstream sessions held for clients of another era.",
            upstream,
        )
        self.streams_now = self._gauge("client_streams", "Open event streams to clients.", upstream)
        self.events_dropped = self._counter(
            "events_dropped", "Events that a bounded queue could not take.", Label("where")
        )
        self.hook_events = self._counter(
            "hook_events", "Events told to plugins.", Label("plugin", plugins), Label("outcome")
        )
        self.reloads = self._reloads()
        self.build_info = self._gauge("build_info", "Always 1.", Label("version"), Label("python"))
        self.build_info.labels(version, platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)

    def admit(self, upstreams: Iterable[str], patterns: Iterable[str]) -> None:
        """Count under these names too: they have come into the configuration."""
        self._upstream.admit(upstreams)
        self._pattern.admit(patterns)
