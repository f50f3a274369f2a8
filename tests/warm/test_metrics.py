"""The metrics' names, labels and bounds, and the lines of the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe import logs
from gateway.observe.families import OPEN_BOUND
from gateway.observe.metrics import OUTCOMES, PREFIX, Metrics, method_class

# Names and labels as the operators' documents promise them.
PROMISED = {
    "tasks_created_total": ("counter", {"upstream", "pattern", "dialect"}),
    "tasks": ("gauge", {"upstream", "status"}),
    "tasks_finished_total": ("counter", {"upstream", "pattern", "outcome"}),
    "task_queued_seconds": ("histogram", {"upstream"}),
    "task_run_seconds": ("histogram", {"upstream", "pattern"}),
    "upstream_calls_total": ("counter", {"upstream", "method", "outcome"}),
    "upstream_call_seconds": ("histogram", {"upstream", "method"}),
    "store_operation_seconds": ("histogram", {"operation"}),
    "store_failures_total": ("counter", {"operation"}),
    "requests_total": ("counter", {"upstream", "method", "status"}),
    "limits_hit_total": ("counter", {"limit"}),
    "task_lookups_failed_total": ("counter", {"upstream"}),
    "task_polls_too_fast_total": ("counter", {"upstream"}),
    "sessions": ("gauge", {"upstream"}),
    "upstream_links": ("gauge", {"upstream"}),
    "held_sessions": ("gauge", {"upstream"}),
    "client_streams": ("gauge", {"upstream"}),
    "events_dropped_total": ("counter", {"where"}),
    "hook_events_total": ("counter", {"plugin", "outcome"}),
    "build_info": ("gauge", {"version", "python"}),
}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((PREFIX + name, tuple(sorted(labels.items()))))


def touch(metrics: Metrics) -> None:
    metrics.tasks_created.labels("a", "get_*", "a").inc()
    metrics.tasks_now.labels("a", "working").inc()
    metrics.tasks_finished.labels("a", "get_*", "tool_error").inc()
    metrics.task_queued_seconds.labels("a").observe(0.1)
    metrics.task_run_seconds.labels("a", "get_*").observe(4_000)
    metrics.upstream_calls.labels("a", "tools/call", "ok").inc()
    metrics.upstream_call_seconds.labels("a", "tools/call").observe(0.1)
    metrics.store_seconds.labels("create").observe(0.001)
    metrics.store_failures.labels("create").inc()
    metrics.requests.labels("a", "tools/call", "200").inc()
    metrics.limits_hit.labels("tasks_per_scope").inc()
    metrics.lookups_failed.labels("a").inc()
    metrics.polls_too_fast.labels("a").inc()
    metrics.sessions_now.labels("a").set(3)
    metrics.links_now.labels("a").set(2)
    metrics.held_now.labels("a").set(2)
    metrics.streams_now.labels("a").set(1)
    metrics.events_dropped.labels("stream").inc()
    metrics.hook_events.labels("webhook", "ok").inc()


def test_every_metric_has_the_name_type_and_labels_that_are_promised() -> None:
    metrics = Metrics("1.2.3", ["a"], ["get_*"], ["webhook"])
    touch(metrics)
    found = {
        sample.name.removeprefix(PREFIX).removesuffix("_count"): (family.type, set(sample.labels))
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if sample.name.startswith(PREFIX) and not sample.name.endswith(("_bucket", "_sum"))
    }
    assert found == PROMISED


def test_labels_are_given_in_the_order_of_the_table() -> None:
    metrics = Metrics("1.2.3", ["a"], ["get_*"])
    touch(metrics)
    assert value(metrics, "tasks_created_total", upstream="a", pattern="get_*", dialect="a") == 1
    assert value(metrics, "tasks_finished_total", upstream="a", pattern="get_*", outcome="tool_error") == 1
    assert value(metrics, "requests_total", upstream="a", method="tools/call", status="200") == 1
    assert value(metrics, "task_run_seconds_bucket", upstream="a", pattern="get_*", le="3600.0") == 0
    assert value(metrics, "task_run_seconds_bucket", upstream="a", pattern="get_*", le="7200.0") == 1


def test_every_outcome_of_a_task_is_told_apart() -> None:
    metrics = Metrics("1", ["a"], [])
    for outcome in OUTCOMES:
        metrics.tasks_finished.labels("a", "default", outcome).inc()
    assert value(metrics, "tasks_finished_total", upstream="a", pattern="default", outcome="other") is None
    assert OUTCOMES[:3] == ("completed", "tool_error", "rpc_error")


def test_I10_names_that_nobody_configured_are_counted_as_other() -> None:
    metrics = Metrics("1", ["a"], ["get_*"])
    for index in range(1_000):
        metrics.requests.labels(f"evil{index}", f"nonsense/{index}", str(1_000 + index)).inc()
        metrics.tasks_created.labels("a", f"p{index}", "z").inc()
    assert value(metrics, "requests_total", upstream="other", method="other", status="other") == 1_000
    assert value(metrics, "tasks_created_total", upstream="a", pattern="other", dialect="other") == 1_000
    assert repr(metrics.requests) == "<Family of 1 series>"


def test_I10_without_configured_names_the_first_hundred_are_taken() -> None:
    metrics = Metrics("1")
    for index in range(OPEN_BOUND + 50):
        metrics.sessions_now.labels(f"u{index}").inc()
    assert value(metrics, "sessions", upstream="other") == 50
    assert value(metrics, "sessions", upstream="u0") == 1


def test_a_series_is_the_same_one_each_time() -> None:
    metrics = Metrics("1", ["a"])
    assert metrics.requests.labels("a", "ping", "200") is metrics.requests.labels("a", "ping", "200")


def test_a_wrong_number_of_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match="argument"):
        Metrics("1").requests.labels("a")


@pytest.mark.parametrize("method", ["tools/call", "tasks/get", "initialize", "notifications/cancelled"])
def test_methods_of_the_protocol_are_their_own_class(method: str) -> None:
    assert method_class(method) == method


@pytest.mark.parametrize("method", ["", "tools/callx", "TOOLS/CALL", "x" * 10_000])
def test_all_other_methods_are_one_class(method: str) -> None:
    assert method_class(method) == "other"


def test_two_gateways_in_one_process_count_apart() -> None:
    one, two = Metrics("1"), Metrics("2")
    one.sessions_now.labels("a").inc()
    assert value(two, "sessions", upstream="a") is None


@pytest.fixture
def quiet_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


@pytest.mark.usefixtures("quiet_root")
def test_an_event_of_a_task_is_one_json_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.TaskLog().event(
        "finished", task_id="t-1", upstream="a", scope="abc", session="s", status="completed", seconds=1.5
    )
    (line,) = lines(capsys)
    when = line.pop("time")
    assert when.endswith("Z")
    assert line == {
        "level": "info",
        "logger": "gateway.task",
        "message": "task finished",
        "event": "finished",
        "task_id": "t-1",
        "upstream": "a",
        "scope": "abc",
        "session": "s",
        "status": "completed",
        "seconds": 1.5,
    }


@pytest.mark.usefixtures("quiet_root")
def test_arguments_and_results_cannot_be_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    smuggled: Any = {"task_id": "t", "arguments": {"card": "4111"}, "result": "4111"}
    logs.TaskLog().event("created", **smuggled)
    assert "4111" not in capsys.readouterr().err


@pytest.mark.usefixtures("quiet_root")
@pytest.mark.parametrize("form", ["json", "text"])
def test_what_a_client_sends_cannot_forge_a_line(
    capsys: pytest.CaptureFixture[str], form: logs.Format
) -> None:
    logs.configure("info", form)
    logs.TaskLog().event("refused", task_id='a\n{"event":"created"}\r\x1b[2J\x9b\u2028\ud800\0')
    logging.getLogger("gateway.x").warning("odd name %s", "a\nb\x1b[2J")
    written = capsys.readouterr().err
    assert written.count("\n") == 2
    assert written.isascii()
    assert "\x1b" not in written
    assert "\0" not in written


@pytest.mark.usefixtures("quiet_root")
def test_I10_a_line_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.TaskLog().event("refused", task_id="x" * 1_000_000)
    logging.getLogger("gateway.x").warning("y" * 1_000_000)
    assert len(capsys.readouterr().err) < 3 * logs.MAX_TEXT


@pytest.mark.usefixtures("quiet_root")
def test_a_failure_carries_its_traceback_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    try:
        raise KeyError("gone")
    except KeyError:
        logging.getLogger("gateway.x").exception("failed")
    (line,) = lines(capsys)
    assert line["message"] == "failed"
    assert "KeyError: 'gone'" in line["exception"]


@pytest.mark.usefixtures("quiet_root")
def test_the_level_and_the_form_can_be_chosen_again(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.configure("warning", "text")
    logs.TaskLog().event("created", task_id="t")
    logging.getLogger("gateway.x").warning("careful")
    captured = capsys.readouterr().err
    assert captured.count("\n") == 1
    assert captured.endswith("WARNING gateway.x careful\n")
