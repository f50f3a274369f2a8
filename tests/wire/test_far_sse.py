"""Sessions over the legacy HTTP+SSE transport whose connection lives on another replica (I6)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.processes import Process
from tests.wire.far_world import Far, far, tool
from tests.wire.test_far_links import call

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("says which replica does what"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def couple(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Far]:
    """Serve a legacy server by two replicas."""
    place = tmp_path_factory.mktemp("sse")
    command = [sys.executable, "-m", "tests.wire.far_child", str(place / "calls.jsonl"), "sse", "0"]
    with Process(command) as server:
        url = (await asyncio.to_thread(server.wait_line, r"^ready (\S+)$"))[1]
        world = await far(place, redis_url, url=url)
        yield world
        await world.stop()


async def test_I6_calls_by_turns_on_two_replicas_reach_one_connection(couple: Far) -> None:
    async with couple.client(authorization="Bearer sse") as seed:
        told = [await tool(couple.at(seed, number % 2), "count") for number in range(6)]
    assert len({one["session"] for one in told}) == 1
    assert [one["count"] for one in told] == list(range(1, 7))


async def test_I6_a_question_over_a_far_connection_is_answered_at_its_owner(couple: Far) -> None:
    async with couple.client() as seed:
        exchange = await couple.at(seed, 1).post(call(8, "ask"))
        await seed.answer(await exchange.asked(), {"action": "decline"})
        told = (await exchange.response(8))["result"]["structuredContent"]
    assert told["answer"] == {"action": "decline"}


async def test_I6_news_of_a_far_connection_come_on_the_stream_here(couple: Far) -> None:
    async with couple.client() as seed:
        stream = await couple.at(seed, 1).listen()
        await tool(seed, "news", times=3)
        data = [(await stream.notification("notifications/message"))["params"]["data"] for _ in range(3)]
    assert data == [0, 1, 2]


async def test_I6_a_session_deleted_elsewhere_ends_its_connection(couple: Far) -> None:
    async with couple.client() as seed:
        await tool(couple.at(seed, 1), "count")
        async with await couple.at(seed, 1).send("DELETE") as exchange:
            assert exchange.status == 204
        async with await seed.post(call(1, "count")) as exchange:
            assert exchange.status == 404


async def test_I5_a_far_connection_that_ends_in_mid_call_is_told_and_made_anew(
    redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("ends")
    log = place / "calls.jsonl"
    command = [sys.executable, "-m", "tests.wire.far_child", str(log), "sse"]
    with Process([*command, "0"]) as server:
        url = (await asyncio.to_thread(server.wait_line, r"^ready (\S+)$"))[1]
        world = await far(place, redis_url, url=url)
        async with world.client() as seed:
            other = world.at(seed, 1)
            await tool(other, "count")
            assert "closed its event stream" in (await tool(other, "die"))["error"]["message"]
            await asyncio.to_thread(server.wait_end)
            port = url.split(":")[2].split("/")[0]
            with Process([*command, port]) as again:
                await asyncio.to_thread(again.wait_line, r"^ready")
                told = [await tool(world.at(seed, number % 2), "count") for number in range(4)]
        assert [one["count"] for one in told] == [1, 2, 3, 4]
        await world.stop()
