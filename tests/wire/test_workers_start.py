"""Starts of several workers that cannot be: one clear line, the exit code, and nobody left behind."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.gateways import HOST
from tests.processes import Process
from tests.wire.workers_world import children_of

pytestmark = pytest.mark.one_replica("starts that fail serve nobody")

UPSTREAMS = {"main": {"url": f"http://{HOST}:9/mcp"}}
PLUGIN = """\
from gateway.hooks.port import Plugin
from gateway.protocol.errors import PluginError


class Sulking(Plugin):
    async def start(self):
        raise PluginError("there is no such database")


class Crashing(Plugin):
    async def start(self):
        import os

        os.abort()
"""


def serve(
    place: Path, config: Mapping[str, Any], *more: str, env: Mapping[str, str] | None = None
) -> Process:
    """Start a gateway on free ports with a configuration and words for the command line."""
    file = place / "gateway.yaml"
    free = {"host": HOST, "port": 0}
    file.write_text(
        json.dumps({"listen": free, "admin": free, "upstreams": UPSTREAMS, **config}, indent=2),
        encoding="utf-8",
    )
    return Process([sys.executable, "-m", "gateway", "serve", "-c", str(file), *more], env)


def refused(process: Process, code: int) -> str:
    """Return the one line that a gateway ended with."""
    with process:
        assert process.wait_end(30) == code, process.text
    (line,) = process.lines
    return line


@pytest.fixture
def store(redis_url: str) -> dict[str, Any]:
    """Return the configuration of a store that workers can share."""
    return {"store": {"url": redis_url, "prefix": "workers-start:"}}


@pytest.fixture
def plugins(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Install plugins that do not start, and return the environment in which they are found."""
    place = tmp_path / "site"
    (info := place / "moods-1.dist-info").mkdir(parents=True)
    (place / "moods.py").write_text(PLUGIN, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moods\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[mcp_task_gateway.plugins]\nsulking = moods:Sulking\ncrashing = moods:Crashing\n", encoding="utf-8"
    )
    yield {"PYTHONPATH": str(place)}


def test_workers_on_a_store_in_memory_are_refused(tmp_path: Path) -> None:
    line = refused(serve(tmp_path, {"workers": 2}), 2)
    assert re.match(
        r".*gateway\.yaml:\d+: workers: there are to be 2; workers share nothing but the store", line
    )
    assert "redis://" in line
    assert refused(serve(tmp_path, {}, "--workers", "2"), 2).startswith(
        f"{tmp_path / 'gateway.yaml'}:1: workers: "
    )


def test_the_demo_has_no_store_to_share() -> None:
    line = refused(Process([sys.executable, "-m", "gateway", "serve", "--demo", "--workers", "4"]), 2)
    assert "workers share nothing but the store" in line


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    with serve(tmp_path, {}, "--workers", "many") as process:
        assert process.wait_end(30) == 2
    assert "--workers" in process.lines[-1]
    assert "many" in process.lines[-1]
    assert "workers" in refused(serve(tmp_path, {"workers": -1}), 2)


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    with serve(tmp_path, {"workers": 2}, "--workers", "1") as process:
        process.wait_line("^Store: memory://")
        assert children_of(process.pid) == []


@pytest.mark.parametrize("section", ["listen", "admin"])
def test_a_port_that_is_taken_is_one_line(tmp_path: Path, store: dict[str, Any], section: str) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = {**store, "workers": 2, section: {"host": HOST, "port": port}}
        line = refused(serve(tmp_path, config), 1)
    assert line.startswith(f"mcp-task-gateway: {section}: port {port} of {HOST} cannot be opened: ")


def test_a_free_port_is_said_once_when_the_first_worker_serves(
    tmp_path: Path, store: dict[str, Any]
) -> None:
    with serve(tmp_path, {**store, "workers": 2}) as process:
        port = int(process.wait_line(rf"^Serving main at http://{HOST}:(\d+)/main/mcp$")[1])
        socket.create_connection((HOST, port), 5).close()
        assert len(children_of(process.pid)) == 2
        assert process.stop() == 0
    assert sum("Serving main" in line for line in process.lines) == 1


def test_a_configuration_with_which_no_worker_starts_ends_the_supervisor(
    tmp_path: Path, store: dict[str, Any], plugins: dict[str, str]
) -> None:
    config = {**store, "workers": 2, "plugins": [{"name": "sulking"}], "log": {"level": "error"}}
    with serve(tmp_path, config, env=plugins) as process:
        assert process.wait_end(60) == 2
    assert "there is no such database" in process.lines[-1]
    assert not process.lines[-1].startswith("{")
    assert not any("Serving" in line for line in process.lines)


def test_I5_workers_that_die_at_the_start_are_started_again_ever_more_slowly(
    tmp_path: Path, store: dict[str, Any], plugins: dict[str, str]
) -> None:
    config = {**store, "workers": 2, "plugins": [{"name": "crashing"}]}
    with serve(tmp_path, config, env=plugins) as process:
        process.wait_line(r"worker 1 \(process \d+\) did not start: SIGABRT")
        process.wait_line(r"worker 1 starts again in 0\.\d s", 60)
        assert process.code is None
        assert process.stop() == 0
