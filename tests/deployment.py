"""What the files in `deploy/` ask of the metrics, and the metrics as a gateway gives them out."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any, cast

import yaml
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.metrics import Metrics, WorkerMetrics
from tests.processes import ROOT
from tests.tools import ToolMissing

DEPLOY = ROOT / "deploy"

_SELECTOR = re.compile(r"\b(up|(?:mcp_gateway|process)_\w+)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def read_yaml(name: str) -> dict[str, Any]:
    """Return a YAML file of `deploy/`."""
    return cast("dict[str, Any]", yaml.safe_load((DEPLOY / name).read_text("utf-8")))


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    return cast("dict[str, Any]", json.loads((DEPLOY / "grafana/dashboard.json").read_text("utf-8")))


def panel_queries() -> Iterator[tuple[str, str, str]]:
    """Yield title, query and legend of each of the dashboard's queries."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]


def alert_queries() -> Iterator[tuple[str, str, str]]:
    """Yield name, query and summary of each alert."""
    for group in read_yaml("prometheus/rules.yml")["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], rule["annotations"]["summary"]


def names_in(query: str) -> set[str]:
    """Return the metrics that a query names."""
    return {found[1] for found in _SELECTOR.finditer(query)}


def labels_in(query: str) -> set[str]:
    """Return the labels that a query selects or groups by."""
    matchers = {
        found[1] for part in _SELECTOR.finditer(query) for found in _MATCHER.finditer(part[2] or "")
    }
    groups = {name.strip() for found in _GROUPING.finditer(query) for name in found[1].split(",")}
    return matchers | groups


def labels_in_words(text: str) -> set[str]:
    """Return the labels that a legend or a summary names."""
    return {found[1] for found in _LEGEND.finditer(text)} | set(re.findall(r"\$labels\.(\w+)", text))


def count_once(metrics: Metrics) -> None:
    """Let something of each kind happen once."""
    for outcome in (
        "completed",
        "tool_error",
        "rpc_error",
        "timed_out",
        "upstream_lost",
        "lost",
        "too_large",
    ):
        metrics.tasks_finished.labels("demo", "default", outcome).inc()
    metrics.tasks_created.labels("demo", "default", "a").inc()
    metrics.tasks_now.labels("demo", "working").set(1)
    metrics.task_queued_seconds.labels("demo").observe(0.1)
    metrics.task_run_seconds.labels("demo", "default").observe(10)
    metrics.upstream_calls.labels("demo", "tools/call", "ok").inc()
    metrics.upstream_call_seconds.labels("demo", "tools/call").observe(0.1)
    metrics.store_seconds.labels("create").observe(0.001)
    metrics.store_failures.labels("create").inc()
    metrics.requests.labels("demo", "tools/call", "200").inc()
    metrics.limits_hit.labels("tasks_per_scope").inc()
    metrics.lookups_failed.labels("demo").inc()
    metrics.polls_too_fast.labels("demo").inc()
    metrics.sessions_now.labels("demo").set(1)
    metrics.links_now.labels("demo").set(1)
    metrics.far_lines.labels("asked").set(1)
    metrics.held_now.labels("demo").set(1)
    metrics.streams_now.labels("demo").set(1)
    metrics.events_dropped.labels("hooks").inc()
    metrics.hook_events.labels("webhook", "delivered").inc()
    for state in ("held", "waiting"):
        metrics.turns_now.labels("demo", "default", state).set(1)
    metrics.turns_refused.labels("demo", "default").inc()
    metrics.tasks_taken_over.labels("demo", "resumed").inc()
    metrics.reloads.labels("taken").inc()


def shown(metrics: Metrics) -> bytes:
    """Return what `/metrics` shows of a gateway with one worker, which a supervisor counts."""
    workers = WorkerMetrics()
    workers.workers.labels("serving").set(1)
    workers.restarts.labels("1").inc()
    workers.connections.labels("1").set(1)
    # All else of a supervisor's is in the sums over its workers.
    own = [line for line in workers.render().splitlines() if b" mcp_gateway_worker" in b" " + line]
    return metrics.render() + b"\n".join(own) + b"\n"


def exposed(metrics: Metrics) -> dict[str, set[str]]:
    """Return the labels of each sample that `/metrics` shows, with those that the scrape adds."""
    found: dict[str, set[str]] = {"up": {"instance", "job"}}
    for family in text_string_to_metric_families(shown(metrics).decode()):
        if not family.samples:
            raise AssertionError(f"count_once does not count {family.name}")
        for sample in family.samples:
            found.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return found


def program(name: str) -> str:
    """Return the path of a program of the Debian package `prometheus`; raise `ToolMissing`."""
    if (found := shutil.which(name)) is None:
        raise ToolMissing(f"{name} is missing: install the Debian package 'prometheus'")
    return found
