"""Fixtures for tests of real processes: the gateway, upstream servers, Redis.

A tool that is not installed skips its tests with the reason; with CI set it fails them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from tests import redis_servers, upstreams
from tests.balancers import serve
from tests.gateways import Gateway, StartGateway
from tests.processes import Process, free_port, wait_port
from tests.tools import ToolMissing
from tests.upstreams import Running, Server, StartServer


def without_tool(reason: ToolMissing) -> None:
    """Skip the test, or fail it where CI is set: there nothing may be missing."""
    if os.environ.get("CI"):
        pytest.fail(str(reason))
    pytest.skip(str(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Take `ToolMissing` in a test as `without_tool` does."""
    try:
        yield
    except ToolMissing as reason:
        without_tool(reason)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: object, request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Take `ToolMissing` in a fixture as `without_tool` does."""
    try:
        return (yield)
    except ToolMissing as reason:
        without_tool(reason)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Start gateways (see `StartGateway`) and end them with the test, which then fails for a traceback."""
    started: list[Gateway] = []

    def start(
        config: Mapping[str, Any], *, env: Mapping[str, str] | None = None, wait: str | None = "/healthz"
    ) -> Gateway:
        started.append(serve(config, tmp_path, env))
        if wait:
            started[-1].wait(wait)
        return started[-1]

    yield start
    _end_all([one.end for one in started])


@pytest.fixture
def fixture_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start fixture servers (see `StartServer`) and end them with the test."""
    started: list[Running] = []

    def start(server: Server, transport: Literal["http", "sse"] = "http", *options: str) -> Running:
        log = tmp_path / f"runs-{len(started)}.jsonl"
        started.append(upstreams.start_fixture(server, transport, *options, log=log))
        return started[-1]

    yield start
    _end_all([one.process.stop for one in started])


@pytest.fixture(scope="session")
def everything_http() -> Iterator[Running]:
    """Serve server-everything as Streamable HTTP."""
    server = upstreams.start_everything("streamableHttp")
    yield server
    server.process.stop(2)


@pytest.fixture(scope="session")
def everything_sse() -> Iterator[Running]:
    """Serve server-everything as legacy HTTP+SSE."""
    server = upstreams.start_everything("sse")
    yield server
    server.process.stop(2)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Start the newest Redis or Valkey that is here, on TCP as most have it."""
    found = redis_servers.find_servers()
    if not found:
        without_tool(ToolMissing("no Redis server here"))
    binary = found.get("valkey") or list(found.values())[-1]
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with Process([str(binary), *options]) as process:
        wait_port(process, port)
        yield f"redis://127.0.0.1:{port}"


def _end_all(ends: list[Callable[[], object]]) -> None:
    """Call all, then raise what the first of them raised."""
    faults: list[Exception | AssertionError] = []
    for end in ends:
        try:
            end()
        except (AssertionError, OSError) as fault:
            faults.append(fault)
    if faults:
        raise faults[0]
