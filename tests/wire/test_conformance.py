"""The conformance suites: what a server passes directly it passes behind the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixture_servers.suite_tasks import POLICIES
from tests.gateways import StartGateway
from tests.upstreams import StartServer, fixture_command
from tests.wire.conformance import Release, Verdicts, lost, passed, run_suite

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

# The suite, its arguments and how many checks the fixture server passes when it is reached directly.
SUITES = [
    pytest.param("conformance", ("--suite", "active"), 40, id="0.1.16"),
    pytest.param("conformance", ("--suite", "all"), 44, id="0.1.16-all"),
    pytest.param("conformance-next", ("--requirements", "2025-11-25"), 84, id="0.2.0-alpha.12"),
    pytest.param("conformance-next", ("--suite", "active"), 73, id="0.2.0-alpha.12-active"),
]
RESUMABLE = ("--events", "--retry", "300")
STATELESS = ("--requirements", "2026-07-28")
TASK_SCENARIOS = frozenset(
    {
        "tasks-lifecycle",
        "tasks-capability-negotiation",
        "tasks-wire-fields",
        "tasks-request-state-removal",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-required-task-error",
        "tasks-mrtr-composition",
    }
)
# All that these scenarios check; one more, tasks-status-notifications, skips itself.
TASK_CHECKS = 44
# Of 196 or 197 checks that can be reached; the server itself passes 55.
STATELESS_FLOOR = 190


def bridged(gateway: StartGateway, url: str) -> str:
    """Start a gateway whose policies are what the task scenarios expect of the tools; return its URL."""
    return gateway({"upstreams": {"fixture": {"url": url, "tasks": POLICIES}}}).url("fixture")


def failures(verdicts: Verdicts) -> list[str]:
    """Return the checks that are not passed."""
    return [
        f"{scenario}: {check} #{number}: {verdict}"
        for (scenario, check, number), verdict in verdicts.items()
        if verdict != "SUCCESS"
    ]


@pytest.mark.parametrize(("release", "arguments", "bar"), SUITES)
def test_I1_every_check_passed_directly_is_passed_behind_the_gateway(
    release: Release,
    arguments: tuple[str, ...],
    bar: int,
    gateway: StartGateway,
    fixture_server: StartServer,
    tmp_path: Path,
) -> None:
    upstream = fixture_server("conformance", "http", *RESUMABLE)
    direct = run_suite(upstream.url, release, tmp_path / "direct", *arguments)
    front = gateway({"upstreams": {"fixture": {"url": upstream.url}}})
    behind = run_suite(front.url("fixture"), release, tmp_path / "behind", *arguments)

    assert passed(direct) >= bar
    assert lost(direct, behind) == []


def test_I1_the_newer_suite_finds_no_fault_in_a_stdio_server_behind_the_gateway(
    gateway: StartGateway, tmp_path: Path
) -> None:
    front = gateway({"upstreams": {"fixture": {"command": fixture_command("conformance", "stdio")}}})
    arguments = ("--requirements", "2025-11-25")
    behind = run_suite(front.url(), "conformance-next", tmp_path / "behind", *arguments)

    assert {check: verdict for check, verdict in behind.items() if verdict == "FAILURE"} == {}
    # Answers with nothing before them are plain JSON, and none is cut short: four checks are not reached.
    assert passed(behind) >= 77


def test_a_handshake_era_server_without_tasks_passes_all_task_scenarios_behind_the_gateway(
    gateway: StartGateway, fixture_server: StartServer, tmp_path: Path
) -> None:
    upstream = fixture_server("conformance", "http", *RESUMABLE)
    front = bridged(gateway, upstream.url)
    verdicts: Verdicts = {}
    for scenario in sorted(TASK_SCENARIOS):
        verdicts |= run_suite(front, "conformance-next", tmp_path / scenario, "--scenario", scenario)

    assert {scenario for scenario, _, _ in verdicts} == TASK_SCENARIOS
    assert failures(verdicts) == []
    assert passed(verdicts) >= TASK_CHECKS


def test_a_handshake_era_server_meets_the_requirements_of_2026_07_28_behind_the_gateway(
    gateway: StartGateway, fixture_server: StartServer, tmp_path: Path
) -> None:
    upstream = fixture_server("conformance", "http", *RESUMABLE)
    direct = run_suite(upstream.url, "conformance-next", tmp_path / "direct", *STATELESS)
    behind = run_suite(bridged(gateway, upstream.url), "conformance-next", tmp_path / "behind", *STATELESS)

    assert lost(direct, behind) == []
    assert passed(behind) >= STATELESS_FLOOR, failures(behind)
