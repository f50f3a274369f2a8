"""A stateless upstream with tasks of its own: passed on, or driven for whom does not speak its dialect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.wire.bridge_world import Bridge, credential, new_key, words
from tests.wire.modern_tasks import UNKNOWN
from tests.wire.modern_upstream import Seen
from tests.wire.modern_words import META, Json
from tests.wire.seed_client import CREATED, new_id, related_to
from tests.wire.stateless_rules import INVALID_PARAMS, accept
from tests.wire.tasks_b_client import related_to as related_in_b

pytest_plugins = ["tests.wire.bridge_fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]

NAMES = ["tasks", "tasks-pipe"]
JOBS = ["job", "must_job"]
EXTENSION = f"{META}tasks"


def declared(message: Json) -> bool:
    return EXTENSION in message["params"]["_meta"][f"{META}clientCapabilities"].get("extensions", {})


def check_once(seen: Seen, key: str) -> str:
    """Check that the tool was called once, by one who takes tasks; return the upstream's task id."""
    (sent,) = seen.asked("tools/call", key=key, job=True)
    assert declared(sent)
    assert "task" not in sent["params"]
    return key


def call(tool: str, key: str, **more: Any) -> Json:
    return {"name": tool, "arguments": {"key": key, "job": True, **more}}


def releasing(key: str) -> Json:
    return {"name": "release", "arguments": {"key": key}}


def greeting(asked: Json) -> Json:
    return accept(name="Ada")


async def polled(seen: Seen, number: int = 1) -> None:
    begun = len(seen.asked("tasks/get"))
    await seen.until(lambda: len(seen.asked("tasks/get")) >= begun + number)


