"""The client against servers with tasks of their own: `mcp` 1.30 (dialect B) and FastMCP 4 (dialect C)."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.processes import Process, free_port, wait_port
from tests.tools import venv_python
from tests.upstreams import start_fixture
from tests.warm.client_run import client, words_of


@pytest.fixture(scope="module", params=["b", "c"])
def native(request: pytest.FixtureRequest) -> Generator[str]:
    """Serve the fixture tools as native tasks and yield the URL."""
    if request.param == "b":
        command = [str(venv_python("mcp1")), "-m", "tests.fixture_servers.native_b_server", "http", "0"]
        process = Process(command)
        url = process.wait_line(r"^ready (\S+)$")[1]
    else:
        port = free_port()
        server = "tests.fixture_servers.native_c_server"
        process = Process([str(venv_python("fastmcp4")), "-m", server, str(port)])
        wait_port(process, port)
        url = f"http://127.0.0.1:{port}/mcp"
    yield url
    process.stop()


@pytest.fixture(scope="module")
def stateless() -> Generator[str]:
    """Serve the fixture tools on `mcp` 2.x, which has no tasks and asks in rounds."""
    running = start_fixture("mcp2", "http", log=None)
    yield running.url
    running.process.stop()


async def test_a_task_of_a_native_server_brings_its_result(native: str) -> None:
    ran = await client("call", native, "slow_count", "seconds=0.4", "--task", "--json")
    assert (ran.code, ran.object["status"]) == (0, "completed")
    assert ran.object["taskId"]
    assert ran.object["result"]["content"][0]["text"] == "Counted for 0.4 seconds."


async def test_a_question_of_a_native_task_is_answered(native: str) -> None:
    ran = await client("call", native, "ask_name", "--task", "--answer", "name=Ada")
    assert (ran.code, ran.out) == (0, "Hello, Ada!\n")
    assert "input_required" in ran.err


async def test_failures_of_native_tasks_are_told(native: str) -> None:
    tool = await client("call", native, "fail", "--task")
    assert (tool.code, tool.out) == (1, "This tool always fails.\n")
    protocol = await client("call", native, "protocol_error", "--task")
    assert protocol.code == 1
    assert "This tool answers with a protocol error." in protocol.err


async def test_a_native_task_is_left_looked_at_and_cancelled(native: str) -> None:
    left = await client("call", native, "slow_count", "seconds=60", "--detach", "--json")
    lines = left.object["next"]
    got = await client(*words_of(lines["get"]))
    assert "working" in got.out
    stopped = await client(*words_of(lines["cancel"]), "--json")
    assert (stopped.code, stopped.object["status"]) == (0, "cancelled")


@pytest.mark.parametrize("dialect", ["auto", "b", "c"])
async def test_questions_of_a_plain_call_are_answered_in_both_eras(stateless: str, dialect: str) -> None:
    words = ("--answer", "name=Ada", "--dialect", dialect)
    ran = await client("call", stateless, "ask_name", *words)
    assert (ran.code, ran.out) == (0, "Hello, Ada!\n")


@pytest.mark.parametrize("dialect", ["b", "c"])
async def test_a_person_answers_sampling_in_both_eras(stateless: str, dialect: str) -> None:
    ran = await client("call", stateless, "summarise", "text=much", "--dialect", dialect, typed=["four"])
    assert ran.code == 0
    assert ran.out == "four\n"
