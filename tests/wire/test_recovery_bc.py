"""Dialects B and C, and calls that wait for input: they go on when their replica is lost (I3, I5, I6)."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.recovery_world import LEASE, Doomed, killed
from tests.wire.scripted_upstream import Call, text
from tests.wire.seed_client import new_id
from tests.wire.stateless_client import Stateless
from tests.wire.tasks_b_client import Json, TasksB, accept
from tests.wire.tasks_b_world import without_meta

pytest_plugins = ["tests.wire.seed_fixtures", "tests.wire.recovery_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("ends the gateways that it speaks to"),
]


async def primed(doomed: Doomed, key: str) -> Call:
    """Wait for a call, send an event without data as SDK servers do first, and see it noted."""
    call = await doomed.upstream.called(key)
    call.raw(f"id: {key}.1\ndata:\n\n".encode())
    await doomed.placed(f"{key}.1")
    return call


async def test_I5_b_a_waiter_elsewhere_gets_the_question_and_the_result_of_a_resumed_call(
    doomed: Doomed,
) -> None:
    async with TasksB(doomed.url(0), authorization="Bearer b") as client:
        there = client.twin(doomed.url(1))
        key = new_id()
        task = await client.start("work", {"key": key})
        call = await primed(doomed, key)
        early = call.numbered_ask(f"{key}.2")
        await client.reach(task, "input_required")
        message = there.request("tasks/result", {"taskId": task})
        async with await there.post(message) as waiter:
            first = await waiter.until(lambda m: "method" in m)
            await killed(doomed.gateways[0])
            assert await call.resumes() == f"{key}.2"
            await there.answer(first, accept(name="Ada"))
            assert (await early.answered())["result"]["content"] == {"name": "Ada"}
            late = call.numbered_ask(f"{key}.3")
            second = await waiter.until(lambda m: "method" in m)
            assert second["id"] != first["id"]
            await there.answer(second, accept(name="Eve"))
            await late.answered()
            call.finish(text("gone on"))
            assert without_meta((await waiter.response())["result"]) == text("gone on")
        assert len(doomed.upstream.calls[key]) == 1
        assert doomed.taken(1) == {"resumed": 1}


@pytest.mark.parametrize("first", ["no message", "a message"])
@pytest.mark.parametrize("tool", ["always_task", "work"])
async def test_I5_c_a_call_in_a_session_that_the_dead_replica_held_is_resumed(
    doomed: Doomed, tool: str, first: str
) -> None:
    async with (
        Stateless(doomed.url(0), authorization="Bearer c") as client,
        Stateless(doomed.url(1), authorization="Bearer c") as there,
    ):
        key = new_id()
        calling = asyncio.create_task(client.call(tool, {"key": key}))
        call = await doomed.upstream.called(key)
        if first == "no message":
            call.raw(f"id: {key}.1\ndata:\n\n".encode())
        else:
            params: Json = {"level": "info", "data": "begun"}
            call.say({"jsonrpc": "2.0", "method": "notifications/message", "params": params}, f"{key}.1")
        task = (await calling).task_id
        await doomed.placed(f"{key}.1")
        call.numbered_ask(f"{key}.2")
        await there.reach(task, "input_required")
        await killed(doomed.gateways[0])
        assert await call.resumes() == f"{key}.2"
        shown: Json = (await there.get(task)).result
        (name,) = shown["inputRequests"]
        await there.update(task, {name: accept(name="Ada")})
        await doomed.upstream.hears(lambda m: m.get("result", {}).get("content") == {"name": "Ada"})
        call.finish(text("found again"))
        ended = await there.reach(task, "completed", seconds=10 * LEASE)
        assert ended["result"]["content"] == text("found again")["content"]
        assert len(doomed.upstream.calls[key]) == 1


async def test_I6_c_a_call_that_waits_for_its_clients_input_goes_on_where_the_client_comes_back(
    doomed: Doomed,
) -> None:
    async with (
        Stateless(doomed.url(0), authorization="Bearer held", tasks=False) as client,
        Stateless(doomed.url(1), authorization="Bearer held", tasks=False) as there,
    ):
        key = new_id()
        calling = asyncio.create_task(client.call("work", {"key": key}))
        call = await doomed.upstream.called(key)
        call.raw(f"id: {key}.1\ndata:\n\n".encode())
        question = call.numbered_ask(f"{key}.2")
        asked = (await calling).result
        assert asked["resultType"] == "input_required"
        await doomed.placed(f"{key}.2")
        await killed(doomed.gateways[0])
        assert await call.resumes() == f"{key}.2"
        answers = {name: accept(name="Ada") for name in asked["inputRequests"]}
        more = {"inputResponses": answers, "requestState": asked["requestState"]}
        retry = asyncio.create_task(there.call("work", {"key": key}, more=more))
        assert (await question.answered())["result"]["content"] == {"name": "Ada"}
        call.finish(text("both came back"))
        assert (await retry).result["content"] == text("both came back")["content"]
        assert len(doomed.upstream.calls[key]) == 1


async def test_I3_c_what_may_be_repeated_is_called_in_a_session_of_the_new_replica(doomed: Doomed) -> None:
    async with (
        Stateless(doomed.url(0), authorization="Bearer c2") as client,
        Stateless(doomed.url(1), authorization="Bearer c2") as there,
    ):
        key = new_id()
        calling = asyncio.create_task(client.call("repeatable", {"key": key}))
        first = await doomed.upstream.called(key)
        task = (await calling).task_id
        await killed(doomed.gateways[0])
        second = await doomed.upstream.called(key, 2)
        assert first.session != second.session
        second.finish(text("second"))
        ended = await there.reach(task, "completed", seconds=10 * LEASE)
        assert ended["result"]["content"] == text("second")["content"]
        assert len(doomed.upstream.calls[key]) == 2
        first.end()
