"""Unmodified servers behind the gateway: plain calls as ever, and tasks that they know nothing of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import upstreams
from tests.gateways import StartGateway
from tests.upstreams import Running, StartServer
from tests.wire.seed_client import CREATED, Seed, new_id

EVERYTHING_TASK = (
    "trigger-long-running-operation",
    {"duration": 1, "steps": 4},
    "Long running operation completed",
)
FIXTURE_TASK = ("slow_count", {"seconds": 0.5}, "Counted for 0.5 seconds.")


@dataclass(frozen=True)
class Case:
    """An upstream's configuration, a tool of it, its arguments and a part of its answer."""

    upstream: dict[str, Any]
    tool: str
    arguments: dict[str, Any]
    words: str


def _everything_stdio(request: pytest.FixtureRequest) -> Case:
    return Case({"command": upstreams.everything_command()}, *EVERYTHING_TASK)


def _everything_sse(request: pytest.FixtureRequest) -> Case:
    server: Running = request.getfixturevalue("everything_sse")
    return Case({"url": server.url}, *EVERYTHING_TASK)


def _everything_http(request: pytest.FixtureRequest) -> Case:
    server: Running = request.getfixturevalue("everything_http")
    return Case({"url": server.url}, *EVERYTHING_TASK)


def _filesystem(request: pytest.FixtureRequest) -> Case:
    folder: Path = request.getfixturevalue("tmp_path")
    (folder / "note.txt").write_text("kept in a file", encoding="utf-8")
    command = upstreams.filesystem_command(folder)
    return Case(
        {"command": command}, "read_text_file", {"path": str(folder / "note.txt")}, "kept in a file"
    )


def _time(request: pytest.FixtureRequest) -> Case:
    return Case({"command": upstreams.time_command()}, "get_current_time", {"timezone": "UTC"}, "UTC")


def _demo(request: pytest.FixtureRequest) -> Case:
    return Case({"command": [sys.executable, "-m", "gateway.demo"]}, *FIXTURE_TASK)


def _fixture(*how: Any) -> Callable[[pytest.FixtureRequest], Case]:
    def make(request: pytest.FixtureRequest) -> Case:
        start: StartServer = request.getfixturevalue("fixture_server")
        return Case({"url": start(*how).url}, *FIXTURE_TASK)

    return make


CASES = {
    "everything-stdio": _everything_stdio,
    "everything-sse": _everything_sse,
    "everything-http": _everything_http,
    "filesystem": _filesystem,
    "time": _time,
    "demo": _demo,
    "mcp1-http": _fixture("mcp1", "http"),
    "mcp1-http-json-stateless": _fixture("mcp1", "http", "--json", "--stateless"),
    "mcp2-http-events": _fixture("mcp2", "http", "--events"),
    "mcp2-http-stateless": _fixture("mcp2", "http", "--stateless"),
    "mcp2-sse": _fixture("mcp2", "sse"),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param](request)


def _text(answer: dict[str, Any]) -> str:
    assert "result" in answer, answer
    return "\n".join(block["text"] for block in answer["result"]["content"])


async def test_a_task_outlives_its_client_on_a_server_that_knows_no_tasks(
    case: Case, gateway: StartGateway
) -> None:
    front = gateway({"upstreams": {"up": case.upstream}})
    call = {"name": case.tool, "arguments": case.arguments}
    async with Seed(front.url()) as client:
        assert "tasks" in client.welcome["capabilities"]
        listed = await client.ask("tools/list")
        assert case.tool in {tool["name"] for tool in listed["result"]["tools"]}
        assert case.words in _text(await client.ask("tools/call", call))
        unknown = await client.ask("tools/call", {"name": "no such tool"})
        assert "error" in unknown or unknown["result"]["isError"]
        assert "error" in await client.ask("x-vendor/unknown", {"a": 1})

        task_id = new_id()
        async with await client.begin(task_id, call) as exchange:
            await exchange.notification(CREATED)
        task = await client.reach(task_id, "completed")
        assert task["taskId"] == task_id
        assert case.words in _text(await client.fetch(task_id))
        assert "result" in await client.delete(task_id)
