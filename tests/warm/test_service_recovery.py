"""Tasks of lost replicas: when, in which way, how often they are taken; who may speak for one (I3, I5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import msgspec
import pytest

from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.service.gone import TaskGone
from gateway.service.order import Order, Taken
from gateway.service.places import Places
from gateway.service.tenure import Tenure
from gateway.store.port import Claim, Left
from gateway.tasks.model import Task, TaskKey
from gateway.tasks.policy import Policy
from gateway.upstream.port import Placed
from tests.warm.service_world import (
    ALICE,
    WAIT,
    HandClock,
    Json,
    Replica,
    ScriptedChannel,
    memory,
    order,
    read,
)
from tests.wire.raw_upstream import soon

Pair = tuple[Replica, Replica]
AGAIN: Final = Policy(on_loss="retry")


class Resuming(ScriptedChannel):
    """A channel whose call can be taken up, and which says what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.on_place = None
        self.resumed: list[tuple[bytes, str]] = []
        self.refuses = False

    async def resume(self, ident: bytes, place: str, headers: Headers) -> AsyncGenerator[bytes, None]:
        self.resumed.append((ident, place))
        if self.refuses:
            raise UpstreamLost("it has forgotten everything", status=400)
        async for word in self.exchange(b'{"id":%b}' % ident, headers):
            yield word

    def number(self, place: str, data: str) -> None:
        """Send a log message in a numbered event."""
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": data}}
        self._words.put_nowait(Placed(json.dumps(message).encode(), place))


class Rebuilt:
    """What a session room would make of what is left, and what it was given."""

    def __init__(self, channel: Resuming, policy: Policy) -> None:
        self.channel = channel
        self.policy = policy
        self.left: list[Left] = []

    async def __call__(self, task: Task, left: Left) -> Order | str:
        self.left.append(left)
        made = order(task.key.task_id, self.channel, ALICE, task.session, task.request_id, self.policy)
        made.has_course, made.has_request = True, bool(left.request)
        made.may_repeat = bool(left.request)
        made.message = left.request
        if task.started_at is not None:
            made.taken = Taken(ident=b'"old"', wants_progress=False, place=left.place, answers=left.answers)
        return made


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
def channel() -> Resuming:
    return Resuming()


async def begun(replica: Replica, channel: ScriptedChannel, policy: Policy | None = None) -> None:
    """Begin a task that leaves a course, and a request that may be sent again."""
    made = order("t", channel, ALICE, "s1", b"1", policy or Policy())
    request = made.message if policy is not None else b""
    made.new = msgspec.structs.replace(made.new, course=b"c", request=request, request_kept=True)
    await replica.service.begin(made)
    await channel.called()


async def taken_up(replica: Replica) -> None:
    """Let a replica look after leases until it runs a task, which is surely its own then."""
    async with asyncio.timeout(WAIT):
        while not replica.service.running:
            await asyncio.sleep(0.005)
            await replica.look_after()
            # The clock stands still meanwhile.
            if coming := list(replica.service.coming.values()):
                await asyncio.wait(coming)


def taken(replica: Replica) -> dict[str, float]:
    """Return how many tasks a replica has taken over, by way."""
    return {
        sample.labels["way"]: sample.value
        for family in replica.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "mcp_gateway_tasks_taken_over_total" and sample.value
    }


async def test_I5_nothing_is_taken_before_a_lease_of_contact_with_the_store(
    pair: Pair, channel: Resuming
) -> None:
    one, two = pair
    await begun(one, channel)
    await one.die()
    await asyncio.sleep(0.1)
    for _ in range(4):
        await two.leases.tick()
    assert (await two.record("t")).status == "working"
    # A process that stood still for long has to find its feet too.
    two.clock.move(100)
    await two.leases.tick()
    assert (await two.record("t")).status == "working"
    for _ in range(2):
        two.clock.move(1.1)
        await two.leases.tick()
    await two.reach("t", "failed")


async def test_I3_a_call_is_resumed_behind_the_last_message_that_was_stored(
    pair: Pair, channel: Resuming
) -> None:
    one, two = pair
    await begun(one, channel)
    channel.number("7", "seven")
    channel.number("8", "eight")
    await soon(lambda: one.operations.count("append") == 2)
    await asyncio.sleep(0.01)
    await one.die()
    there = Resuming()
    two.service.rebuild = Rebuilt(there, Policy())
    await taken_up(two)
    await there.called()
    assert there.resumed == [(b'"old"', "8")]
    there.say({"jsonrpc": "2.0", "id": "old", "result": {"content": []}})
    await two.reach("t", "completed")
    await soon(lambda: not two.service.running)
    assert taken(two) == {"resumed": 1}
    assert two.gauge() == {}


async def test_I3_what_cannot_be_resumed_is_made_again_where_it_may_be(
    pair: Pair, channel: Resuming
) -> None:
    one, two = pair
    await begun(one, channel, AGAIN)
    await one.die()
    there = Resuming()
    there.refuses = True
    two.service.rebuild = Rebuilt(there, AGAIN)
    await taken_up(two)
    await there.called()
    assert there.request["id"] != "old"
    assert (await there.heard())["params"]["requestId"] == "old"
    there.finish()
    await two.reach("t", "completed")
    assert taken(two) == {"retried": 1}


