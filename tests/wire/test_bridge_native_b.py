"""An upstream of 2025-11-25 with tasks of its own (dialect B): passed on, or driven for all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.balancers import serve
from tests.processes import Process
from tests.tools import venv_python
from tests.upstreams import Running
from tests.wire.bridge_world import POLICY, Bridge, configuration, new_key, words
from tests.wire.modern_upstream import seen_in
from tests.wire.modern_words import Json
from tests.wire.seed_client import CREATED, eventually, new_id, related_to
from tests.wire.stateless_rules import accept, answers
from tests.wire.tasks_b_client import INVALID_PARAMS
from tests.wire.tasks_b_client import related_to as related_in_b

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]

ONLY = "only_as_task"
ROOTS: Json = {"roots/list": {"roots": []}}
FORM: Json = {"elicitation/create": accept(name="Ada")}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def native(
    everything_http: Running, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bridge]:
    """Serve the task server of `mcp` 1.x, over HTTP and on a pipe, and server-everything."""
    place: Path = tmp_path_factory.mktemp("native-b")
    module = [str(venv_python("mcp1")), "-m", "tests.fixture_servers.native_b_server"]
    logs = {"http": place / "http.jsonl", "child": place / "child.jsonl"}
    server = Process([*module, "http", "0", "--log", str(logs["http"])])
    url = server.wait_line(r"^ready (\S+)$")[1]
    config: Json = {
        "http": {"url": url},
        "child": {"command": [*module, "stdio", "--log", str(logs["child"])]},
        "everything": {"url": everything_http.url},
    }
    config = {name: {**how, "tasks": POLICY} for name, how in config.items()}
    gateway = serve(configuration(config, "memory://"), place)
    await asyncio.to_thread(gateway.wait)
    yield Bridge([gateway], {name: seen_in(log) for name, log in logs.items()})
    await asyncio.to_thread(gateway.end)
    await asyncio.to_thread(server.stop, 2)


@pytest.fixture(params=["http", "child"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def runs(native: Bridge, name: str) -> list[Json]:
    return [one for one in native.seen(name).lines if one["event"] == "start"]


async def ended(native: Bridge, name: str, number: int) -> None:
    """Wait until the log tells of so many ends, however they came."""
    await eventually(lambda: sum(one["event"] != "start" for one in native.seen(name).lines) >= number)


async def test_tasks_of_the_clients_own_dialect_are_the_upstreams(native: Bridge, name: str) -> None:
    begun = len(runs(native, name))
    async with native.client_b(name) as client:
        listed = (await client.ask("tools/list"))["result"]["tools"]
        support = {tool["name"]: tool["execution"]["taskSupport"] for tool in listed}
        assert support[ONLY] == "required"
        created = await client.call_task("slow_count", {"seconds": 0.1}, ttl=60_000)
        task_id = created["task"]["taskId"]
        answer = await client.result(task_id)
        assert words(answer["result"]) == "Counted for 0.1 seconds."
        assert related_in_b(answer) == task_id
        assert task_id in await client.list()
        unknown = await client.ask("tasks/get", {"taskId": "nowhere"})
        # The words are the upstream's.
        assert unknown["error"]["code"] == INVALID_PARAMS
        assert "nowhere" in unknown["error"]["message"]
        endless = await client.start("never", ttl=60_000)
        assert (await client.cancel(endless))["result"]["status"] == "cancelled"
        assert (await client.cancel(endless))["error"]["code"] == INVALID_PARAMS
    assert len(runs(native, name)) == begun + 2


async def test_a_plain_client_gets_the_plain_result(native: Bridge, name: str) -> None:
    async with native.client_b(name) as client:
        answer = await client.ask("tools/call", {"name": ONLY, "arguments": {}})
        assert answer["result"] == {
            "content": [{"type": "text", "text": "Done as a task."}],
            "isError": False,
        }


async def test_a_client_of_dialect_a_gets_the_result_as_its_task(native: Bridge, name: str) -> None:
    begun, task_id = len(runs(native, name)), new_id()
    async with native.client_a(name) as client:
        exchange = await client.begin(task_id, {"name": ONLY, "arguments": {}}, ident=1)
        await exchange.notification(CREATED)
        answer = await exchange.response(1)
        assert words(answer["result"]) == "Done as a task."
        assert related_to(answer) == task_id
        assert words((await client.fetch(task_id))["result"]) == "Done as a task."
    assert len(runs(native, name)) == begun + 1


async def test_a_client_of_dialect_c_gets_the_result_as_its_task(native: Bridge, name: str) -> None:
    begun = len(runs(native, name))
    async with native.client_c(name) as client:
        task_id = (await client.call(ONLY)).task_id
        task = await client.reach(task_id, "completed")
        assert words(task["result"]) == "Done as a task."
        assert task["result"]["resultType"] == "complete"
        # Without the extension it is a plain call.
        plain = await client.call(ONLY, tasks=False)
        assert (plain.result["resultType"], plain.text) == ("complete", "Done as a task.")
    assert len(runs(native, name)) == begun + 2


async def test_input_during_a_task_of_the_upstream_reaches_a_client_of_dialect_c(
    native: Bridge, name: str
) -> None:
    begun = len(runs(native, name))
    async with native.client_c(name) as client:
        task_id = (await client.call("ask_name")).task_id
        task = await client.reach(task_id, "input_required")
        (key,) = task["inputRequests"]
        assert task["inputRequests"][key]["method"] == "elicitation/create"
        await client.update(task_id, {key: accept(name="Ada")})
        assert words((await client.reach(task_id, "completed"))["result"]) == "Hello, Ada!"
        plain = await client.call("ask_name", tasks=False, inputs=FORM)
        assert plain.text == "Hello, Ada!"
        assert len(plain.rounds) == 1
    assert len(runs(native, name)) == begun + 2


async def test_a_cancelled_task_of_dialect_c_ends_the_upstreams_work(native: Bridge, name: str) -> None:
    async with native.client_c(name) as client:
        task_id = (await client.call("never")).task_id
        await eventually(lambda: runs(native, name)[-1]["tool"] == "never")
        number = sum(one["event"] != "start" for one in native.seen(name).lines)
        await client.cancel(task_id)
        await client.reach(task_id, "cancelled")
        await ended(native, name, number + 1)


async def test_server_everything_researches_and_asks_whoever_calls(native: Bridge) -> None:
    tool, arguments = "simulate-research-query", {"topic": new_key()}
    params: Json = {"name": tool, "arguments": arguments}

    async def as_c() -> str:
        async with native.client_c("everything") as client:
            task_id = (await client.call(tool, arguments)).task_id
            return words((await client.reach(task_id, "completed"))["result"])

    async def as_plain_c() -> str:
        async with native.client_c("everything") as client:
            return (await client.call(tool, arguments, tasks=False, inputs=ROOTS)).text

    async def as_b() -> str:
        async with native.client_b("everything") as client:
            task_id = await client.start(tool, arguments, ttl=60_000)
            return words((await client.result(task_id))["result"])

    async def as_plain_b() -> str:
        async with native.client_b("everything") as client:
            return words((await client.ask("tools/call", params))["result"])

    async def as_a() -> str:
        async with native.client_a("everything") as client:
            exchange = await client.begin(new_id(), params, ident=1)
            return words((await exchange.response(1))["result"])

    found, meant = await asyncio.gather(
        asyncio.gather(as_c(), as_plain_c(), as_b(), as_plain_b(), as_a()), interpretations(native)
    )
    assert all("Research Report" in text and arguments["topic"] in text for text in found)
    assert all("programming" in text for text in meant)


async def interpretations(native: Bridge) -> list[str]:
    """Let clients be asked what their query means; return their reports."""
    tool, arguments = "simulate-research-query", {"topic": "python", "ambiguous": True}
    meant = accept(interpretation="programming")
    # It asks each new client for its roots.
    inputs = {**ROOTS, "elicitation/create": meant}

    def respond(asked: Json) -> Json:
        return inputs[asked["method"]]

    async def as_c() -> str:
        async with native.client_c("everything") as client:
            task_id = (await client.call(tool, arguments)).task_id
            while (task := await client.reach(task_id, "input_required", "completed")).get("inputRequests"):
                await client.update(task_id, answers(task["inputRequests"], inputs))
            return words(task["result"])

    async def as_plain_c() -> str:
        async with native.client_c("everything") as client:
            return (await client.call(tool, arguments, tasks=False, inputs=inputs)).text

    async def as_plain_b() -> str:
        async with native.client_b("everything", responder=respond) as client:
            return words((await client.ask("tools/call", {"name": tool, "arguments": arguments}))["result"])

    return [*await asyncio.gather(as_c(), as_plain_c(), as_plain_b())]


async def test_a_plain_call_that_is_cancelled_cancels_the_upstreams_task(native: Bridge) -> None:
    query: Json = {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": True}}
    async with native.client_b("everything") as client:
        calling = asyncio.create_task(client.ask("tools/call", query, ident="stop"))
        await client.asked("elicitation/create")
        await client.notify("notifications/cancelled", {"requestId": "stop"})
        assert "error" in await calling
        listed = await client.list()
        assert [one["status"] for one in listed.values()] == ["cancelled"]
