"""Sessions whose process lives on another replica (I6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.wire.far_world import Far, far, tool
from tests.wire.seed_client import Json, Seed

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("says which replica does what"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trio(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Far]:
    """Serve by three replicas."""
    world = await far(tmp_path_factory.mktemp("far"), redis_url, replicas=3)
    yield world
    await world.stop()


def call(ident: int, name: str, token: str | None = None, **arguments: Any) -> Json:
    """Return a request that calls a tool."""
    params: Json = {"name": name, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}


async def test_I6_calls_by_turns_on_three_replicas_reach_one_process(trio: Far) -> None:
    async with trio.client() as seed:
        told = [await tool(trio.at(seed, number % 3), "count") for number in range(9)]
    assert len({one["pid"] for one in told}) == 1
    assert [one["count"] for one in told] == list(range(1, 10))


async def test_I6_progress_goes_to_the_call_that_was_made_elsewhere(trio: Far) -> None:
    async with trio.client() as seed:
        other = trio.at(seed, 1)
        exchange = await other.post(call(7, "progress", "mine", times=300, bytes=5000))
        messages = await exchange.rest()
    steps = [one["params"]["progress"] for one in messages[:-1]]
    assert steps == list(range(300))
    assert messages[-1]["result"]["structuredContent"]["count"] == 1


async def test_I6_a_question_in_a_call_made_elsewhere_is_answered_from_a_third_replica(trio: Far) -> None:
    async with trio.client() as seed:
        exchange = await trio.at(seed, 1).post(call(8, "ask"))
        asked = await exchange.asked()
        await trio.at(seed, 2).answer(asked, {"action": "accept", "content": {"name": "Ada"}})
        told = (await exchange.response(8))["result"]["structuredContent"]
    assert told["answer"] == {"action": "accept", "content": {"name": "Ada"}}


async def test_I6_what_belongs_to_no_call_goes_to_the_stream_on_another_replica(trio: Far) -> None:
    async with trio.client() as seed:
        first = await trio.at(seed, 1).listen()
        await tool(trio.at(seed, 2), "news", times=5)
        data = [(await first.notification("notifications/message"))["params"]["data"] for _ in range(5)]
        assert data == [0, 1, 2, 3, 4]
        second = await trio.at(seed, 2).listen()
        assert await first.rest() is not None
        await tool(seed, "news", times=1)
        await second.notification("notifications/message")


async def test_I6_a_cancellation_from_another_replica_reaches_the_process(trio: Far) -> None:
    async with trio.client() as seed:
        exchange = await trio.at(seed, 1).post(call(4711, "wait", "w", file=str(trio.file())))
        await exchange.notification("notifications/progress")
        await trio.at(seed, 2).cancel(4711)
        await trio.until(cancelled=4711)


async def test_I6_a_session_deleted_elsewhere_ends_its_process(trio: Far) -> None:
    async with trio.client() as seed:
        pid = (await tool(trio.at(seed, 1), "count"))["pid"]
        async with await trio.at(seed, 2).send("DELETE") as exchange:
            assert exchange.status == 204
        await trio.ended(pid)
        async with await trio.at(seed, 1).post(call(1, "count")) as exchange:
            assert exchange.status == 404


async def test_I6_an_answer_of_16_MB_comes_from_another_replica(trio: Far) -> None:
    async with trio.client() as seed:
        size = 16 * 1024 * 1024 - 1000
        told = await tool(trio.at(seed, 1), "large", bytes=size)
        assert len(told["text"]) == size
        told = await tool(trio.at(seed, 2), "echo", text="y" * 3_000_000)
        assert told == {"length": 3_000_000}


async def test_I6_many_calls_at_once_come_back_to_their_replicas(trio: Far) -> None:
    async with trio.client() as seed:
        others = [trio.at(seed, 1), trio.at(seed, 2)]

        async def one(other: Seed, number: int) -> int:
            answer = await other.ask("tools/call", {"name": "count", "arguments": {}}, ident=number)
            assert answer["id"] == number
            return int(answer["result"]["structuredContent"]["count"])

        counts = await asyncio.gather(*(one(others[number % 2], number) for number in range(200)))
    assert max(counts) == 200


async def test_I3_a_process_that_dies_in_a_call_made_elsewhere_is_told_and_started_anew(trio: Far) -> None:
    async with trio.client() as seed:
        other = trio.at(seed, 1)
        before = await tool(other, "count")
        answer = await tool(other, "die")
        assert "exited with code 3" in answer["error"]["message"]
        after = [await tool(trio.at(seed, number), "count") for number in range(3)]
    assert [one["count"] for one in after] == [1, 2, 3]
    assert {one["pid"] for one in after}.isdisjoint({before["pid"]})
    assert len({one["pid"] for one in after}) == 1


async def test_I6_a_task_made_elsewhere_runs_on_the_sessions_process(trio: Far) -> None:
    async with trio.client(authorization="Bearer far") as seed:
        pid = (await tool(seed, "count"))["pid"]
        other, file = trio.at(seed, 1), trio.file()
        stream = await other.begin("far-1", {"name": "wait", "arguments": {"file": str(file)}})
        await trio.until(tool="wait", file=str(file), pid=pid)
        async with await trio.at(seed, 2).send("DELETE") as exchange:
            assert exchange.status == 204
        file.touch()
        again = trio.client(1, "Bearer far")
        await again.initialize()
        await again.reach("far-1", "completed")
        await trio.ended(pid)
        stream.cut()
        again.vanish()
