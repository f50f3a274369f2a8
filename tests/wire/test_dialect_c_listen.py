"""Dialect C: tasks on `subscriptions/listen` (ext-tasks "Task Status Notifications")."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import REQUIRED, Eras, configuration, deployed, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless, Subscription
from tests.wire.stateless_rules import MISSING_CAPABILITY, SUBSCRIPTION, accept

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def begun(eras: Eras, caller: Stateless, name: str = "work") -> tuple[str, Call]:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, name))
    return reply.task_id, await eras.upstream.called(key)


async def change(changes: Subscription, status: str) -> Json:
    """Return the next change to a status; none but that one and news of the same status come before."""
    while True:
        message = await changes.next()
        assert message is not None
        assert message["method"] == "notifications/tasks"
        if message["params"]["status"] == status:
            return message["params"]


def plain(task: Json) -> Json:
    """Return a task without what belongs to the message that carries it."""
    return {name: part for name, part in task.items() if name not in ("_meta", "resultType")}


async def test_each_change_is_told_with_the_whole_task(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    async with caller.listen({"taskIds": [task]}) as changes:
        assert changes.acknowledged == {"taskIds": [task]}
        question = call.ask()
        told = await change(changes, "input_required")
        got = (await caller.get(task)).result
        assert plain(told) == plain(got)
        (key,) = told["inputRequests"]
        await caller.update(task, {key: accept(name="Ada")})
        await question.answered()
        await change(changes, "working")
        call.finish(text("done"))
        told = await change(changes, "completed")
        assert plain(told) == plain((await caller.get(task)).result)
        assert told["result"]["content"] == text("done")["content"]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_each_end_is_told_once(eras: Eras, caller: Stateless, status: str) -> None:
    task, call = await begun(eras, caller)
    other, last = await begun(eras, caller)
    async with caller.listen({"taskIds": [task, other]}) as changes:
        if status == "completed":
            call.finish()
        elif status == "failed":
            call.refuse(-32010, "no luck", [1])
        else:
            await caller.cancel(task)
        told = await change(changes, status)
        assert plain(told) == plain((await caller.get(task)).result)
        last.finish()
        assert (await change(changes, "completed"))["taskId"] == other


async def test_a_change_on_another_replica_is_told(era_replicas: Eras) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        task, call = await begun(era_replicas, here)
        async with there.listen({"taskIds": [task]}) as changes:
            call.ask()
            assert (await change(changes, "input_required"))["taskId"] == task
            call.finish(text("there"))
            assert (await change(changes, "completed"))["result"]["content"] == text("there")["content"]


async def test_a_task_that_has_ended_already_is_told_at_once(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    call.finish(text("before"))
    await caller.reach(task, "completed")
    async with caller.listen({"taskIds": [task]}) as changes:
        assert (await change(changes, "completed"))["result"]["content"] == text("before")["content"]


async def test_a_task_that_waits_for_input_is_told_at_once(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    call.ask()
    await caller.reach(task, "input_required")
    async with caller.listen({"taskIds": [task]}) as changes:
        assert (await change(changes, "input_required"))["inputRequests"]
    await caller.cancel(task)


async def test_I7_tasks_of_others_and_of_nobody_are_left_out_of_the_acknowledgment(
    eras: Eras, caller: Stateless
) -> None:
    mine, call = await begun(eras, caller)
    async with eras.client() as other:
        theirs, foreign = await begun(eras, other)
        async with caller.listen({"taskIds": [theirs, "0" * 32, "", mine, "x\0y"]}) as changes:
            assert changes.acknowledged == {"taskIds": [mine]}
            foreign.finish()
            await other.reach(theirs, "completed")
            call.finish()
            assert (await change(changes, "completed"))["taskId"] == mine
        async with caller.listen({"taskIds": [theirs]}) as nothing:
            assert nothing.acknowledged.get("taskIds", []) == []


async def test_a_client_that_does_not_declare_the_extension_is_told_so(
    eras: Eras, caller: Stateless
) -> None:
    task, call = await begun(eras, caller)
    params = {"notifications": {"taskIds": [task]}}
    reply = await caller.ask("subscriptions/listen", params, tasks=False)
    assert reply.refusal[:2] == (400, MISSING_CAPABILITY)
    assert reply.response["error"]["data"] == REQUIRED
    call.finish()


async def test_I10_too_many_tasks_in_one_subscription_are_refused(caller: Stateless) -> None:
    params = {"notifications": {"taskIds": [f"{number:032x}" for number in range(10_000)]}}
    reply = await caller.ask("subscriptions/listen", params)
    assert reply.refusal[:2] == (200, -32602)
    assert reply.response["error"]["data"] == {"limit": "taskIds", "max": 1000}


@pytest.mark.parametrize("ids", [None, "x", 1, {}, [1], [None], [["x"]], [{}], True])
async def test_task_ids_that_are_no_list_of_strings_are_refused(caller: Stateless, ids: object) -> None:
    params = {"notifications": {"taskIds": ids}}
    reply = await caller.ask("subscriptions/listen", params, wrong=True)
    assert reply.refusal[:2] == (200, -32602)


async def test_progress_and_log_messages_are_not_for_subscriptions(eras: Eras) -> None:
    async with eras.client(log_level="debug") as caller:
        key = new_key()
        reply = await caller.call("work", {"key": key}, progress="mine")
        call = await eras.upstream.called(key)
        task = reply.task_id
        async with caller.listen({"taskIds": [task], "toolsListChanged": True}) as changes:
            token = call.meta["progressToken"]
            call.tell("notifications/progress", {"progressToken": token, "progress": 1, "message": "one"})
            call.tell("notifications/message", {"level": "error", "data": "x"})
            call.finish()
            seen: list[Json] = []
            while not seen or seen[-1]["params"].get("status") != "completed":
                message = await changes.next()
                assert message is not None
                seen.append(message)
            assert {message["method"] for message in seen} == {"notifications/tasks"}


@pytest.mark.parametrize("ident", [0, 7, "seven", ""])
async def test_every_message_carries_the_id_of_the_subscription(
    eras: Eras, caller: Stateless, ident: int | str
) -> None:
    task, call = await begun(eras, caller)
    async with caller.listen({"taskIds": [task]}, ident=ident) as changes:
        call.finish()
        told = await change(changes, "completed")
        assert told["_meta"][SUBSCRIPTION] == ident


async def test_two_subscriptions_of_one_client_hear_of_their_own(eras: Eras, caller: Stateless) -> None:
    one, first = await begun(eras, caller)
    two, second = await begun(eras, caller)
    async with caller.listen({"taskIds": [one]}) as ones, caller.listen({"taskIds": [two]}) as twos:
        second.finish()
        first.finish()
        assert (await change(ones, "completed"))["taskId"] == one
        assert (await change(twos, "completed"))["taskId"] == two


async def test_closing_a_subscription_leaves_its_tasks_alone(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    async with caller.listen({"taskIds": [task]}):
        pass
    assert (await caller.get(task)).result["status"] == "working"
    call.finish(text("alone"))
    await caller.reach(task, "completed")
    assert not call.is_cancelled


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_a_planned_stop_ends_a_subscription_with_its_response(
    era_upstream: EraUpstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, redis_url, drain="5s")
    async with (
        deployed(era_upstream, config, tmp_path_factory.mktemp("stop"), 2) as eras,
        eras.client() as here,
        eras.twin(here) as there,
    ):
        task, call = await begun(eras, there)
        wanted = {"taskIds": [task], "toolsListChanged": True}
        async with here.listen(wanted, ident="the subscription") as changes:
            eras.gateways[0].process.send(signal.SIGTERM)
            while await changes.next() is not None:
                pass
            assert changes.ended is not None
            assert changes.ended["id"] == "the subscription"
            assert changes.ended["result"]["_meta"][SUBSCRIPTION] == "the subscription"
        assert await asyncio.to_thread(eras.gateways[0].process.wait_end) == 0
        async with there.listen({"taskIds": [task]}) as again:
            call.finish()
            assert (await change(again, "completed"))["taskId"] == task
