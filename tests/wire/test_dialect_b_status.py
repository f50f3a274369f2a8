"""Dialect B: what is told of a task on the session's GET stream (2025-11-25 tasks, "Notifications")."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.answers import WAIT
from tests.wire.scripted_upstream import Call, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import RELATED, Json, TasksB, accept, check_task, related_to
from tests.wire.tasks_b_world import Place, credential

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
STATUS = "notifications/tasks/status"
PROGRESS = "notifications/progress"


async def running(place: Place, client: TasksB, meta: Json | None = None) -> tuple[str, Call]:
    """Return a task that runs, and its call."""
    key = new_id()
    made = await client.call_task("work", {"key": key}, meta=meta)
    return made["task"]["taskId"], await place.upstream.called(key)


def told(client: TasksB, task: str) -> list[Json]:
    """Return what the client has been told of a task."""
    heard = [one.message for one in client.heard if one.message.get("method") == STATUS]
    return [message["params"] for message in heard if message["params"]["taskId"] == task]


async def hears_status(client: TasksB, task: str, status: str) -> Json:
    """Wait until the client is told that a task has a status."""
    found = await client.hears(
        lambda one: (
            one.message.get("method") == STATUS
            and one.message["params"]["taskId"] == task
            and one.message["params"]["status"] == status
        )
    )
    assert found.stream == "get"
    return found.message


async def listens(place: Place, client: TasksB, replica: int) -> None:
    """Open the GET stream, and have the replica that runs tasks know of it."""
    await client.twin(place.url(replica=replica)).listen()
    async with asyncio.timeout(WAIT):
        while True:
            task, call = await running(place, client)
            call.finish()
            await client.reach(task, "completed")
            if told(client, task):
                return


@pytest.mark.parametrize("replica", [0, 1])
async def test_changes_of_status_are_told(place: Place, client: TasksB, replica: int) -> None:
    await listens(place, client, replica)
    task, call = await running(place, client)
    question = call.ask()
    messages = [await hears_status(client, task, "input_required")]
    await client.answer((await client.asked("elicitation/create")).message, accept(name="Ada"))
    await question.answered()
    messages.append(await hears_status(client, task, "working"))
    call.finish(text("done"))
    messages.append(await hears_status(client, task, "completed"))
    for message in messages:
        assert RELATED not in message["params"].get("_meta", {})
        check_task(message["params"])
    assert (await client.get(task))["result"] == told(client, task)[-1]
    assert [params["status"] for params in told(client, task)] == ["input_required", "working", "completed"]


@pytest.mark.parametrize("replica", [0, 1])
async def test_every_kind_of_end_is_told_once(place: Place, client: TasksB, replica: int) -> None:
    there = client.twin(place.url(replica=replica))
    await listens(place, client, replica)
    failed, call = await running(place, client)
    call.refuse(-32050, "API rate limit exceeded")
    message = await hears_status(client, failed, "failed")
    assert "API rate limit exceeded" in message["params"]["statusMessage"]
    wrong, call = await running(place, client)
    call.finish({"content": [], "isError": True})
    await hears_status(client, wrong, "failed")
    cancelled, call = await running(place, client)
    await there.cancel(cancelled)
    await hears_status(client, cancelled, "cancelled")
    await call.cancelled()
    for task in (failed, wrong, cancelled):
        assert len(told(client, task)) == 1


@pytest.mark.parametrize("replica", [0, 1])
@pytest.mark.parametrize("token", ["mine", 7])
async def test_progress_goes_on_under_the_original_token(
    place: Place, client: TasksB, replica: int, token: str | int
) -> None:
    await listens(place, client, replica)
    task, call = await running(place, client, {"progressToken": token})
    for number in (1, 2, 3):
        params = {"progressToken": call.meta["progressToken"], "progress": number, "total": 3}
        call.tell(PROGRESS, params)
        heard = await client.hears(
            lambda one, number=number: (
                one.message.get("method") == PROGRESS and one.message["params"]["progress"] == number
            )
        )
        assert heard.stream == "get"
        assert heard.message["params"]["progressToken"] == token
        assert type(heard.message["params"]["progressToken"]) is type(token)
        assert related_to(heard.message) == task
    call.finish()
    await client.reach(task, "completed")


async def test_log_messages_of_a_task_are_related_to_it(place: Place, client: TasksB) -> None:
    await client.listen()
    task, call = await running(place, client)
    call.tell("notifications/message", {"level": "info", "data": {"n": 1.0}, "_meta": {"example.org/a": 1}})
    heard = await client.hears(lambda one: one.message.get("method") == "notifications/message")
    assert heard.message["params"]["_meta"] == {"example.org/a": 1, RELATED: {"taskId": task}}
    call.finish()
    await client.reach(task, "completed")


async def test_a_client_that_asked_for_no_progress_gets_none(place: Place, client: TasksB) -> None:
    await client.listen()
    task, call = await running(place, client)
    call.tell(PROGRESS, {"progressToken": call.meta.get("progressToken", "none"), "progress": 1})
    call.finish()
    await hears_status(client, task, "completed")
    assert not [one for one in client.heard if one.message.get("method") == PROGRESS]


async def test_I7_another_session_is_told_nothing(place: Place) -> None:
    name = credential()
    async with place.client(name) as client, place.client(name) as other, place.client() as foreign:
        for one in (client, other, foreign):
            await one.listen()
        task, call = await running(place, client, {"progressToken": "mine"})
        call.tell(PROGRESS, {"progressToken": call.meta["progressToken"], "progress": 1})
        call.finish()
        await hears_status(client, task, "completed")
        # What the other two have is their own, as this shows.
        for one in (other, foreign):
            own, call = await running(place, one)
            call.finish()
            await hears_status(one, own, "completed")
            assert told(one, task) == []
            assert not [heard for heard in one.heard if heard.message.get("method") == PROGRESS]