async def test_I5_a_call_that_takes_its_replica_down_is_not_made_for_ever(
    pair: Pair, channel: Resuming
) -> None:
    one, two = pair
    await begun(one, channel, AGAIN)
    key, claim = TaskKey(ALICE, "t"), Claim("r1", 1)
    for _ in range(4):
        await one.store.start(key, claim)
    await one.die()
    rebuilt = Rebuilt(Resuming(), AGAIN)
    two.service.rebuild = rebuilt
    async with asyncio.timeout(WAIT):
        while not (await two.record("t")).ended:
            await asyncio.sleep(0.005)
            await two.look_after()
    assert "taken over too often" in ((await two.record("t")).error or "")
    assert not rebuilt.left
    assert taken(two) == {"lost": 1}


async def test_I6_an_answer_to_a_dead_replica_is_brought_by_the_next(pair: Pair, channel: Resuming) -> None:
    one, two = pair
    await begun(one, channel)
    channel.number("1", "one")
    channel.ask("q1")
    asked = (await one.reach("t", "input_required")).pending[0]
    await one.die()
    answer: Json = {"jsonrpc": "2.0", "id": asked.relay_id, "result": {"n": 1}}
    assert await two.service.answer(ALICE, asked.relay_id, json.dumps(answer).encode())
    there = Resuming()
    two.service.rebuild = Rebuilt(there, Policy())
    await taken_up(two)
    assert await there.heard() == {"jsonrpc": "2.0", "id": "q1", "result": {"n": 1}}
    await there.called()
    # Numbered anew or not: it is not asked again.
    there.ask("q1")
    there.ask("q2")
    pending = (await two.reach("t", "input_required")).pending
    assert [one.upstream_id for one in pending] == [b'"q2"']
    there.say({"jsonrpc": "2.0", "id": "old", "result": {"content": []}})
    await two.reach("t", "completed")


async def test_I4_a_replica_that_slept_past_its_lease_sends_nothing_while_another_has_the_task(
    pair: Pair, channel: Resuming
) -> None:
    one, two = pair
    await begun(one, channel)
    channel.number("1", "one")
    (running,) = one.service.running
    there = Resuming()
    two.service.rebuild = Rebuilt(there, Policy())
    await taken_up(two)
    one.clock.move(1)
    channel.say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
    channel.log("late")
    channel.finish({"content": ["late"]})
    await one.leases.tick()
    told = await read(running.feed)
    assert [news.outcome for news in told if news.outcome and news.outcome.result] == []
    assert not channel.sent
    await soon(lambda: not one.service.running)
    await there.called()
    there.say({"jsonrpc": "2.0", "id": "old", "result": {"content": ["right"]}})
    await two.reach("t", "completed")
    assert len(await two.store.read_log(TaskKey(ALICE, "t"), None, 10)) == 1


async def test_I9_who_is_first_back_goes_on_where_nobody_has_taken_the_task(
    pair: Pair, channel: Resuming
) -> None:
    one, _ = pair
    await begun(one, channel)
    one.clock.move(1)
    channel.ask("q")
    (running,) = one.service.running
    assert not running.tenure.holds
    await one.leases.tick()
    assert running.tenure.holds
    await one.reach("t", "input_required")


async def test_a_planned_stop_leaves_what_can_go_on_to_who_is_told(pair: Pair, channel: Resuming) -> None:
    one, two = pair
    there = Resuming()
    two.service.rebuild = Rebuilt(there, Policy())
    one.service.hands_over = True
    await begun(one, channel)
    channel.number("3", "three")
    (running,) = one.service.running
    await soon(lambda: running.can_be_taken_up)
    for _ in range(6):
        await two.look_after()
        await one.leases.tick()
    await one.service.close()
    await there.called()
    assert there.resumed == [(b'"old"', "3")]
    assert not channel.sent
    there.say({"jsonrpc": "2.0", "id": "old", "result": {"content": []}})
    await two.reach("t", "completed")


async def test_a_tenure_is_over_a_little_before_the_lease_and_begins_anew() -> None:
    clock = HandClock()
    tenure = Tenure(clock, clock.monotonic(), 10_000)
    clock.move(9.4)
    assert tenure.holds
    await tenure.sure()
    clock.move(0.2)
    assert not tenure.holds
    waiting = asyncio.create_task(tenure.sure())
    await asyncio.sleep(0)
    assert not waiting.done()
    tenure.renew(clock.monotonic())
    await waiting
    clock.move(10)
    waiting = asyncio.create_task(tenure.sure())
    await asyncio.sleep(0)
    tenure.end()
    with pytest.raises(TaskGone):
        await waiting


async def test_places_are_written_one_at_a_time_and_the_newest_wins(pair: Pair, channel: Resuming) -> None:
    one, _ = pair
    await begun(one, channel)
    key, claim, clock = TaskKey(ALICE, "t"), Claim("r1", 1), HandClock()
    places = Places(one.store, key, claim, clock, lambda work, _: asyncio.create_task(work))
    one.operations.clear()
    for number in range(50):
        places.note(f"{number}")
    await clock.slept_on()
    assert one.operations.count("mark") == 1
    places.note("50")
    assert await places.with_message("51") == "51"
    clock.move(1)
    await asyncio.sleep(0.01)
    assert one.operations.count("mark") == 1
    places.note("52")
    await places.flush()
    assert (await one.store.left(key, claim) or Left()).place == "52"
    places.end()


async def test_places_that_the_store_does_not_take_stop_nothing(pair: Pair, channel: Resuming) -> None:
    one, _ = pair
    await begun(one, channel)
    places = Places(
        one.store,
        TaskKey(ALICE, "gone"),
        Claim("r1", 1),
        HandClock(),
        lambda work, _: asyncio.create_task(work),
    )
    places.note("1")
    await places.flush()
    await places.restart(None)
    places.end()