@pytest.mark.parametrize("tool", JOBS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_replica("the calls meet in one child; each replica has its own", only=("tasks-pipe",))
async def test_a_plain_client_gets_the_plain_result(bridge: Bridge, name: str, tool: str) -> None:
    key = new_key()
    async with bridge.client_b(name) as client:
        params = {**call(tool, key), "_meta": {"progressToken": "p"}}
        calling = asyncio.create_task(client.ask("tools/call", params))
        told = await client.hears(lambda one: one.message.get("method") == "notifications/progress")
        assert told.message["params"]["message"] == "At work."
        await client.ask("tools/call", releasing(key))
        assert (await calling)["result"] == {"content": [{"type": "text", "text": f"Done: {key}."}]}
    check_once(bridge.seen(name), key)


@pytest.mark.parametrize("name", NAMES)
async def test_what_the_task_wants_is_asked_of_a_plain_client(bridge: Bridge, name: str) -> None:
    key = new_key()
    async with bridge.client_b(name, responder=greeting) as client:
        answer = await client.ask("tools/call", call("must_job", key, ask=True))
        assert words(answer["result"]) == "Hello, Ada!"
        (asked,) = [one for one in client.heard if one.message.get("method") == "elicitation/create"]
        assert asked.stream == "tools/call"
    check_once(bridge.seen(name), key)


@pytest.mark.parametrize("name", NAMES)
async def test_a_plain_call_that_is_cancelled_cancels_the_task(bridge: Bridge, name: str) -> None:
    key, seen = new_key(), bridge.seen(name)
    async with bridge.client_b(name) as client:
        params = {**call("must_job", key), "_meta": {"progressToken": "p"}}
        calling = asyncio.create_task(client.ask("tools/call", params, ident="stop"))
        await client.hears(lambda one: one.message.get("method") == "notifications/progress")
        begun = len(seen.asked("tasks/cancel"))
        await client.notify("notifications/cancelled", {"requestId": "stop"})
        await seen.until(lambda: len(seen.asked("tasks/cancel")) == begun + 1)
        assert "error" in await calling


@pytest.mark.parametrize("tool", JOBS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_replica("the calls meet in one child; each replica has its own", only=("tasks-pipe",))
async def test_a_client_of_dialect_b_has_one_task_and_the_upstream_one(
    bridge: Bridge, name: str, tool: str
) -> None:
    key = new_key()
    async with bridge.client_b(name) as client:
        created = (await client.ask("tools/call", {**call(tool, key), "task": {"ttl": 30_000}}))["result"]
        task_id = created["task"]["taskId"]
        assert not task_id.startswith("up-")
        waiting = asyncio.create_task(client.result(task_id))
        await bridge.seen(name).until(lambda: bridge.seen(name).asked("tools/call", key=key, job=True))
        await client.ask("tools/call", releasing(key))
        answer = await waiting
        assert words(answer["result"]) == f"Done: {key}."
        assert related_in_b(answer) == task_id
        assert (await client.get(task_id))["result"]["status"] == "completed"
    check_once(bridge.seen(name), key)


@pytest.mark.parametrize("name", NAMES)
async def test_input_during_the_upstreams_task_reaches_a_client_of_dialect_b(
    bridge: Bridge, name: str
) -> None:
    for listens in (True, False):
        key = new_key()
        async with bridge.client_b(name, responder=greeting) as client:
            if listens:
                await client.listen()
            created = await client.ask("tools/call", {**call("must_job", key, ask=True), "task": {}})
            task_id = created["result"]["task"]["taskId"]
            if listens:
                await client.reach(task_id, "completed")
            answer = await client.result(task_id)
            assert words(answer["result"]) == "Hello, Ada!"
            asked = await client.asked("elicitation/create")
            assert asked.stream == ("get" if listens else "tasks/result")
            assert related_in_b(asked.message) == task_id
        check_once(bridge.seen(name), key)


@pytest.mark.parametrize("name", NAMES)
async def test_a_cancelled_task_of_dialect_b_cancels_the_upstreams(bridge: Bridge, name: str) -> None:
    key, seen = new_key(), bridge.seen(name)
    async with bridge.client_b(name) as client:
        created = await client.ask("tools/call", {**call("must_job", key), "task": {}})
        task_id = created["result"]["task"]["taskId"]
        await polled(seen)
        begun = len(seen.asked("tasks/cancel"))
        assert (await client.cancel(task_id))["result"]["status"] == "cancelled"
        await seen.until(lambda: len(seen.asked("tasks/cancel")) == begun + 1)
        assert (await client.get(task_id))["result"]["status"] == "cancelled"


async def test_a_failure_of_the_upstreams_task_is_one_of_the_task(bridge: Bridge) -> None:
    key = new_key()
    async with bridge.client_b("tasks") as client:
        created = await client.ask("tools/call", {**call("job", key, fail=True), "task": {}})
        task_id = created["result"]["task"]["taskId"]
        await polled(bridge.seen("tasks"))
        await client.ask("tools/call", releasing(key))
        assert (await client.result(task_id))["error"] == {"code": -32050, "message": f"Done: {key}."}
        assert (await client.get(task_id))["result"]["status"] == "failed"


@pytest.mark.parametrize("tool", JOBS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_replica("the calls meet in one child; each replica has its own", only=("tasks-pipe",))
async def test_a_client_of_dialect_a_has_one_task_and_the_upstream_one(
    bridge: Bridge, name: str, tool: str
) -> None:
    key, task_id = new_key(), new_id()
    async with bridge.client_a(name) as client:
        exchange = await client.begin(task_id, call(tool, key), ident="call")
        await exchange.notification(CREATED)
        await bridge.seen(name).until(lambda: bridge.seen(name).asked("tools/call", key=key, job=True))
        await client.ask("tools/call", releasing(key))
        answer = await exchange.response("call")
        assert words(answer["result"]) == f"Done: {key}."
        assert related_to(answer) == task_id
        assert words((await client.fetch(task_id))["result"]) == f"Done: {key}."
    check_once(bridge.seen(name), key)


@pytest.mark.parametrize("name", NAMES)
async def test_input_during_the_upstreams_task_reaches_a_client_of_dialect_a(
    bridge: Bridge, name: str
) -> None:
    key, task_id = new_key(), new_id()
    async with bridge.client_a(name) as client:
        exchange = await client.begin(task_id, call("must_job", key, ask=True), ident=1)
        asked = await exchange.asked()
        assert related_to(asked) == task_id
        await client.reach(task_id, "input_required")
        await client.answer(asked, accept(name="Ada"))
        assert words((await exchange.response(1))["result"]) == "Hello, Ada!"
    check_once(bridge.seen(name), key)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_replica("the calls meet in one child; each replica has its own", only=("tasks-pipe",))
async def test_a_cancelled_call_of_dialect_a_cancels_the_upstreams_task(bridge: Bridge, name: str) -> None:
    key, task_id, seen = new_key(), new_id(), bridge.seen(name)
    async with bridge.client_a(name) as client:
        exchange = await client.begin(task_id, call("job", key), ident="call")
        await exchange.notification(CREATED)
        await polled(seen)
        begun = len(seen.asked("tasks/cancel"))
        await client.cancel("call")
        await seen.until(lambda: len(seen.asked("tasks/cancel")) == begun + 1)
        assert (await client.get(task_id))["result"]["status"] == "cancelled"


@pytest.mark.parametrize("tool", JOBS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_replica("the calls meet in one child; each replica has its own", only=("tasks-pipe",))
async def test_a_stateless_client_without_the_extension_gets_the_plain_result(
    bridge: Bridge, name: str, tool: str
) -> None:
    key, own = new_key(), credential()
    async with bridge.client_c(name, own, tasks=False) as client:
        calling = asyncio.create_task(client.call(tool, {"key": key, "job": True}))
        await bridge.seen(name).until(lambda: bridge.seen(name).asked("tools/call", key=key, job=True))
        async with bridge.client_c(name, own) as other:
            await other.call("release", {"key": key}, tasks=False)
        reply = await calling
        assert reply.result["resultType"] == "complete"
        assert reply.text in (f"Done: {key}.", f"held {key}")


async def test_the_upstreams_own_tasks_are_passed_through(bridge: Bridge) -> None:
    key, seen = new_key(), bridge.seen("tasks")
    async with bridge.client_c("tasks") as client:
        created = await client.call("job", {"key": key, "job": True})
        task_id = created.task_id
        assert task_id.startswith("up-")
        assert (await client.get(task_id)).result["statusMessage"] == "At work."
        await client.call("release", {"key": key})
        task = await client.reach(task_id, "completed")
        assert words(task["result"]) == f"Done: {key}."
        assert seen.asked("tasks/get")[-1]["params"]["taskId"] == task_id
        refused = await client.get("up-nowhere")
        assert refused.refusal == (200, INVALID_PARAMS, UNKNOWN)
    check_once(seen, key)


async def test_updates_and_cancels_of_the_upstreams_own_tasks_reach_it(bridge: Bridge) -> None:
    seen = bridge.seen("tasks")
    async with bridge.client_c("tasks") as client:
        asking = (await client.call("job", {"key": new_key(), "ask": True})).task_id
        task = await client.reach(asking, "input_required")
        assert set(task["inputRequests"]) == {"name"}
        await client.update(asking, {"name": accept(name="Ada")})
        assert words((await client.get(asking)).result["result"]) == "Hello, Ada!"
        assert seen.asked("tasks/update")[-1]["params"]["taskId"] == asking
        endless = (await client.call("must_job", {"key": new_key()})).task_id
        await client.cancel(endless)
        assert seen.asked("tasks/cancel")[-1]["params"]["taskId"] == endless
        assert (await client.get(endless)).result["status"] == "cancelled"


async def test_subscriptions_to_the_upstreams_own_tasks_are_passed_through(bridge: Bridge) -> None:
    key = new_key()
    async with bridge.client_c("tasks") as client:
        task_id = (await client.call("job", {"key": key})).task_id
        async with client.listen({"taskIds": [task_id], "toolsListChanged": True}) as subscription:
            assert subscription.acknowledged == {"taskIds": [task_id], "toolsListChanged": True}
            await client.call("release", {"key": key})
            told = await subscription.next()
            assert told is not None
            assert (told["method"], told["params"]["status"]) == ("notifications/tasks", "completed")


async def test_on_a_pipe_a_client_of_its_dialect_has_one_task_too(bridge: Bridge) -> None:
    key = new_key()
    async with bridge.client_c("tasks-pipe") as client:
        asking = (await client.call("must_job", {"key": key, "job": True, "ask": True})).task_id
        task = await client.reach(asking, "input_required")
        (name,) = task["inputRequests"]
        await client.update(asking, {name: accept(name="Ada")})
        assert words((await client.reach(asking, "completed"))["result"]) == "Hello, Ada!"
    check_once(bridge.seen("tasks-pipe"), key)
