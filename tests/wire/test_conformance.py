"""The conformance suites: what a server passes directly it passes behind the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateways import StartGateway
from tests.upstreams import StartServer, fixture_command
from tests.wire.conformance import Release, lost, passed, run_suite

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

# The suite, its arguments and how many checks the fixture server passes when it is reached directly.
SUITES = [
    pytest.param("conformance", ("--suite", "active"), 40, id="0.1.16"),
    pytest.param("conformance-next", ("--requirements", "2025-11-25"), 81, id="0.2.0-alpha.12"),
]
RESUMABLE = ("--events", "--retry", "300")


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
