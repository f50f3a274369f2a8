"""Dialect A: listing and deleting tasks (SEP-1686, sections 3.5, 3.6, 4.9, 4.10)."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.scripted_upstream import tool
from tests.wire.seed_client import INVALID_PARAMS, NOT_FOUND, Json, Seed, new_id, refusal
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
MANY = 150


async def make_ended(seed: Seed, count: int) -> list[str]:
    """Make tasks that end at once."""

    async def one(task: str) -> str:
        async with await seed.begin(task, {"name": "echo", "arguments": {}}, ident=task) as stream:
            await stream.response(task)
        return task

    made: list[str] = []
    for start in range(0, count, 25):
        ids = [new_id() for _ in range(start, min(start + 25, count))]
        made += await asyncio.gather(*(one(task) for task in ids))
    return made


async def test_every_task_that_can_be_got_is_listed(house: House, seed: Seed) -> None:
    tasks = [new_id() for _ in range(4)]
    for task in tasks:
        await seed.begin(task, tool(task), ident=task)
    calls = [await house.upstream.called(task) for task in tasks]
    calls[0].finish()
    calls[1].refuse(-32000, "no")
    await seed.cancel(tasks[2])
    await seed.reach(tasks[0], "completed")
    await seed.reach(tasks[1], "failed")
    await seed.reach(tasks[2], "cancelled")
    await seed.reach(tasks[3], "working")
    listed = await seed.tasks()
    for task in tasks:
        got = (await seed.get(task))["result"]
        del got["_meta"]
        assert listed.pop(task) == got
    assert not listed
    calls[3].finish()


async def test_a_requester_without_tasks_gets_an_empty_list(seed: Seed) -> None:
    nothing: Json = {}
    for params in (None, nothing):
        answer = await seed.ask("tasks/list", params)
        assert answer["result"]["tasks"] == []
        assert "nextCursor" not in answer["result"]


async def test_pages_hold_every_task_once(seed: Seed) -> None:
    made = await make_ended(seed, MANY)
    first = (await seed.ask("tasks/list"))["result"]
    assert 0 < len(first["tasks"]) < MANY
    assert isinstance(first["nextCursor"], str)
    assert set(await seed.tasks()) == set(made)


async def test_cursors_stay_good_while_tasks_come_and_go(seed: Seed) -> None:
    made = await make_ended(seed, MANY)
    page = (await seed.ask("tasks/list"))["result"]
    seen = [task["taskId"] for task in page["tasks"]]
    # The last one of the page is where a naive cursor would stand.
    gone = {seen[0], seen[-1], seen[len(seen) // 2]}
    for task in gone:
        assert "result" in await seed.delete(task)
    later = await make_ended(seed, 5)
    while "nextCursor" in page:
        page = (await seed.ask("tasks/list", {"cursor": page["nextCursor"]}))["result"]
        seen += [task["taskId"] for task in page["tasks"]]
    assert len(seen) == len(set(seen)), "listed twice"
    assert set(made) - gone <= set(seen)
    assert set(seen) <= set(made) | set(later)


async def test_a_cursor_is_good_more_than_once(seed: Seed) -> None:
    await make_ended(seed, MANY)
    cursor = (await seed.ask("tasks/list"))["result"]["nextCursor"]
    pages = [(await seed.ask("tasks/list", {"cursor": cursor}))["result"]["tasks"] for _ in range(2)]
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    "cursor", ["garbage", "", "AAAA", "0", "ünï\u2028", "x" * 5000, 7, {}, ["a"], True]
)
async def test_a_bad_cursor_is_refused(seed: Seed, cursor: object) -> None:
    code, words = refusal(await seed.ask("tasks/list", {"cursor": cursor}))
    assert code == INVALID_PARAMS
    assert "cursor" in words.lower()


async def test_I7_a_cursor_of_another_scope_is_refused_like_garbage(house: House) -> None:
    async with house.client("Bearer pages-1") as one, house.client("Bearer pages-2") as two:
        await make_ended(one, MANY)
        await make_ended(two, MANY)
        cursor = (await one.ask("tasks/list"))["result"]["nextCursor"]
        foreign = refusal(await two.ask("tasks/list", {"cursor": cursor}))
        assert foreign == refusal(await two.ask("tasks/list", {"cursor": "garbage"}))
        assert foreign[0] == INVALID_PARAMS


async def test_a_deleted_task_is_gone(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, tool(task))
    (await house.upstream.called(task)).finish()
    await seed.reach(task, "completed")
    assert set((await seed.delete(task))["result"]) == {"_meta"}
    assert refusal(await seed.get(task)) == NOT_FOUND
    assert refusal(await seed.fetch(task))[0] == INVALID_PARAMS
    assert task not in await seed.tasks()
    assert refusal(await seed.delete(task))[0] == INVALID_PARAMS


async def test_a_failed_and_a_cancelled_task_can_be_deleted(house: House, seed: Seed) -> None:
    failed, cancelled = new_id(), new_id()
    await seed.begin(failed, tool(failed))
    (await house.upstream.called(failed)).refuse(-1, "no")
    await seed.begin(cancelled, tool(cancelled), ident="c")
    await house.upstream.called(cancelled)
    await seed.cancel("c")
    await seed.reach(failed, "failed")
    await seed.reach(cancelled, "cancelled")
    for task in (failed, cancelled):
        assert "result" in await seed.delete(task)
        assert refusal(await seed.get(task)) == NOT_FOUND


async def test_deleting_a_running_task_cancels_it_first(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=8)
    call = await house.upstream.called(task)
    await seed.reach(task, "working")
    assert "result" in await seed.delete(task)
    await call.cancelled()
    assert refusal(await seed.get(task)) == NOT_FOUND
    call.finish()
    assert [m for m in await stream.rest() if m.get("id") == 8 and "result" in m] == []
    assert refusal(await seed.get(task)) == NOT_FOUND


async def test_deleting_a_waiting_task_keeps_it_from_running(house: House, seed: Seed) -> None:
    first, second, third = new_id(), new_id(), new_id()
    await seed.begin(first, tool(first, "one_by_one"))
    running = await house.upstream.called(first)
    await seed.begin(second, tool(second, "one_by_one"))
    assert "result" in await seed.delete(second)
    await seed.begin(third, tool(third, "one_by_one"))
    running.finish()
    (await house.upstream.called(third)).finish()
    await seed.reach(third, "completed")
    assert not house.upstream.calls[second]


async def test_deleting_a_task_that_asks_cancels_it(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    question = call.ask()
    asked = await stream.asked()
    await seed.reach(task, "input_required")
    assert "result" in await seed.delete(task)
    await call.cancelled()
    late: Json = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}
    async with await seed.post(late) as exchange:
        assert exchange.status < 500
    assert not question.is_answered
    assert refusal(await seed.get(task)) == NOT_FOUND


async def test_a_task_of_another_replica_is_deleted_and_its_upstream_hears(pair: House) -> None:
    async with pair.client("Bearer delete-elsewhere") as seed:
        other = seed.twin(pair.url(replica=1))
        task = new_id()
        stream = await seed.begin(task, tool(task))
        call = await pair.upstream.called(task)
        await seed.reach(task, "working")
        assert "result" in await other.delete(task)
        await call.cancelled()
        assert refusal(await seed.get(task)) == NOT_FOUND
        await stream.rest()
