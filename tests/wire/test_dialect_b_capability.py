"""Dialect B: what is declared, on `initialize` and on each tool (2025-11-25 tasks, "Capabilities")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.balancers import serve
from tests.gateways import Gateway
from tests.upstreams import Running, fixture_command, start_fixture
from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import METHOD_NOT_FOUND, Json, TasksB
from tests.wire.tasks_b_world import Place, credential, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
DOES: Final[Json] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
CARRIERS: Final = ("json", "events", "sse", "stdio")
POLICY: Final[Json] = {
    "poll_interval": "100ms",
    "tools": {"never": "forbidden", "ask_*": "required", "slow_*": "optional", "echo_meta": "required"},
    "default": "optional",
}
SUPPORT: Final = {
    "never": None,
    "ask_name": "required",
    "slow_count": "optional",
    "echo_meta": "required",
    "large": "optional",
}


def of_b(welcome: Json) -> Json:
    """Return the tasks capability without what dialect A declares there (`tools` of booleans)."""
    declared: Json = welcome["capabilities"]["tasks"]
    return {name: value for name, value in declared.items() if name in ("list", "cancel", "requests")}


async def test_the_capability_is_what_is_true_and_no_more(place: Place) -> None:
    async with place.client() as nobody, place.client(credential()) as known:
        assert of_b(nobody.welcome) == DOES
        assert of_b(known.welcome) == {**DOES, "list": {}}
    async with place.client(None, "shared") as shared:
        assert of_b(shared.welcome) == {**DOES, "list": {}}


async def test_where_no_tool_may_be_a_task_none_is_declared(place: Place) -> None:
    async with place.client(credential(), "taskless") as client:
        assert "tasks" not in client.welcome["capabilities"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_earlier_versions_are_told_nothing_of_it_and_have_none(place: Place, version: str) -> None:
    async with place.client(credential(), version=version) as client:
        assert client.version == version
        assert of_b(client.welcome) == {}
        key = new_id()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(client.ask("tools/call", {**tool(key), "task": {}}))
            (await place.upstream.called(key)).finish(text("plain"))
        assert asking.result()["result"] == text("plain")


async def test_what_declares_no_tasks_ignores_the_wish_for_one(place: Place) -> None:
    async with place.client(credential(), "taskless") as client:
        key = new_id()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(client.ask("tools/call", {**tool(key), "task": {"ttl": 60_000}}))
            (await place.upstream.called(key)).finish(text("plain"))
        assert asking.result()["result"] == text("plain")


async def test_a_forbidden_tool_is_refused_as_a_task_and_runs_without_one(
    place: Place, client: TasksB
) -> None:
    key = new_id()
    answer = await client.ask("tools/call", {**tool(key, "never_task"), "task": {}})
    code, words = refusal(answer)
    assert code == METHOD_NOT_FOUND
    assert "never_task" in words
    assert await client.list() == {}
    assert not place.upstream.calls[key]
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.ask("tools/call", tool(key, "never_task")))
        (await place.upstream.called(key)).finish(text("plain"))
    assert asking.result()["result"] == text("plain")


async def test_a_required_tool_is_refused_without_a_task_and_runs_as_one(
    place: Place, client: TasksB
) -> None:
    key = new_id()
    code, words = refusal(await client.ask("tools/call", tool(key, "always_task")))
    assert code == METHOD_NOT_FOUND
    assert "always_task" in words
    assert not place.upstream.calls[key]
    task = await client.start("always_task", {"key": key})
    (await place.upstream.called(key)).finish(text("as a task"))
    assert without_meta((await client.result(task))["result"]) == text("as a task")


async def test_a_required_tool_still_runs_for_versions_that_know_no_tasks(place: Place) -> None:
    async with place.client(credential(), version="2025-06-18") as client:
        key = new_id()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(client.ask("tools/call", tool(key, "always_task")))
            (await place.upstream.called(key)).finish(text("plain"))
        assert asking.result()["result"] == text("plain")


@pytest.mark.parametrize("method", ["resources/read", "prompts/get", "tools/list"])
async def test_requests_that_are_not_declared_are_never_tasks(
    place: Place, client: TasksB, method: str
) -> None:
    key = new_id()
    params: dict[str, Json] = {
        "resources/read": {"uri": f"test://thing?key={key}"},
        "prompts/get": {"name": key},
        "tools/list": {},
    }
    async with asyncio.TaskGroup() as group:
        wish = {**params[method], "task": {"ttl": 60_000}}
        asking = group.create_task(client.ask(method, wish, wrong=True))
        if method != "tools/list":
            contents: Json = {"contents": []} if method == "resources/read" else {"messages": []}
            (await place.upstream.called(key)).finish(contents)
    assert "task" not in asking.result()["result"]
    assert await client.list() == {}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def carried(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """Serve fixture servers over every carrier."""
    folder: Path = tmp_path_factory.mktemp("carried")
    servers: list[Running] = []
    gateway: Gateway | None = None
    try:
        servers.append(start_fixture("mcp1", "http", "--json", log=None))
        servers.append(start_fixture("mcp2", "http", log=None))
        servers.append(start_fixture("mcp1", "sse", log=None))
        ways = dict(zip(CARRIERS, ({"url": server.url} for server in servers), strict=False))
        upstreams: Json = {**ways, "stdio": {"command": fixture_command("mcp2", "stdio")}}
        served = {name: {**way, "tasks": POLICY} for name, way in upstreams.items()}
        config = {"upstreams": served, "drain": "1s"}
        gateway = serve(config, folder)
        await asyncio.to_thread(gateway.wait)
        yield gateway
    finally:
        if gateway is not None:
            await asyncio.to_thread(gateway.end)
        for server in servers:
            await asyncio.to_thread(server.process.stop, 2)


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_each_tool_says_what_the_policy_says_over_every_carrier(
    carried: Gateway, carrier: str
) -> None:
    async with TasksB(carried.url(carrier)) as client:
        listed = (await client.ask("tools/list"))["result"]["tools"]
        found = {one["name"]: one.get("execution", {}).get("taskSupport") for one in listed}
        assert {name: found[name] for name in SUPPORT} == SUPPORT
        assert all(one["description"] and one["inputSchema"] for one in listed)


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_earlier_versions_get_the_list_as_the_upstream_has_it(carried: Gateway, carrier: str) -> None:
    async with TasksB(carried.url(carrier), version="2025-06-18") as client:
        listed = (await client.ask("tools/list"))["result"]["tools"]
        assert not [one for one in listed if "execution" in one]


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_tools_are_called_as_tasks_over_every_carrier(carried: Gateway, carrier: str) -> None:
    async with TasksB(carried.url(carrier), authorization=credential()) as client:
        task = await client.start("slow_count", {"seconds": 0.2, "steps": 2})
        result = (await client.result(task))["result"]
        assert result["content"][0]["text"] == "Counted for 0.2 seconds."
        assert (await client.reach(task, "completed"))["status"] == "completed"
        never: Json = {"name": "never", "arguments": {}, "task": {}}
        assert refusal(await client.ask("tools/call", never))[0] == METHOD_NOT_FOUND
        plain: Json = {"name": "ask_name", "arguments": {}}
        assert refusal(await client.ask("tools/call", plain))[0] == METHOD_NOT_FOUND


async def test_errors_cross_where_the_upstream_answers_with_json(carried: Gateway) -> None:
    async with TasksB(carried.url("json"), authorization=credential()) as client:
        refused = await client.start("protocol_error")
        assert (await client.result(refused))["error"]["data"] == {"detail": [1, "two", None]}


# A server that answers with JSON alone cannot ask.
@pytest.mark.parametrize("carrier", CARRIERS[1:])
async def test_input_and_errors_cross_over_every_carrier(carried: Gateway, carrier: str) -> None:
    def answer(request: Json) -> Json:
        assert request["method"] == "elicitation/create"
        return {"action": "accept", "content": {"name": "Ada"}}

    # Only `tasks/result` carries the question to this client.
    async with TasksB(carried.url(carrier), authorization=credential(), responder=answer) as client:
        task = await client.start("ask_name")
        result = (await client.result(task))["result"]
        assert result["content"][0]["text"] == "Hello, Ada!"
        failed = await client.start("fail")
        assert (await client.result(failed))["result"]["isError"] is True
        assert (await client.get(failed))["result"]["status"] == "failed"
        refused = await client.start("protocol_error")
        error = (await client.result(refused))["error"]
        assert error["code"] == -32050
        assert error["data"] == {"detail": [1, "two", None]}
