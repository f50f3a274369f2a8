"""A real Redis that hangs, dies or forgets at each step of a call (I3, I5, I9)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from gateway.protocol.errors import StoreAway
from gateway.service.service import TaskService
from gateway.tasks.model import TaskKey
from gateway.tasks.policy import Policy
from tests.redis_servers import RedisServer, find_servers, start
from tests.warm.service_world import (
    ALICE,
    WAIT,
    Replica,
    ScriptedChannel,
    followed,
    order,
    question_on,
    read,
)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    found = find_servers()
    if not found:
        pytest.skip("no Redis server here")
    one = start(found.get("valkey") or next(iter(found.values())))
    yield one
    one.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a store that has hung again soon."""
    monkeypatch.setattr("gateway.store.lanes._HUNG_SECONDS", 0.05)


@pytest.fixture
async def replica(server: RedisServer) -> AsyncIterator[Replica]:
    server.wake()
    one = Replica(server.url, "r1", timeout=0.15)
    await one.open()
    yield one
    server.wake()
    await back(one)
    await one.close()


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


async def back(replica: Replica) -> None:
    """Wait until the store answers again."""
    async with asyncio.timeout(WAIT):
        while True:
            try:
                await replica.store.ping()
            except StoreAway:
                await asyncio.sleep(0.02)
            else:
                return


async def stored(replica: Replica, task_id: str, status: str) -> None:
    """Let the replica's clock run until the store has the end of a task."""
    await back(replica)
    async with asyncio.timeout(WAIT):
        while (await replica.record(task_id)).status != status:
            replica.clock.move(5)
            await asyncio.sleep(0.01)


