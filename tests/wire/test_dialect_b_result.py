"""Dialect B: `tasks/result` waits for the end, for anybody and anywhere (2025-11-25 tasks, "Result")."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from tests.wire.answers import Answer
from tests.wire.scripted_upstream import Call, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import Json, TasksB, accept, related_to
from tests.wire.tasks_b_world import Place, credential, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ONLY_JSON = {"Accept": "application/json"}


async def running(place: Place, client: TasksB, name: str = "work") -> tuple[str, Call]:
    """Return a task that runs, and its call."""
    key = new_id()
    task = await client.start(name, {"key": key})
    return task, await place.upstream.called(key)


async def waits(client: TasksB, task: str) -> Answer:
    """Open a `tasks/result` that waits, and return it when its stream is open."""
    answer = await client.post(client.request("tasks/result", {"taskId": task}))
    assert answer.status == 200
    assert answer.is_stream
    return answer


async def all_of(*answers: Awaitable[Json]) -> list[Json]:
    """Return what all that wait are answered."""
    return list(await asyncio.gather(*answers))


async def test_the_result_is_waited_for(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        assert (await client.get(task))["result"]["status"] == "working"
        with pytest.raises(TimeoutError):
            await waiter.next(0.2)
        call.finish(text("at last"))
        answer = await waiter.response()
        assert without_meta(answer["result"]) == text("at last")
        assert related_to(answer) == task
        assert await waiter.next() is None


async def test_any_number_may_wait_on_any_replica(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    other = client.twin(place.url(replica=1))
    waiters = [await waits(one, task) for one in (client, other) for _ in range(10)]
    assert (await other.get(task))["result"]["status"] == "working"
    call.finish(text("for all"))
    answers = await all_of(*(waiter.response() for waiter in waiters))
    assert all(without_meta(answer["result"]) == text("for all") for answer in answers)
    assert len({str(answer["id"]) for answer in answers}) == len(waiters)
    for waiter in waiters:
        waiter.cut()


@pytest.mark.parametrize("replica", [0, 1])
async def test_an_error_and_a_failure_end_the_wait_too(place: Place, client: TasksB, replica: int) -> None:
    there = client.twin(place.url(replica=replica))
    refused, call = await running(place, client)
    async with await waits(there, refused) as waiter:
        call.refuse(-32050, "API rate limit exceeded", {"left": 0})
        error = (await waiter.response())["error"]
        assert error == {"code": -32050, "message": "API rate limit exceeded", "data": {"left": 0}}
    slow, call = await running(place, client, "short")
    async with await waits(there, slow) as waiter:
        assert refusal(await waiter.response())[1]
    gone, call = await running(place, client)
    async with await waits(there, gone) as waiter:
        await client.cancel(gone)
        assert "cancelled" in refusal(await waiter.response())[1]


async def test_who_waits_is_answered_when_the_task_is_gone(place: Place, client: TasksB) -> None:
    key = new_id()
    made = (await client.call_task("brief", {"key": key}))["task"]
    async with await waits(client, made["taskId"]) as waiter:
        # The call is over after 100 ms at the latest.
        assert refusal(await waiter.response())[1]


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_client_that_takes_no_stream_waits_too(place: Place, client: TasksB, replica: int) -> None:
    there = client.twin(place.url(replica=replica))
    task, call = await running(place, client)
    async with asyncio.TaskGroup() as group:
        posting = group.create_task(there.post(there.request("tasks/result", {"taskId": task}), ONLY_JSON))
        await client.reach(task, "working")
        call.tell("notifications/message", {"level": "info", "data": "not for JSON"})
        call.finish(text("json"))
    async with posting.result() as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("application/json")
        assert without_meta((await answer.response())["result"]) == text("json")


async def test_getting_a_task_opens_no_stream(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    for method in ("tasks/get", "tasks/cancel", "tasks/list"):
        params: Json = {} if method == "tasks/list" else {"taskId": task}
        async with await client.post(client.request(method, params)) as answer:
            assert answer.headers["content-type"].startswith("application/json")
            assert "result" in await answer.response()
    await call.cancelled()


@pytest.mark.parametrize("replica", [0, 1])
async def test_I11_a_waiter_that_leaves_neither_ends_the_task_nor_loses_the_result(
    place: Place, client: TasksB, replica: int
) -> None:
    there = client.twin(place.url(replica=replica))
    task, call = await running(place, client)
    for _ in range(3):
        (await waits(there, task)).cut()
    async with await waits(there, task) as stays:
        (await waits(there, task)).cut()
        assert (await client.reach(task, "working"))["status"] == "working"
        call.finish(text("kept"))
        assert without_meta((await stays.response())["result"]) == text("kept")
    assert without_meta((await there.result(task))["result"]) == text("kept")
    assert not call.is_cancelled


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_wait_that_is_cancelled_ends_alone(place: Place, client: TasksB, replica: int) -> None:
    there = client.twin(place.url(replica=replica))
    task, call = await running(place, client)
    request = there.request("tasks/result", {"taskId": task})
    async with await there.post(request) as waiter, await waits(there, task) as other:
        await there.notify("notifications/cancelled", {"requestId": request["id"], "reason": "enough"})
        # "Not send a response for the cancelled request."
        assert await waiter.rest() == []
        assert (await client.get(task))["result"]["status"] == "working"
        assert not call.is_cancelled
        call.finish(text("kept"))
        assert without_meta((await other.response())["result"]) == text("kept")
    await client.reach(task, "completed")


async def test_I6_a_wait_is_cancelled_on_any_replica(two: Place) -> None:
    async with two.client(credential()) as client:
        task, call = await running(two, client)
        there = client.twin(two.url(replica=1))
        request = client.request("tasks/result", {"taskId": task})
        async with await client.post(request) as waiter:
            await there.notify("notifications/cancelled", {"requestId": request["id"]})
            assert await waiter.rest() == []
        assert not call.is_cancelled
        call.finish()
        await client.reach(task, "completed")


async def test_another_sessions_cancellation_does_not_end_a_wait(place: Place) -> None:
    name = credential()
    async with place.client(name) as client, place.client(name) as other:
        task, call = await running(place, client)
        request = client.request("tasks/result", {"taskId": task})
        async with await client.post(request) as waiter:
            await other.notify("notifications/cancelled", {"requestId": request["id"]})
            call.finish(text("still here"))
            assert without_meta((await waiter.response())["result"]) == text("still here")


async def test_the_original_request_was_answered_and_cannot_be_cancelled(
    place: Place, client: TasksB
) -> None:
    """2025-11-25 cancellation: `tasks/cancel` MUST be used; what names a completed request is ignored."""
    key = new_id()
    made = await client.call_task("work", {"key": key}, ident="original")
    task = made["task"]["taskId"]
    call = await place.upstream.called(key)
    await client.notify("notifications/cancelled", {"requestId": "original", "reason": "late"})
    assert (await client.get(task))["result"]["status"] == "working"
    call.finish(text("done"))
    assert without_meta((await client.result(task))["result"]) == text("done")
    assert not call.is_cancelled


async def test_related_metadata_of_another_task_in_the_request_is_ignored(
    place: Place, client: TasksB
) -> None:
    first, one = await running(place, client)
    second, two = await running(place, client)
    one.finish(text("one"))
    two.finish(text("two"))
    await client.reach(second, "completed")
    wrong: Json = {"io.modelcontextprotocol/related-task": {"taskId": second}}
    answer = await client.ask("tasks/result", {"taskId": first, "_meta": wrong})
    assert without_meta(answer["result"]) == text("one")
    assert related_to(answer) == first
    assert (await client.ask("tasks/get", {"taskId": first, "_meta": wrong}))["result"]["taskId"] == first


async def test_a_dropped_result_stream_is_asked_again_and_loses_nothing(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    waiter = await waits(client, task)
    question = call.ask()
    first = await waiter.next()
    assert first is not None
    waiter.cut()
    async with await waits(client, task) as again:
        asked = await again.until(lambda message: "method" in message)
        assert asked["id"] == first["id"]
        await client.answer(asked, accept(name="Ada"))
        await question.answered()
        call.finish(text("all of it"))
        assert without_meta((await again.response())["result"]) == text("all of it")
