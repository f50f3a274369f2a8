"""Dialect B: listing tasks, beside those of dialect A (2025-11-25 tasks, "Task Listing")."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import Seed, new_id
from tests.wire.tasks_b_client import INVALID_PARAMS, Json, TasksB
from tests.wire.tasks_b_world import Place, credential, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
MANY = 120


async def make_many(client: TasksB, count: int) -> list[str]:
    """Make tasks that end at once."""
    made: list[str] = []
    for start in range(0, count, 30):
        made += await asyncio.gather(*(client.start("echo") for _ in range(start, min(start + 30, count))))
    return made


async def test_every_task_that_can_be_got_is_listed(place: Place, client: TasksB) -> None:
    keys = [new_id() for _ in range(5)]
    tasks = [await client.start("work", {"key": key}) for key in keys]
    calls = [await place.upstream.called(key) for key in keys]
    calls[0].finish()
    calls[1].refuse(-32000, "no")
    await client.cancel(tasks[2])
    calls[3].ask()
    ends = ("completed", "failed", "cancelled", "input_required", "working")
    for task, status in zip(tasks, ends, strict=True):
        await client.reach(task, status)
    there = client.twin(place.url(replica=1))
    listed = await there.list()
    assert set(listed) == set(tasks)
    for task in tasks:
        assert listed[task] == (await client.get(task))["result"]
    calls[3].finish()
    calls[4].finish()


async def test_a_requester_without_tasks_gets_an_empty_list(client: TasksB) -> None:
    nothing: Json = {}
    for params in (None, nothing):
        assert (await client.ask("tasks/list", params))["result"] == {"tasks": []}


async def test_pages_hold_every_task_once(place: Place, client: TasksB) -> None:
    made = await make_many(client, MANY)
    first = (await client.ask("tasks/list"))["result"]
    assert 0 < len(first["tasks"]) < MANY
    assert first["nextCursor"]
    assert set(await client.list()) == set(made)
    assert set(await client.twin(place.url(replica=1)).list()) == set(made)
    # A cursor is good more than once, and while tasks come.
    await make_many(client, 3)
    pages = [
        (await client.ask("tasks/list", {"cursor": first["nextCursor"]}))["result"]["tasks"]
        for _ in range(2)
    ]
    assert pages[0] == pages[1]
    assert not {task["taskId"] for task in pages[0]} & {task["taskId"] for task in first["tasks"]}


@pytest.mark.parametrize(
    "cursor", ["garbage", "", "AAAA", "0", "ünï\u2028", "x" * 5000, 7, {}, ["a"], True]
)
async def test_a_bad_cursor_is_refused(client: TasksB, cursor: object) -> None:
    code, words = refusal(await client.ask("tasks/list", {"cursor": cursor}, wrong=True))
    assert code == INVALID_PARAMS
    assert "cursor" in words.lower()


async def test_I7_a_cursor_of_another_asker_is_refused_like_garbage(place: Place) -> None:
    async with place.client(credential()) as one, place.client(credential()) as other:
        await make_many(one, MANY)
        await make_many(other, 1)
        cursor = (await one.ask("tasks/list"))["result"]["nextCursor"]
        foreign = refusal(await other.ask("tasks/list", {"cursor": cursor}))
        assert foreign == refusal(await other.ask("tasks/list", {"cursor": "garbage"}))
        assert foreign[0] == INVALID_PARAMS


async def test_where_askers_are_not_told_apart_there_is_no_list(place: Place) -> None:
    async with place.client() as client:
        task = await client.start("echo")
        answer = await client.ask("tasks/list")
        # It is not declared; whoever asks all the same learns of no task.
        assert task not in str(answer)
        assert not answer.get("result", {}).get("tasks")


async def test_tasks_of_both_dialects_of_one_asker_are_in_one_list(place: Place) -> None:
    name = credential("both")
    old, key = new_id(), new_id()
    async with (
        place.client(name) as client,
        Seed(place.url(), name, "2025-11-25") as seed,
        Seed(place.url(replica=1), name) as older,
    ):
        await seed.begin(old, tool(old))
        first = await place.upstream.called(old)
        task = await client.start("work", {"key": key})
        second = await place.upstream.called(key)
        listed = await client.list()
        assert set(listed) == {old, task}
        assert listed[task]["ttl"] is not None
        for one in (seed, older):
            assert set(await one.tasks()) == {old, task}
        # Whichever session asks, a task speaks the dialect that it was made in, and the asker's.
        assert (await seed.get(old))["result"]["keepAlive"] == (await older.get(old))["result"]["keepAlive"]
        got = (await client.get(task))["result"]
        assert got.items() <= (await older.get(task))["result"].items()
        assert (await client.ask("tasks/get", {"taskId": old}))["result"]["status"] == "working"
        first.finish(text("of A"))
        second.finish(text("of B"))
        await seed.reach(old, "completed")
        assert without_meta((await client.result(task))["result"]) == text("of B")
        assert (await seed.fetch(old))["result"]["content"] == text("of A")["content"]
        await older.reach(task, "completed")
        assert (await older.fetch(task))["result"]["content"] == text("of B")["content"]


async def test_a_task_is_read_after_the_client_has_begun_anew(place: Place) -> None:
    name = credential("anew")
    async with place.client(name) as client:
        key = new_id()
        made = (await client.call_task("work", {"key": key}))["task"]
        call = await place.upstream.called(key)
    task = made["taskId"]
    async with place.client(name, replica=1) as again, Seed(place.url(), name) as older:
        got = (await again.get(task))["result"]
        assert {**made, "lastUpdatedAt": got["lastUpdatedAt"]} == got
        assert list(await again.list()) == [task]
        # A client that went back to an earlier version reads the task too, in the words it was made in.
        assert got.items() <= (await older.get(task))["result"].items()
        assert list(await older.tasks()) == [task]
        call.finish(text("kept"))
        assert without_meta((await again.result(task))["result"]) == text("kept")
        assert (await older.fetch(task))["result"]["content"] == text("kept")["content"]