async def test_I9_an_outcome_is_told_at_once_and_stored_when_the_store_is_back(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("outcome", channel)
    await channel.called()
    server.hang()
    channel.finish({"content": ["kept"]})
    last = (await read(running.feed))[-1]
    assert last.outcome is not None
    assert last.outcome.result == b'{"content": ["kept"]}'
    await replica.clock.slept_on()
    server.wake()
    await stored(replica, "outcome", "completed")
    found = await replica.store.outcome(TaskKey(ALICE, "outcome"))
    assert found is not None
    assert found[1] is not None
    assert found[1].result == b'{"content": ["kept"]}'


async def test_an_end_whose_recording_was_not_confirmed_is_told_to_operators_once(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    first = ScriptedChannel()
    await replica.begin("script", first, request_id=b"0")
    await first.called()
    first.finish()
    await stored(replica, "script", "completed")
    await replica.begin("told", channel)
    await channel.called()
    server.hang()
    channel.finish()
    await replica.clock.slept_on()
    server.wake()
    await stored(replica, "told", "completed")
    async with asyncio.timeout(WAIT):
        while replica.service.running:
            replica.clock.move(5)
            await asyncio.sleep(0.01)
    assert [event.task_id for event in replica.ended] == ["script", "told"]
    assert replica.gauge() == {}


async def test_I9_messages_reach_the_first_stream_without_the_store(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("messages", channel)
    await channel.called()
    server.hang()
    channel.log("one")
    channel.log("two")
    channel.finish()
    told = [json.loads(news.message)["params"]["data"] for news in await read(running.feed) if news.message]
    assert told == ["one", "two"]


async def test_I9_a_call_whose_start_could_not_be_recorded_runs_all_the_same(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    first = ScriptedChannel()
    policy = Policy(pattern="one_*", max_concurrent=1)
    await replica.begin("before", first, request_id=b"0", policy=policy)
    await first.called()
    await replica.begin("start", channel, policy=policy)
    server.hang()
    first.finish()
    await replica.clock.slept_on()
    # The turn is given on only when the first outcome is stored or told; both must not need the store.
    server.wake()
    await stored(replica, "before", "completed")
    await channel.called()
    channel.finish()
    await stored(replica, "start", "completed")


async def test_I9_a_cancel_stops_the_call_at_once_and_is_stored_later(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    await replica.begin("cancel", channel, request_id=b"7")
    await channel.called()
    server.hang()
    assert await replica.service.cancel_request(ALICE, "s1", b"7", "now")
    assert (await channel.heard())["method"] == "notifications/cancelled"
    server.wake()
    await stored(replica, "cancel", "cancelled")
    assert channel.calls == 1


async def test_I5_a_time_limit_is_told_upstream_at_once_and_stored_later(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    await replica.begin("limit", channel, policy=Policy(timeout=50))
    await channel.called()
    server.hang()
    assert (await channel.heard())["method"] == "notifications/cancelled"
    server.wake()
    await stored(replica, "limit", "failed")


async def test_a_question_that_cannot_be_kept_is_refused_in_words_and_leaves_no_trace(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("question", channel)
    await channel.called()
    channel.ask("q0")
    asked = await question_on(running.feed)
    answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {}}).encode()
    await replica.service.answer(ALICE, asked["id"], answer)
    server.hang()
    channel.ask("q1")
    # It is patient, but not for as long as its lease.
    for seconds in (0.25, 0.5, 1, 2, 4, 8):
        await replica.clock.slept_on()
        replica.clock.move(seconds)
    refused = await channel.heard(2)
    assert refused["id"] == "q1"
    assert "store" in refused["error"]["message"]
    server.wake()
    await back(replica)
    channel.log("on we go")
    async with asyncio.timeout(WAIT):
        while (await replica.record("question")).status != "working":
            replica.clock.move(5)
            await replica.leases.tick()
            await asyncio.sleep(0.01)
    channel.finish()
    await stored(replica, "question", "completed")


async def test_an_answer_that_cannot_be_taken_can_be_sent_again(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("answer", channel)
    await channel.called()
    for number in range(2):
        channel.ask(f"q{number}")
        asked = await question_on(running.feed)
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"n": number}}).encode()
        if number:
            # By now the server has the script, and may carry it out when it wakes.
            server.hang()
            with pytest.raises(StoreAway):
                await replica.service.answer(ALICE, asked["id"], answer)
            server.wake()
            await back(replica)
        await replica.service.answer(ALICE, asked["id"], answer)
        assert (await channel.heard(number + 1))["result"] == {"n": number}
    assert (await replica.record("answer")).status == "working"
    assert len(channel.sent) == 2


async def test_I3_a_creation_that_was_refused_is_taken_back(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    await back(replica)
    server.hang()
    with pytest.raises(StoreAway):
        await replica.begin("ghost", channel)
    server.wake()
    await back(replica)
    key = TaskKey(ALICE, "ghost")
    async with asyncio.timeout(WAIT):
        while await replica.store.get(key) is not None:
            replica.clock.move(5)
            await asyncio.sleep(0.01)
    await replica.begin("ghost", channel)
    await channel.called()
    channel.finish()
    await stored(replica, "ghost", "completed")
    assert channel.calls == 1


Ask = Callable[[TaskService], Awaitable[object]]
KEY = TaskKey(ALICE, "asked")
ASKS: dict[str, Ask] = {
    "get": lambda service: service.get(KEY),
    "outcome": lambda service: service.outcome(KEY),
    "page": lambda service: service.page(ALICE, None, 10),
    "cancel": lambda service: service.cancel(KEY, ""),
    "remove": lambda service: service.remove(KEY),
    "begin": lambda service: service.begin(order("new", ScriptedChannel(), ALICE, "s1", b"1", Policy())),
    "cancel_request": lambda service: service.cancel_request(ALICE, "s9", b"1", ""),
}


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("how", ["hangs", "is dead"])
async def test_I9_what_needs_the_store_fails_clearly_and_soon(
    server: RedisServer, name: str, how: str
) -> None:
    server.wake()
    replica = Replica(server.url, "r2", timeout=0.15)
    await back(replica)
    (server.hang if how == "hangs" else server.stop)()
    try:
        async with asyncio.timeout(2):
            with pytest.raises(StoreAway):
                await ASKS[name](replica.service)
    finally:
        server.wake() if how == "hangs" else server.start()
    await replica.close()


async def test_a_reader_of_the_log_outlives_a_store_that_hangs(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("log", channel)
    await channel.called()
    running.feed.end()
    following = asyncio.create_task(followed(replica, "log"))
    server.hang()
    with pytest.raises(StoreAway):
        await replica.store.ping()
    server.wake()
    await back(replica)
    channel.log("after")
    channel.finish()
    await stored(replica, "log", "completed")
    assert [news.kind for news in await following] == ["message", "final"]


async def test_I10_the_patience_with_a_store_that_stays_away_is_bounded(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("patience", channel)
    await channel.called()
    server.hang()
    channel.finish()
    assert (await read(running.feed))[-1].kind == "final"
    async with asyncio.timeout(WAIT):
        while replica.service.running:
            replica.clock.move(100)
            await asyncio.sleep(0.01)
    assert replica.gauge() == {}


async def test_design_5_tasks_that_the_store_forgot_stop_and_say_so(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("flushed", channel)
    await channel.called()
    server.stop()
    server.start()
    await back(replica)
    await replica.leases.tick()
    assert (await channel.heard())["method"] == "notifications/cancelled"
    last = (await read(running.feed))[-1]
    assert last.outcome is not None
    assert last.outcome.error == "The task was lost: the store no longer has it"
    assert replica.gauge() == {}


async def test_I9_a_question_waits_for_a_store_that_comes_back(
    replica: Replica, channel: ScriptedChannel, server: RedisServer
) -> None:
    running = await replica.begin("asks", channel)
    await channel.called()
    server.hang()
    channel.ask()
    await replica.clock.slept_on()
    server.wake()
    await back(replica)
    # Nothing was answered in the client's place meanwhile.
    assert channel.sent == []
    replica.clock.move(5)
    asked = await question_on(running.feed)
    assert (await replica.record("asks")).status == "input_required"
    assert asked["method"] == "elicitation/create"
    channel.finish()
