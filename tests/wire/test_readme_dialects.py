"""What the README says of the three dialects, done with its own snippet in front of the demo server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli import main
from tests import readme
from tests.gateways import Gateway, StartGateway
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import TASKS
from tests.wire.tasks_b_client import IMMEDIATE, METHOD_NOT_FOUND, TasksB, accept

MISSING_CAPABILITY = -32021
TOKEN = "Bearer sesame"
A_KEY = "modelcontextprotocol.io/task"
NAME = accept(name="Ada")


@pytest.fixture
def snippet() -> str:
    (found,) = readme.blocks("yaml tasks")
    return found


@pytest.fixture
def served(snippet: str, gateway: StartGateway) -> Gateway:
    """Serve the snippet: its command is the demo server, started by the Python that runs the tests."""
    config: dict[str, Any] = yaml.safe_load(snippet)
    (upstream,) = config["upstreams"].values()
    assert upstream["command"] == ["python", "-m", "gateway.demo"]
    upstream["command"] = [sys.executable, "-m", "gateway.demo"]
    return gateway(config)


def test_the_snippet_is_a_good_configuration(
    snippet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(snippet, encoding="utf-8")
    assert main(["check", "-c", str(file)]) == 0
    assert "good; 1 upstream: demo" in capsys.readouterr().out


async def test_a_client_of_2025_11_25_meets_what_the_readme_says(served: Gateway) -> None:
    async with TasksB(served.url("demo")) as client:
        # Who sends no credential is not offered the list.
        assert "list" not in client.welcome["capabilities"]["tasks"]
        tools = (await client.ask("tools/list"))["result"]["tools"]
        support = {tool["name"]: tool["execution"]["taskSupport"] for tool in tools if "execution" in tool}
        assert (support["slow_count"], support["ask_name"]) == ("required", "optional")

        plain = await client.ask("tools/call", {"name": "slow_count", "arguments": {"seconds": 0}})
        assert plain["error"]["code"] == METHOD_NOT_FOUND
        refused = await client.ask("tools/call", {"name": "large", "arguments": {}, "task": {}})
        assert refused["error"]["code"] == METHOD_NOT_FOUND

        created = await client.call_task("fail")
        assert created["_meta"][IMMEDIATE] == "It takes a while."
        task_id = created["task"]["taskId"]
        # 128 random bits in hexadecimal digits, and behind them where the task is kept.
        assert len(task_id.partition("-")[0]) == 128 // 4
        assert (await client.reach(task_id, "completed", "failed"))["status"] == "completed"
        assert (await client.result(task_id))["result"]["isError"] is True
        async with TasksB(served.url("demo")) as other:
            assert "result" in await other.get(task_id)

    async with TasksB(served.url("demo"), authorization=TOKEN) as client:
        assert client.welcome["capabilities"]["tasks"]["list"] == {}


async def test_a_task_lasts_as_long_as_the_readme_says(served: Gateway) -> None:
    hour = 3_600_000
    async with TasksB(served.url("demo")) as client:
        # The time limit of all tools but slow_count is the default.
        shortest = await client.call_task("fail", ttl=1000)
        longest = await client.call_task("fail", ttl=1000 * hour)
        assert (shortest["task"]["ttl"], longest["task"]["ttl"]) == (2 * hour, 24 * hour)
        # Its own limit is shorter than what is kept for who asks for nothing.
        usual = await client.call_task("slow_count", {"seconds": 0})
        assert usual["task"]["ttl"] == hour


async def test_a_client_of_2026_07_28_meets_what_the_readme_says(served: Gateway) -> None:
    async with Stateless(served.url("demo")) as client:
        discovered = await client.discover()
        assert discovered["capabilities"]["extensions"][TASKS] == {}
        # Required: a task at once, and nothing for who does not take tasks.
        quick = await client.call("slow_count", {"seconds": 0})
        assert quick.result["resultType"] == "task"
        refused = await client.call("slow_count", {"seconds": 0}, tasks=False)
        assert refused.refusal[:2] == (400, MISSING_CAPABILITY)
        # Forbidden, and what ends within `inline_within`: plain results.
        assert (await client.call("large", {"kib": 1})).result["resultType"] == "complete"
        assert (await client.call("fail")).result["isError"] is True
        # The server speaks the handshake era, the client the other: a question of a plain call.
        asked = await client.call("ask_name", tasks=False, inputs=lambda _key, _request: NAME)
        assert asked.text == "Hello, Ada!"
        assert len(asked.rounds) == 1


async def test_a_plain_call_of_an_older_session_runs_plainly(served: Gateway) -> None:
    async with TasksB(served.url("demo"), version="2025-06-18") as client:
        called = await client.ask("tools/call", {"name": "slow_count", "arguments": {"seconds": 0}})
        assert called["result"]["content"][0]["text"] == "Counted for 0 seconds."


async def test_a_task_is_read_in_the_form_of_the_client_that_asks(served: Gateway) -> None:
    async with TasksB(served.url("demo"), authorization=TOKEN) as older:
        task_id = await older.start("slow_count", {"seconds": 0})
        ours = {"name": "slow_count", "arguments": {"seconds": 0}, "_meta": {A_KEY: {"taskId": "mine"}}}
        await older.ask("tools/call", ours)
    async with Stateless(served.url("demo"), authorization=TOKEN) as newer:
        for known in (task_id, "mine"):
            task = await newer.reach(known, "completed")
            assert task["result"]["content"][0]["text"] == "Counted for 0 seconds."
    async with Stateless(served.url("demo")) as nobody:
        assert "error" in (await nobody.get(task_id)).response
