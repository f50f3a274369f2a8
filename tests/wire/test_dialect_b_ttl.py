"""Dialect B: how long a task is kept, counted from its creation (2025-11-25 tasks, "TTL and Resource")."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import INVALID_PARAMS, PAUSE, Json, TasksB
from tests.wire.tasks_b_world import DEFAULT_TTL_MS, MAX_TTL_MS, TIMEOUT_MS, Place, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LARGEST: Final = 2**53 - 1


async def shown_everywhere(client: TasksB, made: Json) -> set[int | None]:
    """Return the retention as each answer about a task shows it."""
    task = made["taskId"]
    got = (await client.get(task))["result"]
    cancelled = (await client.cancel(task))["result"]
    listed = (await client.list())[task]
    return {one["ttl"] for one in (made, got, cancelled, listed)}


@pytest.mark.parametrize(
    ("name", "asked", "granted"),
    [
        ("work", {}, DEFAULT_TTL_MS),
        ("work", {"ttl": 70_000}, 70_000),
        ("work", {"ttl": 70_000.0}, 70_000),
        ("work", {"ttl": MAX_TTL_MS}, MAX_TTL_MS),
        ("work", {"ttl": MAX_TTL_MS + 1}, MAX_TTL_MS),
        ("work", {"ttl": 2**53}, MAX_TTL_MS),
        ("work", {"ttl": 10**60}, MAX_TTL_MS),
        ("work", {"ttl": 1e300}, MAX_TTL_MS),
        ("work", {"ttl": None}, MAX_TTL_MS),
        # Nobody is told of a task that may be gone before its call has to end (I8).
        ("work", {"ttl": 1}, TIMEOUT_MS),
        ("work", {"ttl": 0}, TIMEOUT_MS),
        ("work", {"ttl": TIMEOUT_MS - 1}, TIMEOUT_MS),
        ("work", {"unknown": [1], "ttl": 70_000}, 70_000),
        ("endless", {"ttl": None}, None),
        ("endless", {"ttl": 999_999_999}, 999_999_999),
    ],
)
async def test_the_retention_is_granted_or_capped_and_told_everywhere(
    place: Place, client: TasksB, name: str, asked: Json, granted: int | None
) -> None:
    key = new_id()
    wish = {**tool(key, name), "task": asked}
    made = (await client.ask("tools/call", wish, wrong=True))["result"]["task"]
    await place.upstream.called(key)
    assert await shown_everywhere(client, made) == {granted}


@pytest.mark.parametrize("ttl", [LARGEST, 2**53, 10**30])
async def test_an_endless_policy_takes_the_largest_numbers(client: TasksB, ttl: int) -> None:
    wish: Json = {**tool(new_id(), "endless"), "task": {"ttl": ttl}}
    made = (await client.ask("tools/call", wish))["result"]["task"]
    # No larger number crosses JSON unharmed.
    assert await shown_everywhere(client, made) == {LARGEST}


@pytest.mark.parametrize(
    "task",
    [
        "junk",
        None,
        5,
        True,
        [],
        [{"ttl": 60_000}],
        {"ttl": -1},
        {"ttl": -0.5},
        {"ttl": 0.5},
        {"ttl": "60000"},
        {"ttl": True},
        {"ttl": False},
        {"ttl": []},
        {"ttl": {}},
    ],
)
async def test_a_wish_of_a_wrong_shape_is_refused_and_nothing_runs(
    place: Place, client: TasksB, task: object
) -> None:
    key = new_id()
    code, words = refusal(await client.ask("tools/call", {**tool(key), "task": task}, wrong=True))
    assert code == INVALID_PARAMS
    assert "task" in words
    assert ("ttl" in words) == isinstance(task, dict)
    assert await client.list() == {}
    assert not place.upstream.calls[key]


async def test_I8_a_task_is_kept_as_long_as_announced_and_no_longer(place: Place, client: TasksB) -> None:
    key = new_id()
    made = (await client.call_task("brief", {"key": key}))["task"]
    began = asyncio.get_running_loop().time()
    assert made["ttl"] == 500
    (await place.upstream.called(key)).finish(text("brief"))
    await client.reach(made["taskId"], "completed")
    answer = await client.result(made["taskId"])
    async with asyncio.timeout(5):
        while "result" in answer:
            # Whoever asked before the time was over is answered.
            assert without_meta(answer["result"]) == text("brief")
            asked = asyncio.get_running_loop().time()
            answer = await client.result(made["taskId"])
            if "error" in answer:
                assert asyncio.get_running_loop().time() - began > 0.45, (asked, began)
                break
            await asyncio.sleep(PAUSE)
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert refusal(await client.ask(method, {"taskId": made["taskId"]}))[0] == INVALID_PARAMS
    assert await client.list() == {}


async def test_the_time_counts_from_the_creation_not_from_the_end(place: Place, client: TasksB) -> None:
    key = new_id()
    # The call may take 400 ms: so long is the task kept, from its creation, whenever the call ends.
    made = (await client.call_task("short", {"key": key}, ttl=1))["task"]
    assert made["ttl"] == 400
    loop = asyncio.get_running_loop()
    began = loop.time()
    call = await place.upstream.called(key)
    async with asyncio.timeout(5):
        while loop.time() - began < 0.25:
            assert (await client.get(made["taskId"]))["result"]["status"] == "working"
            await asyncio.sleep(PAUSE)
        call.finish()
        answer = await client.get(made["taskId"])
        while "result" in answer:
            await asyncio.sleep(PAUSE)
            answer = await client.get(made["taskId"])
    assert loop.time() - began < 0.25 + 0.4 + 0.5
