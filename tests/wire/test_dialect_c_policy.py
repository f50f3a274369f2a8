"""Dialect C: which calls become tasks, and for whom (ext-tasks "Capability Negotiation")."""

from __future__ import annotations

import pytest

from tests.wire.answers import Json
from tests.wire.era_world import REQUIRED, Eras, meanwhile, new_key
from tests.wire.scripted_upstream import text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import MISSING_CAPABILITY, TASKS, VERSION

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


async def test_discovery_advertises_the_extension_and_no_other_form(caller: Stateless) -> None:
    found = await caller.discover()
    assert found["capabilities"]["extensions"] == {TASKS: {}}
    assert "tasks" not in found["capabilities"]
    assert VERSION in found["supportedVersions"]


async def test_an_optional_call_that_ends_in_time_is_answered_inline(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "patient"))) as asking:
        (await eras.upstream.called(key)).finish(text("at once"))
        reply = await asking
    assert reply.result["resultType"] == "complete"
    assert reply.text == "at once"


async def test_an_optional_call_that_takes_longer_becomes_a_task_and_runs_once(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "brief"))
    assert (await caller.get(reply.task_id)).result["status"] == "working"
    call = await eras.upstream.called(key)
    call.finish(text("later"))
    task = await caller.reach(reply.task_id, "completed")
    assert task["result"]["content"] == text("later")["content"]
    assert len(eras.upstream.calls[key]) == 1
    assert not call.is_cancelled


async def test_a_call_that_fails_in_time_is_answered_with_its_error(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "patient"))) as asking:
        (await eras.upstream.called(key)).refuse(-32010, "no such luck", {"why": [1, None]})
        reply = await asking
    assert reply.response["error"] == {
        "code": -32010,
        "message": "no such luck",
        "data": {"why": [1, None]},
    }


async def test_a_required_call_is_always_a_task(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "must"))
    (await eras.upstream.called(key)).finish(text("fast"))
    task = await caller.reach(reply.task_id, "completed")
    assert task["result"]["content"] == text("fast")["content"]


async def test_a_required_call_without_the_extension_is_refused_and_not_run(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "must"), tasks=False)
    assert reply.refusal[:2] == (400, MISSING_CAPABILITY)
    assert reply.response["error"]["data"] == REQUIRED
    assert key not in eras.upstream.calls


async def test_a_forbidden_call_is_never_a_task(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        (await eras.upstream.called(key)).finish(text("plain"))
        assert (await asking).text == "plain"


@pytest.mark.parametrize("name", ["work", "patient", "brief", "one_by_one"])
async def test_a_client_that_did_not_declare_tasks_on_that_very_request_gets_the_result(
    eras: Eras, caller: Stateless, name: str
) -> None:
    before, key = new_key(), new_key()
    # What an earlier request declared does not count.
    made = await caller.ask("tools/call", tool(before, "must"))
    (await eras.upstream.called(before)).finish()
    await caller.reach(made.task_id, "completed")
    async with meanwhile(caller.ask("tools/call", tool(key, name), tasks=False)) as asking:
        (await eras.upstream.called(key)).finish(text("the result"))
        assert (await asking).text == "the result"


@pytest.mark.parametrize(
    "extensions", [{}, {TASKS: None}, {TASKS: True}, {TASKS: []}, {"io.modelcontextprotocol/task": {}}]
)
async def test_only_the_extension_with_an_object_counts_as_declared(
    eras: Eras, caller: Stateless, extensions: object
) -> None:
    key = new_key()
    params = {**tool(key, "must"), "_meta": {CAPABILITIES: {"extensions": extensions}}}
    reply = await caller.ask("tools/call", params, wrong=True)
    assert reply.refusal[0] == 400
    assert reply.refusal[1] in (MISSING_CAPABILITY, -32602)
    assert key not in eras.upstream.calls


async def test_the_capability_of_the_older_protocol_declares_nothing(eras: Eras) -> None:
    older: Json = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
    async with eras.client(tasks=False, capabilities=older) as caller:
        key = new_key()
        assert (await caller.ask("tools/call", tool(key, "must"))).refusal[:2] == (400, MISSING_CAPABILITY)
        async with meanwhile(caller.ask("tools/call", tool(key, "work"))) as asking:
            (await eras.upstream.called(key)).finish(text("plain"))
            assert (await asking).text == "plain"


@pytest.mark.parametrize("method", ["resources/read", "prompts/get"])
async def test_only_tool_calls_become_tasks(eras: Eras, caller: Stateless, method: str) -> None:
    key = new_key()
    params = {"uri": f"test://x?key={key}"} if method == "resources/read" else {"name": key}
    result: Json = {"contents": []} if method == "resources/read" else {"messages": []}
    async with meanwhile(caller.ask(method, params)) as asking:
        (await eras.upstream.called(key)).finish(result)
        assert (await asking).result["resultType"] == "complete"


@pytest.mark.parametrize("task", [{}, {"ttl": 1}, None, "x", 1, [], {"ttl": -1}, {"ttl": "1"}])
async def test_the_task_parameter_of_the_older_protocol_means_nothing(
    eras: Eras, caller: Stateless, task: object
) -> None:
    plain, made = new_key(), new_key()
    async with meanwhile(caller.call("plain", {"key": plain}, more={"task": task})) as asking:
        call = await eras.upstream.called(plain)
        assert "task" not in call.message["params"]
        call.finish(text("plain"))
        assert (await asking).text == "plain"
    reply = await caller.call("work", {"key": made}, more={"task": task})
    call = await eras.upstream.called(made)
    assert "task" not in call.message["params"]
    assert (await caller.get(reply.task_id)).result["ttlMs"] >= 30_000
    call.finish()


async def test_I2_any_replica_knows_a_task_before_its_client_does(era_replicas: Eras) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        for number in range(20):
            one, other = (here, there) if number % 2 else (there, here)
            key = new_key()
            reply = await one.ask("tools/call", tool(key, "work"))
            assert (await other.get(reply.task_id)).result["status"] == "working"
            (await era_replicas.upstream.called(key)).finish()


async def test_a_call_that_waits_for_its_turn_is_a_task_that_works(eras: Eras, caller: Stateless) -> None:
    first, second = new_key(), new_key()
    one = await caller.ask("tools/call", tool(first, "one_by_one"))
    other = await caller.ask("tools/call", tool(second, "one_by_one"))
    running = await eras.upstream.called(first)
    assert (await caller.get(other.task_id)).result["status"] == "working"
    assert second not in eras.upstream.calls
    running.finish()
    (await eras.upstream.called(second)).finish()
    await caller.reach(one.task_id, "completed")
    await caller.reach(other.task_id, "completed")


async def test_the_upstream_sees_a_plain_request_of_its_own_era(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "work"))
    call = await eras.upstream.called(key)
    assert not [name for name in call.meta if name.startswith("io.modelcontextprotocol/")]
    assert call.message["params"]["arguments"] == {"key": key}
    assert not {"mcp-method", "mcp-name"} & set(eras.upstream.post_of(call).headers)
    assert TASKS not in str(eras.upstream.opening(call.session).message)
    call.finish()
    await caller.reach(reply.task_id, "completed")
