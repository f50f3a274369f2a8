"""Dialect B: `tasks/cancel` (2025-11-25 tasks, "Task Cancellation")."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.scripted_upstream import Call, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import INVALID_PARAMS, TasksB
from tests.wire.tasks_b_world import Place, credential, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def running(place: Place, client: TasksB, name: str = "work") -> tuple[str, Call]:
    """Return a task that runs, and its call."""
    key = new_id()
    task = await client.start(name, {"key": key})
    return task, await place.upstream.called(key)


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_cancelled_task_stops_upstream_and_stays_cancelled(
    place: Place, client: TasksB, replica: int
) -> None:
    there = client.twin(place.url(replica=replica))
    task, call = await running(place, client)
    before = (await client.get(task))["result"]
    cancelled = (await there.cancel(task))["result"]
    assert cancelled["status"] == "cancelled"
    assert cancelled["statusMessage"]
    assert cancelled["createdAt"] == before["createdAt"]
    assert cancelled["lastUpdatedAt"] >= before["lastUpdatedAt"]
    # The task is cancelled before the answer is, on every replica.
    for one in (client, there):
        assert (await one.get(task))["result"] == cancelled
    assert (await call.cancelled())["params"]["reason"]
    call.finish(text("too late"))
    answers = [await one.result(task) for one in (client, there)]
    assert all("cancelled" in refusal(answer)[1] for answer in answers)
    assert (await client.get(task))["result"] == cancelled
    assert (await client.list())[task] == cancelled


async def test_a_cancel_of_an_ended_task_is_refused(place: Place, client: TasksB) -> None:
    completed, call = await running(place, client)
    call.finish(text("done"))
    failed, call = await running(place, client)
    call.refuse(-1, "no")
    wrong, call = await running(place, client)
    call.finish({"content": [], "isError": True})
    cancelled, _ = await running(place, client)
    await client.cancel(cancelled)
    ends = {completed: "completed", failed: "failed", wrong: "failed", cancelled: "cancelled"}
    there = client.twin(place.url(replica=1))
    for task, status in ends.items():
        await client.reach(task, status)
        for one in (client, there):
            code, words = refusal(await one.cancel(task))
            assert code == INVALID_PARAMS
            assert words == f"Cannot cancel task: already in terminal status '{status}'"
        assert (await client.get(task))["result"]["status"] == status
    assert without_meta((await client.result(completed))["result"]) == text("done")


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_call_that_waits_for_its_turn_is_cancelled_and_never_runs(
    place: Place, client: TasksB, replica: int
) -> None:
    there = client.twin(place.url(replica=replica))
    _, first = await running(place, client, "one_by_one")
    keys = [new_id() for _ in range(2)]
    second, third = [await client.start("one_by_one", {"key": key}) for key in keys]
    assert (await there.cancel(second))["result"]["status"] == "cancelled"
    first.finish()
    (await place.upstream.called(keys[1])).finish()
    await client.reach(third, "completed")
    assert not place.upstream.calls[keys[0]]
    assert not first.is_cancelled


async def test_a_task_that_asks_is_cancelled(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    call.ask()
    await client.reach(task, "input_required")
    assert (await client.cancel(task))["result"]["status"] == "cancelled"
    await call.cancelled()


async def test_of_many_cancels_at_once_one_is_answered(two: Place) -> None:
    async with two.client(credential()) as client:
        there = client.twin(two.url(replica=1))
        task, call = await running(two, client)
        clients = [client, there] * 5
        answers = await asyncio.gather(*(one.cancel(task) for one in clients))
        assert sum("result" in answer for answer in answers) == 1
        assert {refusal(answer)[0] for answer in answers if "error" in answer} == {INVALID_PARAMS}
        await call.cancelled()
        told = [
            m
            for _, m in two.upstream.heard
            if m.get("method") == "notifications/cancelled" and m["params"]["requestId"] == call.ident
        ]
        assert len(told) == 1


async def test_I4_a_cancel_and_an_end_at_once_leave_one_of_them(place: Place, client: TasksB) -> None:
    there = client.twin(place.url(replica=1))
    for _ in range(10):
        task, call = await running(place, client)
        call.finish(text("raced"))
        answer = await there.cancel(task)
        ended = await client.reach(task, "completed", "cancelled")
        assert ("result" in answer) == (ended["status"] == "cancelled")
        fetched = await client.result(task)
        assert ("result" in fetched) == (ended["status"] == "completed")


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_an_unknown_id_is_not_found(client: TasksB, method: str) -> None:
    for task in ("nope", "0" * 32, "../..", "{x}:*", "ünïcode ✓", "x" * 5000, "a\nb", "nul\0", " "):
        code, words = refusal(await client.ask(method, {"taskId": task}))
        assert code == INVALID_PARAMS
        assert words.endswith(": Task not found")
