"""Two task services on one embedded store: commands, leases, streams of one session (I4, I5, I6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from gateway.tasks.call import orphaned
from gateway.tasks.model import Outcome, TaskKey
from tests.warm.service_world import (
    ALICE,
    BOB,
    WAIT,
    Replica,
    ScriptedChannel,
    memory,
    next_news,
    question_on,
    read,
)
from tests.wire.raw_upstream import soon

Pair = tuple[Replica, Replica]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    url = memory()
    one, two = Replica(url, "r1", lease_ms=80), Replica(url, "r2", lease_ms=80)
    await one.open()
    await two.open()
    yield one, two
    await one.close()
    await two.close()


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


async def take_over(replica: Replica, task_id: str) -> None:
    """Let a replica look after leases until it has ended a task."""
    async with asyncio.timeout(WAIT):
        while not (await replica.record(task_id)).ended:
            await asyncio.sleep(0.005)
            await replica.look_after()


async def until_idle(replica: Replica) -> None:
    """Wait until a replica runs nothing."""
    await soon(lambda: not replica.service.running)


async def test_I6_a_cancel_at_another_replica_stops_the_call(pair: Pair, channel: ScriptedChannel) -> None:
    one, two = pair
    running = await one.begin("t", channel, request_id=b"7")
    await channel.called()
    assert await two.service.cancel_request(ALICE, "s1", b"7", "elsewhere")
    assert (await channel.heard())["method"] == "notifications/cancelled"
    assert [news.kind for news in await read(running.feed) if news.outcome is None] == ["created"]
    assert (await one.record("t")).status == "cancelled"
    await until_idle(one)
    assert one.gauge() == two.gauge() == {}


async def test_I6_a_deletion_at_another_replica_stops_the_call(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    await one.begin("t", channel)
    await channel.called()
    assert await two.service.remove(TaskKey(ALICE, "t"))
    assert (await channel.heard())["method"] == "notifications/cancelled"
    assert await one.store.get(TaskKey(ALICE, "t")) is None
    await until_idle(one)
    assert one.gauge() == two.gauge() == {}


async def test_I7_a_request_id_of_another_scope_or_session_cancels_nothing(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    await one.begin("t", channel, session="", request_id=b"7")
    await channel.called()
    for replica in pair:
        assert not await replica.service.cancel_request(BOB, "", b"7", "")
        assert not await replica.service.cancel_request(ALICE, "other", b"7", "")
        assert not await replica.service.cancel_request(ALICE, "", b'"7"', "")
        assert not await replica.service.remove(TaskKey(BOB, "t"))
    assert (await two.record("t")).status == "working"
    assert not channel.sent


async def test_a_cancel_that_comes_while_the_task_is_made_waits_and_then_cancels(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, _ = pair
    creating = asyncio.create_task(one.begin("t", channel, request_id=b"7"))
    await asyncio.sleep(0)
    assert await one.service.cancel_request(ALICE, "s1", b"7", "early")
    await creating
    assert (await one.record("t")).status == "cancelled"
    await until_idle(one)
    if channel.calls:
        assert (await channel.heard())["method"] == "notifications/cancelled"


@pytest.mark.parametrize("listens_first", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
async def test_I6_a_question_finds_the_sessions_stream_wherever_and_whenever_it_is_opened(
    pair: Pair, channel: ScriptedChannel, elsewhere: bool, listens_first: bool
) -> None:
    one, two = pair
    there = two if elsewhere else one
    running = await one.begin("t", channel)
    await channel.called()
    running.feed.end()
    feed = there.service.listen("s1") if listens_first else None
    channel.ask("q1")
    await one.reach("t", "input_required")
    asked = await question_on(feed if feed is not None else there.service.listen("s1"))
    answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {}}).encode()
    assert await there.service.answer(ALICE, asked["id"], answer)
    assert (await channel.heard())["id"] == "q1"
    assert (await two.record("t")).status == "working"


async def test_I6_a_question_that_was_answered_elsewhere_is_not_offered_again(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    running = await one.begin("t", channel)
    await channel.called()
    running.feed.end()
    feed = two.service.listen("s1")
    for number in range(9):
        channel.ask(f"q{number}")
        asked = await question_on(feed)
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"n": number}}).encode()
        assert await two.service.answer(ALICE, asked["id"], answer)
        assert (await channel.heard(number + 1)).get("result") == {"n": number}
    assert running.asking.unanswered() == []
    channel.finish()
    await two.reach("t", "completed")
    await until_idle(one)
    assert one.gauge() == {}


async def test_a_newer_stream_of_the_session_ends_the_older_and_gets_the_questions(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, _ = pair
    running = await one.begin("t", channel)
    await channel.called()
    running.feed.end()
    channel.ask()
    await one.reach("t", "input_required")
    older = one.service.listen("s1")
    newer = one.service.listen("s1")
    assert (await question_on(newer))["method"] == "elicitation/create"
    assert not older.open
    one.service.listeners.leave("s1", older)
    assert one.service.listeners.listens("s1")
    one.service.listeners.leave("s1", newer)
    assert not one.service.listeners.listens("s1")


async def test_a_question_is_not_offered_to_a_stream_of_another_session(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    running = await one.begin("t", channel)
    await channel.called()
    running.feed.end()
    strangers = [one.service.listen("s2"), two.service.listen("s3")]
    own = two.service.listen("s1")
    channel.ask()
    await question_on(own)
    for feed in strangers:
        feed.end()
        assert await read(feed) == []


async def test_I5_the_tasks_of_a_dead_replica_end_with_words(pair: Pair, channel: ScriptedChannel) -> None:
    one, two = pair
    await one.begin("t", channel)
    await channel.called()
    await one.die()
    await take_over(two, "t")
    record = await two.record("t")
    assert (record.status, record.error) == ("failed", orphaned().error)
    assert [event.task_id for event in two.ended] == ["t"]
    await two.leases.tick()
    assert [event.task_id for event in two.ended] == ["t"]


async def test_I4_a_replica_that_slept_past_its_lease_cannot_change_what_was_stored(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    running = await one.begin("t", channel)
    await channel.called()
    await take_over(two, "t")
    stored = await two.record("t")
    channel.finish({"content": ["too late"]})
    last = (await read(running.feed))[-1]
    await until_idle(one)
    assert await two.record("t") == stored
    assert last.kind == "final"
    assert last.outcome is not None
    assert last.outcome.error == stored.error
    assert one.gauge() == {}


async def test_I4_a_replica_that_slept_past_its_lease_stops_its_call_at_the_next_tick(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    running = await one.begin("t", channel)
    await channel.called()
    await take_over(two, "t")
    await one.leases.tick()
    last = (await read(running.feed))[-1]
    assert last.outcome is not None
    assert last.outcome.error == orphaned().error
    await until_idle(one)
    assert not channel.sent
    assert one.gauge() == {}


async def test_a_lease_that_is_renewed_is_not_taken(pair: Pair, channel: ScriptedChannel) -> None:
    one, two = pair
    await one.begin("t", channel)
    await channel.called()
    for _ in range(20):
        await one.leases.tick()
        await asyncio.sleep(0.005)
        await two.look_after()
    assert (await two.record("t")).status == "working"
    channel.finish()
    await one.reach("t", "completed")


async def test_the_leases_are_renewed_three_times_within_one(pair: Pair, channel: ScriptedChannel) -> None:
    one, two = pair
    await one.begin("t", channel)
    await channel.called()
    loop = asyncio.create_task(one.leases.run())
    for _ in range(12):
        await one.clock.slept_on()
        await asyncio.sleep(0.01)
        await two.look_after()
        one.clock.move(0.080 / 3)
    assert (await two.record("t")).status == "working"
    loop.cancel()
    await asyncio.wait([loop])


async def test_both_replicas_that_look_at_a_dead_ones_tasks_end_each_once(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    dead = Replica(one.url, "r3", lease_ms=1)
    await dead.open()
    for number in range(6):
        one_channel = ScriptedChannel()
        await dead.begin(f"t{number}", one_channel, request_id=b"%d" % number)
        await one_channel.called()
    await dead.die()
    async with asyncio.timeout(WAIT):
        while len(one.ended) + len(two.ended) < 6:
            await asyncio.sleep(0.005)
            await asyncio.gather(one.look_after(), two.look_after())
    assert sorted(event.task_id for event in one.ended + two.ended) == [f"t{n}" for n in range(6)]


async def test_a_session_that_ended_elsewhere_ends_its_stream_and_closes_upstream_with_its_last_task(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, two = pair
    forgotten: list[str] = []
    one.service.on_session_ended = forgotten.append
    await one.begin("t", channel)
    await channel.called()
    feed = one.service.listen("s1")
    assert await two.service.runs_for(ALICE, "s1")
    assert not two.service.runs_here("s1")
    await two.service.tell_session_ended("s1")
    assert await read(feed) == []
    assert forgotten == ["s1"]
    assert not channel.closed.is_set()
    channel.finish()
    await asyncio.wait_for(channel.closed.wait(), WAIT)
    assert not await two.service.runs_for(ALICE, "s1")


async def test_a_task_that_vanished_from_the_store_is_noticed_and_told(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, _ = pair
    running = await one.begin("t", channel)
    await channel.called()
    await one.store.remove(TaskKey(ALICE, "t"))
    await one.leases.tick()
    assert (await channel.heard())["method"] == "notifications/cancelled"
    last = (await read(running.feed))[-1]
    assert last.outcome is not None
    assert last.outcome.error is not None
    assert one.gauge() == {}


async def test_the_outcome_of_a_task_that_vanished_still_reaches_who_waits(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, _ = pair
    running = await one.begin("t", channel)
    await channel.called()
    await one.store.remove(TaskKey(ALICE, "t"))
    channel.finish({"content": ["in hand"]})
    last = (await read(running.feed))[-1]
    assert last.outcome == Outcome(status="completed", result=b'{"content": ["in hand"]}')
    await until_idle(one)
    assert one.gauge() == {}


async def test_the_gauge_never_counts_an_ended_task(pair: Pair) -> None:
    one, two = pair
    for number in range(30):
        channel = ScriptedChannel()
        await one.begin(f"t{number}", channel, request_id=b"%d" % number)
        await channel.called()
        channel.finish()
        ending = (two if number % 2 else one).service
        key = TaskKey(ALICE, f"t{number}")
        if number % 3:
            await ending.remove(key)
        else:
            await ending.cancel_request(ALICE, "s1", b"%d" % number, "")
    await until_idle(one)
    assert one.gauge() == two.gauge() == {}


async def test_the_created_news_comes_first_even_where_a_question_waits_already(
    pair: Pair, channel: ScriptedChannel
) -> None:
    one, _ = pair
    channel.ask()
    running = await one.begin("t", channel)
    await one.reach("t", "input_required")
    assert (await next_news(running.feed)).kind == "created"
    assert (await question_on(running.feed))["method"] == "elicitation/create"
