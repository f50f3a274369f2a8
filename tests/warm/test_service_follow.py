"""Reading a task's log from an offset: reconnecting is reading on (design section 4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.tasks.model import TaskKey
from tests.warm.service_world import (
    ALICE,
    BOB,
    WAIT,
    Replica,
    ScriptedChannel,
    followed,
    memory,
    next_news,
    question_on,
)

Pair = tuple[Replica, Replica]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    url = memory()
    one, two = Replica(url, "r1"), Replica(url, "r2")
    await one.open()
    await two.open()
    yield one, two
    await one.close()
    await two.close()


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


async def test_I6_every_offset_of_the_stream_reads_on_at_any_replica(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    running = await one.begin("t", channel)
    await channel.called()
    for number in range(10):
        channel.log(str(number))
    channel.finish()
    await one.reach("t", "completed")
    told = [await next_news(running.feed) for _ in range(12)]
    assert [news.kind for news in told] == ["created", *["message"] * 10, "final"]
    for place, news in enumerate(told[:-1]):
        after = None if news.offset == "0" else news.offset
        for replica in (one, two):
            rest = await followed(replica, "t", after)
            assert [item.message for item in rest] == [item.message for item in told[place + 1 :]]
            assert rest[-1].outcome == told[-1].outcome


async def test_a_follower_hears_each_message_as_it_comes(pair: Pair, channel: ScriptedChannel) -> None:
    one, two = pair
    await one.begin("t", channel)
    await channel.called()
    async with (
        asyncio.timeout(WAIT),
        aclosing(two.service.readers.follow(TaskKey(ALICE, "t"), None)) as news,
    ):
        for number in range(5):
            channel.log(str(number))
            item = await anext(news)
            assert item is not None
            assert json.loads(item.message)["params"]["data"] == str(number)
        channel.finish()
        item = await anext(news)
        assert item is not None
        assert item.kind == "final"
        with pytest.raises(StopAsyncIteration):
            await anext(news)


async def test_I7_nothing_is_to_be_followed_of_an_unknown_task(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, _ = pair
    await one.begin("t", channel)
    assert await followed(one, "nothing") == []
    key = TaskKey.from_digest(BOB, TaskKey(ALICE, "t").digest)
    async with asyncio.timeout(WAIT), aclosing(one.service.readers.follow(key, None)) as news:
        assert [item async for item in news] == []


async def test_a_question_that_was_answered_is_left_out_and_one_that_waits_is_told(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    running = await one.begin("t", channel)
    await channel.called()
    channel.ask("q1")
    first = await question_on(running.feed)
    answer = json.dumps({"jsonrpc": "2.0", "id": first["id"], "result": {}}).encode()
    await one.service.answer(ALICE, first["id"], answer)
    channel.ask("q2")
    second = await question_on(running.feed)
    async with (
        asyncio.timeout(WAIT),
        aclosing(two.service.readers.follow(TaskKey(ALICE, "t"), None)) as news,
    ):
        item = await anext(news)
        assert item is not None
        assert json.loads(item.message)["id"] == second["id"]


async def test_while_somebody_follows_a_question_is_not_offered_elsewhere_and_then_it_is(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, _ = pair
    running = await one.begin("t", channel)
    await channel.called()
    running.feed.end()
    news = one.service.readers.follow(TaskKey(ALICE, "t"), None)
    reading = asyncio.create_task(anext(news))
    await asyncio.sleep(0)
    listening = one.service.listen("s1")
    channel.ask()
    item = await asyncio.wait_for(reading, WAIT)
    assert item is not None
    assert running.asking.unanswered() == []
    await news.aclose()
    assert (await question_on(listening))["id"] == json.loads(item.message)["id"]


async def test_a_followed_task_that_is_deleted_ends_the_reading(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    await one.begin("t", channel)
    await channel.called()
    following = asyncio.create_task(followed(two, "t"))
    await asyncio.sleep(0.01)
    await one.service.remove(TaskKey(ALICE, "t"))
    assert all(news.kind != "message" for news in await following)


async def test_followers_that_leave_at_any_moment_leave_nothing_behind(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    running = await one.begin("t", channel)
    await channel.called()
    for turns in range(40):
        for replica in (one, two):
            following = asyncio.create_task(followed(replica, "t"))
            for _ in range(turns):
                await asyncio.sleep(0)
            following.cancel()
            await asyncio.wait([following])
    assert running.asking.followers.total() == 0
    assert repr(one.bus).startswith("<RedisBus listening, 0 tasks watched")
    assert repr(two.bus).startswith("<RedisBus listening, 0 tasks watched")
