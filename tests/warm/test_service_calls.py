"""The calls of one replica: from the request to the stored outcome, on the embedded store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from gateway.protocol.errors import IllegalMove, Refusal
from gateway.service.feed import News
from gateway.store.port import Bounds, Exists, Full
from gateway.tasks.model import TaskKey
from gateway.tasks.policy import Policy
from tests.warm.service_world import (
    ALICE,
    BOB,
    Replica,
    ScriptedChannel,
    followed,
    memory,
    next_news,
    order,
    question_on,
    read,
)


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    one = Replica(memory(), "r1", bounds=Bounds(5, 8))
    await one.open()
    yield one
    await one.close()


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


def kinds(news: list[News]) -> list[str]:
    return [item.kind for item in news]


async def test_I2_a_task_is_in_the_store_before_its_stream_says_created(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel)
    assert (await replica.record("t")).status == "submitted"
    assert (await next_news(running.feed)).kind == "created"
    await channel.called()
    channel.finish()
    assert kinds(await read(running.feed)) == ["final"]
    assert (await replica.reach("t", "completed")).error is None
    assert replica.gauge() == {}


async def test_the_call_goes_out_under_an_id_and_a_progress_token_of_the_gateways_own(
    replica: Replica, channel: ScriptedChannel
) -> None:
    await replica.begin("t", channel, request_id=b"77")
    await channel.called()
    assert channel.request["id"] != 77
    assert channel.request["params"]["_meta"]["progressToken"] == channel.request["id"]
    params = {"progressToken": channel.request["id"], "progress": 1, "total": 4}
    channel.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    channel.finish()
    assert (await replica.reach("t", "completed")).status_message == "1 of 4"


async def test_I3_a_second_creation_of_an_id_runs_nothing(
    replica: Replica, channel: ScriptedChannel
) -> None:
    other = ScriptedChannel()
    first, second = await asyncio.gather(
        replica.service.begin(order("t", channel, ALICE, "s1", b"1", Policy())),
        replica.service.begin(order("t", other, ALICE, "s2", b"1", Policy())),
    )
    assert [type(found) is Exists for found in (first, second)].count(True) == 1
    await (other if isinstance(first, Exists) else channel).called()
    assert channel.calls + other.calls == 1


async def test_I10_the_bounds_of_a_scope_hold_for_that_scope_alone(
    replica: Replica, channel: ScriptedChannel
) -> None:
    channels = [ScriptedChannel() for _ in range(5)]
    for number, one in enumerate(channels):
        await replica.begin(f"t{number}", one, request_id=b"%d" % number)
    full = await replica.service.begin(order("more", channel, ALICE, "s1", b"9", Policy()))
    assert full == Full("active", 5)
    await replica.begin("more", channel, scope=BOB)
    for one in channels:
        await one.called()
        one.finish()
    for number in range(5):
        await replica.reach(f"t{number}", "completed")
    for number in range(5, 8):
        one = ScriptedChannel()
        await replica.begin(f"t{number}", one, request_id=b"%d" % number)
    full = await replica.service.begin(order("last", channel, ALICE, "s1", b"9", Policy()))
    assert full == Full("stored", 8)


async def test_I10_a_result_that_is_too_large_fails_the_task(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    channel.finish({"content": "x" * 100_001})
    last = (await read(running.feed))[-1]
    record = await replica.reach("t", "failed")
    assert record.error is not None
    assert "result_bytes allows 100000" in record.error
    assert last.outcome is not None
    assert last.outcome.error == record.error


async def test_I5_a_call_that_takes_too_long_fails_and_the_upstream_is_told(
    replica: Replica, channel: ScriptedChannel
) -> None:
    await replica.begin("t", channel, policy=Policy(timeout=20))
    told = await channel.heard()
    assert told["method"] == "notifications/cancelled"
    assert told["params"]["requestId"] == channel.request["id"]
    record = await replica.reach("t", "failed")
    assert record.error == "Timed out: the tool did not answer within 0.02 s"
    assert channel.left.is_set()


async def test_I5_a_lost_upstream_fails_the_task_in_words(
    replica: Replica, channel: ScriptedChannel
) -> None:
    await replica.begin("t", channel)
    await channel.called()
    channel.lose("the cable was cut")
    assert (await replica.reach("t", "failed")).error == "Upstream lost: the cable was cut"


async def test_I3_a_call_that_may_run_twice_is_made_again_and_its_open_questions_are_taken_back(
    replica: Replica, channel: ScriptedChannel
) -> None:
    channel.next = ScriptedChannel()
    running = await replica.begin("t", channel, policy=Policy(on_loss="retry"))
    await channel.called()
    channel.ask("of the first attempt")
    asked = await question_on(running.feed)
    channel.lose()
    withdrawn = json.loads((await next_news(running.feed)).message)
    assert withdrawn["params"]["requestId"] == asked["id"]
    await replica.clock.slept_on()
    assert (await replica.record("t")).status == "working"
    assert running.asking.unanswered() == []
    replica.clock.move(1)
    await channel.next.called()
    channel.next.finish()
    await replica.reach("t", "completed")
    assert (channel.calls, channel.next.calls) == (1, 1)


async def test_I3_a_call_that_may_run_once_is_not_made_again(
    replica: Replica, channel: ScriptedChannel
) -> None:
    channel.next = ScriptedChannel()
    await replica.begin("t", channel)
    await channel.called()
    channel.lose()
    await replica.reach("t", "failed")
    assert (channel.calls, channel.next.calls) == (1, 0)


async def test_max_concurrent_lets_the_next_call_begin_when_one_ends(
    replica: Replica, channel: ScriptedChannel
) -> None:
    policy = Policy(pattern="one_*", max_concurrent=1)
    second, third = ScriptedChannel(), ScriptedChannel()
    await replica.begin("t1", channel, request_id=b"1", policy=policy)
    await channel.called()
    await replica.begin("t2", second, request_id=b"2", policy=policy)
    await replica.begin("t3", third, request_id=b"3", policy=policy)
    assert (await replica.record("t2")).status == "submitted"
    # A cancelled one that waits for its turn takes no turn, and the upstream never hears of it.
    await replica.service.cancel(TaskKey(ALICE, "t2"), "")
    channel.finish()
    await third.called()
    assert (second.calls, second.sent) == (0, [])
    third.finish()
    await replica.reach("t3", "completed")


async def test_I5_a_call_that_never_gets_its_turn_fails(replica: Replica, channel: ScriptedChannel) -> None:
    second = ScriptedChannel()
    await replica.begin("t1", channel, policy=Policy(pattern="one_*", max_concurrent=1))
    await channel.called()
    policy = Policy(pattern="one_*", max_concurrent=1, timeout=20)
    await replica.begin("t2", second, request_id=b"2", policy=policy)
    assert (await replica.reach("t2", "failed")).error is not None
    assert second.calls == 0


@pytest.mark.parametrize("answered", [True, False])
async def test_a_question_moves_the_task_and_its_answer_goes_upstream_under_the_upstreams_id(
    replica: Replica, channel: ScriptedChannel, answered: bool
) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    channel.ask("their-id")
    asked = await question_on(running.feed)
    assert (await replica.record("t")).status == "input_required"
    if answered:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}
        assert await replica.service.answer(ALICE, asked["id"], json.dumps(answer).encode())
        assert await channel.heard() == {**answer, "id": "their-id"}
        assert not await replica.service.answer(ALICE, asked["id"], json.dumps(answer).encode())
        assert (await replica.record("t")).status == "working"
    channel.finish()
    await replica.reach("t", "completed")
    assert not await replica.service.answer(ALICE, asked["id"], b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert replica.gauge() == {}


async def test_I7_somebody_elses_question_cannot_be_answered(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    channel.ask()
    asked = await question_on(running.feed)
    assert not await replica.service.answer(BOB, asked["id"], b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert not channel.sent


async def test_I10_more_questions_than_may_wait_are_refused_to_the_upstream(
    replica: Replica, channel: ScriptedChannel
) -> None:
    await replica.begin("t", channel)
    await channel.called()
    for number in range(5):
        channel.ask(f"q{number}")
    refused = await channel.heard()
    assert refused["id"] == "q4"
    assert "pending_requests" in refused["error"]["message"]
    assert len((await replica.record("t")).pending) == 4


async def test_a_question_that_the_upstream_takes_back_no_longer_waits(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    channel.ask("q1")
    asked = await question_on(running.feed)
    withdrawal = {"requestId": "q1", "reason": "never mind"}
    channel.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": withdrawal})
    told = json.loads((await next_news(running.feed)).message)
    assert told["params"] == {"requestId": asked["id"], "reason": "never mind"}
    assert (await replica.record("t")).status == "working"


async def test_a_ping_of_the_upstream_is_answered_by_the_gateway(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    channel.say({"jsonrpc": "2.0", "id": 9, "method": "ping"})
    assert await channel.heard() == {"jsonrpc": "2.0", "id": 9, "result": {}}
    channel.finish()
    assert kinds(await read(running.feed)) == ["created", "final"]


async def test_a_stream_that_is_not_read_ends_and_the_task_goes_on(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    for number in range(30):
        channel.log(f"{number}" + "x" * 1_000)
    channel.finish()
    await replica.reach("t", "completed")
    told = kinds(await read(running.feed))
    assert told[0] == "created"
    assert "final" not in told
    assert len(told) < 12
    everything = await followed(replica, "t")
    assert len(everything) == 31
    assert everything[-1].kind == "final"


async def test_a_client_that_takes_no_stream_gets_the_response_alone(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel, only_final=True)
    listening = replica.service.listen("s1")
    await channel.called()
    channel.log("unheard")
    channel.ask()
    assert (await question_on(listening))["method"] == "elicitation/create"
    channel.finish()
    assert kinds(await read(running.feed)) == ["final"]


async def test_a_late_cancel_changes_nothing(replica: Replica, channel: ScriptedChannel) -> None:
    await replica.begin("t", channel)
    await channel.called()
    channel.finish()
    before = await replica.reach("t", "completed")
    with pytest.raises(IllegalMove):
        await replica.service.cancel(TaskKey(ALICE, "t"), "too late")
    assert await replica.service.cancel_request(ALICE, "s1", b"1", "too late")
    assert await replica.record("t") == before
    assert not channel.sent


async def test_a_draining_replica_takes_no_new_tasks(replica: Replica, channel: ScriptedChannel) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    draining = asyncio.create_task(replica.service.drain(5))
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as refused:
        await replica.service.begin(order("t2", channel, ALICE, "s1", b"2", Policy()))
    assert refused.value.status == 503
    channel.finish()
    assert await draining
    assert kinds(await read(running.feed)) == ["created", "final"]


async def test_I5_what_still_runs_at_the_stop_ends_with_words_for_everybody(
    replica: Replica, channel: ScriptedChannel
) -> None:
    running = await replica.begin("t", channel)
    await channel.called()
    listening = replica.service.listen("s1")
    assert not await replica.service.drain(0.01)
    await replica.service.close()
    words = "Outcome unknown: the gateway stopped before the task ended"
    assert (await replica.record("t")).error == words
    last = (await read(running.feed))[-1]
    assert last.outcome is not None
    assert last.outcome.error == words
    assert (await channel.heard())["method"] == "notifications/cancelled"
    assert await read(listening) == []
    assert replica.gauge() == {}


async def test_an_upstream_session_is_closed_when_its_last_running_task_has_ended(
    replica: Replica, channel: ScriptedChannel
) -> None:
    second = ScriptedChannel()
    await replica.begin("t1", channel, request_id=b"1")
    await replica.begin("t2", second, request_id=b"2")
    await replica.service.end_session("s1", channel.close)
    await channel.called()
    channel.finish()
    await replica.reach("t1", "completed")
    await second.called()
    assert not channel.closed.is_set()
    second.finish()
    await asyncio.wait_for(channel.closed.wait(), 5)
    idle = ScriptedChannel()
    await replica.service.end_session("s1", idle.close)
    assert idle.closed.is_set()
