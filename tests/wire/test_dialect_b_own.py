"""Dialect B over upstreams with tasks of their own: passed through or driven, never wrapped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.processes import Process
from tests.tools import venv_python
from tests.upstreams import Running
from tests.wire.seed_client import Seed, new_id
from tests.wire.tasks_b_client import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Json,
    TasksB,
    accept,
    always,
    related_to,
)
from tests.wire.tasks_b_world import credential, refusal, served

pytestmark = pytest.mark.asyncio(loop_scope="session")
NATIVE: Final = "native"
RESEARCH: Final[Json] = {"name": "simulate-research-query", "arguments": {"topic": "x"}}
OURS: Final[Json] = {"poll_interval": "100ms", "tools": {"echo": "required", "get-env": "forbidden"}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def native(
    tmp_path_factory: pytest.TempPathFactory, everything_http: Running
) -> AsyncIterator[Gateway]:
    """Serve a server that runs tasks of its own, and server-everything, which does so for one tool."""
    command = [str(venv_python("mcp1")), "-m", "tests.fixture_servers.native_b_server", "http", "0"]
    with Process(command) as process:
        url = (await asyncio.to_thread(process.wait_line, r"^ready (\S+)$"))[1]
        upstreams: Json = {
            NATIVE: {"url": url, "tasks": {"poll_interval": "100ms"}},
            "everything": {"url": everything_http.url, "tasks": OURS},
        }
        folder = tmp_path_factory.mktemp("native")
        async with served({"upstreams": upstreams, "drain": "1s"}, folder) as gateways:
            yield gateways[0]


def tasks_of(client: TasksB) -> set[str]:
    """Return the ids of all tasks that the client was told of."""
    results = [one.message.get("result", {}) for one in client.heard]
    return {result["task"]["taskId"] for result in results if "task" in result}


async def test_a_task_of_the_upstreams_own_is_passed_through(native: Gateway) -> None:
    direct = native.config["upstreams"][NATIVE]["url"]
    async with TasksB(native.url(NATIVE)) as client, TasksB(direct) as beside:
        wish: Json = {"name": "slow_count", "arguments": {"seconds": 0.2}, "task": {"ttl": 60_000}}
        made = [(await one.ask("tools/call", wish))["result"]["task"] for one in (client, beside)]
        # The id is the upstream's own, as are all its words: no task of the gateway's is around it.
        assert set(made[0]) == set(made[1])
        assert len(made[0]["taskId"]) == len(made[1]["taskId"])
        results = [
            await one.ask("tasks/result", {"taskId": t["taskId"]})
            for one, t in zip((client, beside), made, strict=True)
        ]
        assert [result["result"]["content"] for result in results] == [results[0]["result"]["content"]] * 2
        assert related_to(results[0]) == made[0]["taskId"]
        got = (await client.ask("tasks/get", {"taskId": made[0]["taskId"]}))["result"]
        assert got["status"] == "completed"


async def test_an_own_task_is_cancelled_and_asks_at_the_upstream(native: Gateway) -> None:
    async with TasksB(native.url(NATIVE), responder=always(accept(name="Ada"))) as client:
        wish: Json = {"name": "ask_name", "arguments": {}, "task": {"ttl": 60_000}}
        asking = (await client.ask("tools/call", wish))["result"]["task"]["taskId"]
        answer = await client.ask("tasks/result", {"taskId": asking})
        assert answer["result"]["content"][0]["text"] == "Hello, Ada!"
        never: Json = {"name": "never", "arguments": {}, "task": {"ttl": 60_000}}
        task = (await client.ask("tools/call", never))["result"]["task"]["taskId"]
        cancelled = await client.ask("tasks/cancel", {"taskId": task})
        assert cancelled["result"]["status"] == "cancelled"
        assert refusal(await client.ask("tasks/cancel", {"taskId": task}))[0] == INVALID_PARAMS
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert refusal(await client.ask(method, {"taskId": "nope"}))[0] == INVALID_PARAMS


async def test_the_upstreams_own_word_on_its_tools_stays(native: Gateway) -> None:
    async with TasksB(native.url(NATIVE)) as client, TasksB(native.url("everything")) as other:
        listed = (await client.ask("tools/list"))["result"]["tools"]
        found = {tool["name"]: tool["execution"]["taskSupport"] for tool in listed}
        assert found.pop("only_as_task") == "required"
        assert set(found.values()) == {"optional"}
        listed = (await other.ask("tools/list"))["result"]["tools"]
        found = {tool["name"]: tool.get("execution", {}).get("taskSupport") for tool in listed}
        assert found["simulate-research-query"] == "required"
        # `forbidden` is what such servers say of every tool by default; that is the policy's to say.
        assert found["echo"] == "required"
        assert found["get-sum"] == "optional"
        assert found["get-env"] in (None, "forbidden")


async def test_a_tool_that_is_only_a_task_there_is_driven_for_a_client_that_knows_none(
    native: Gateway,
) -> None:
    async with TasksB(native.url(NATIVE), version="2025-06-18", capabilities={}) as client:
        answer = await client.ask("tools/call", {"name": "only_as_task", "arguments": {}})
        assert answer["result"]["content"][0]["text"] == "Done as a task."
        assert "task" not in answer["result"]


async def test_a_tool_that_is_only_a_task_there_is_driven_for_dialect_a(native: Gateway) -> None:
    async with Seed(native.url(NATIVE), credential()) as seed:
        task = new_id()
        stream = await seed.begin(task, {"name": "only_as_task", "arguments": {}}, ident=1)
        answer = await stream.response(1)
        assert answer["result"]["content"][0]["text"] == "Done as a task."
        await seed.reach(task, "completed")
        assert (await seed.fetch(task))["result"]["content"] == answer["result"]["content"]


async def test_the_tasks_of_both_are_in_one_list(native: Gateway) -> None:
    async with TasksB(native.url("everything"), authorization=credential()) as client:
        ours = await client.start("echo", {"message": "hi"})
        assert (await client.result(ours))["result"]["content"][0]["text"] == "Echo: hi"
        made = (await client.ask("tools/call", {**RESEARCH, "task": {"ttl": 60_000}}))["result"]["task"]
        assert made["taskId"] not in (ours, None)
        listed = await client.list()
        assert {ours, made["taskId"]} <= set(listed)
        assert tasks_of(client) == {ours, made["taskId"]}
        assert (await client.get(made["taskId"]))["result"]["taskId"] == made["taskId"]
        cancelled = await client.cancel(made["taskId"])
        assert cancelled["result"]["status"] == "cancelled"


async def test_server_everything_is_served_as_its_policy_says(native: Gateway) -> None:
    async with TasksB(native.url("everything"), authorization=credential()) as client:
        wish: Json = {"name": "get-env", "arguments": {}, "task": {}}
        assert refusal(await client.ask("tools/call", wish))[0] == METHOD_NOT_FOUND
        plain: Json = {"name": "echo", "arguments": {"message": "hi"}}
        assert refusal(await client.ask("tools/call", plain))[0] == METHOD_NOT_FOUND
        task = await client.start("trigger-long-running-operation", {"duration": 0.3, "steps": 3})
        words = (await client.result(task))["result"]["content"][0]["text"]
        assert words.startswith("Long running operation completed.")


async def test_a_plain_call_of_a_tool_that_is_only_a_task_there_gets_the_plain_result(
    native: Gateway,
) -> None:
    async with TasksB(native.url("everything"), version="2025-06-18", capabilities={}) as client:
        answer = await client.ask("tools/call", RESEARCH, seconds=30)
        assert "Research Report" in answer["result"]["content"][0]["text"]
