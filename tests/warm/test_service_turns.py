"""Turns of several services on one store: bounds, order, refusals, and what happens when one dies (I5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.protocol.errors import StoreAway
from gateway.service.turns import Crowded
from gateway.store.port import Asker, Line
from gateway.tasks.model import Scope, TaskKey
from gateway.tasks.policy import Policy
from tests.redis_servers import RedisServer, find_servers
from tests.redis_servers import start as start_server
from tests.warm.service_world import ALICE, BOB, WAIT, Replica, ScriptedChannel, memory, order

PAUSE = 0.005
CAROL = Scope("reports", "p-carol")
TWO = Policy(pattern="one_*", max_concurrent=2)
ONE = Policy(pattern="one_*", max_concurrent=1)
LINE = Line("reports", "one_*", 1)


class Callers:
    """Tasks on several replicas, and in which order their calls came to the upstream."""

    def __init__(self) -> None:
        self.channels: dict[str, ScriptedChannel] = {}
        self.order: list[str] = []
        self.now = set[str]()
        self.most = 0
        self._changed = asyncio.Condition()
        self._watching: list[asyncio.Task[None]] = []

    async def begin(self, replica: Replica, task_id: str, scope: Scope, policy: Policy) -> None:
        channel = self.channels[task_id] = ScriptedChannel()
        await replica.begin(
            task_id, channel, scope=scope, request_id=b"%d" % len(self.channels), policy=policy
        )
        self._watching.append(asyncio.create_task(self._watch(task_id, channel)))

    async def _watch(self, task_id: str, channel: ScriptedChannel) -> None:
        await channel.called()
        async with self._changed:
            self.order.append(task_id)
            self.now.add(task_id)
            self.most = max(self.most, len(self.now))
            self._changed.notify_all()

    async def called(self, number: int) -> None:
        """Wait until so many calls have come in all."""
        async with asyncio.timeout(WAIT), self._changed:
            await self._changed.wait_for(lambda: len(self.order) >= number)

    def finish(self, task_id: str) -> None:
        """Let a call end."""
        self.now.discard(task_id)
        self.channels[task_id].finish()

    async def close(self) -> None:
        for watching in self._watching:
            watching.cancel()
        if self._watching:
            await asyncio.wait(self._watching)


@pytest.fixture
async def callers() -> AsyncIterator[Callers]:
    callers = Callers()
    yield callers
    await callers.close()


@pytest.fixture
async def replicas() -> AsyncIterator[list[Replica]]:
    url = memory()
    made = [Replica(url, name) for name in ("r1", "r2")]
    for replica in made:
        await replica.open()
    yield made
    for replica in made:
        await replica.close()


def turns(replica: Replica) -> dict[str, float]:
    """Return the gauge of turns, by state."""
    return {
        sample.labels["state"]: sample.value
        for family in replica.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "mcp_gateway_turns"
    }


async def until_turns(replica: Replica, held: int, waiting: int) -> None:
    """Wait until a replica says that it has so many turns, and that so many of its calls wait."""
    wanted = {"held": held, "waiting": waiting}
    async with asyncio.timeout(WAIT):
        while turns(replica) != wanted:  # noqa: ASYNC110 a gauge tells nobody when it changes
            await asyncio.sleep(PAUSE)


async def test_max_concurrent_holds_on_two_replicas_together_and_scopes_take_turns(
    replicas: list[Replica], callers: Callers
) -> None:
    names = [(f"{scope.tag[2]}{n}", scope) for scope in (ALICE, BOB, CAROL) for n in range(4)]
    for place, (name, scope) in enumerate(names):
        await callers.begin(replicas[place % 2], name, scope, TWO)
    for done in range(len(names)):
        await callers.called(min(done + 2, len(names)))
        callers.finish(callers.order[done])
    assert callers.most == 2
    # The first two found nobody waiting.
    assert callers.order[:2] == ["a0", "a1"]
    rounds = [{name[0] for name in callers.order[start : start + 3]} for start in (2, 5)]
    assert rounds == [{"a", "b", "c"}] * 2
    for scope in "abc":
        own = [name for name in callers.order if name[0] == scope]
        assert own == sorted(own)
    for replica in replicas:
        await until_turns(replica, 0, 0)


async def test_a_scope_has_no_more_than_its_share_at_a_time(
    replicas: list[Replica], callers: Callers
) -> None:
    policy = Policy(pattern="one_*", max_concurrent=3, max_concurrent_per_scope=1)
    await callers.begin(replicas[0], "a0", ALICE, policy)
    await callers.begin(replicas[1], "a1", ALICE, policy)
    await callers.begin(replicas[1], "b0", BOB, policy)
    await callers.called(2)
    assert callers.order == ["a0", "b0"]
    callers.finish("a0")
    await callers.called(3)
    assert callers.order[2] == "a1"
    for name in ("b0", "a1"):
        callers.finish(name)


async def test_I10_a_full_queue_refuses_and_says_when_to_come_back(replicas: list[Replica]) -> None:
    policy = Policy(pattern="one_*", max_concurrent=1, max_queued=1, poll_interval=500)
    first = ScriptedChannel()
    await replicas[0].begin("t0", first, request_id=b"0", policy=policy)
    await replicas[1].begin("t1", ScriptedChannel(), request_id=b"1", policy=policy)
    refused = await replicas[1].service.begin(order("t2", ScriptedChannel(), ALICE, "s1", b"2", policy))
    assert refused == Crowded(1, 0.5)
    assert await replicas[1].store.get(TaskKey(ALICE, "t2")) is None
    await first.called()
    replicas[0].clock.move(8)
    first.finish()
    await replicas[1].reach("t1", "working")
    await replicas[0].begin("t3", ScriptedChannel(), request_id=b"3", policy=policy)
    refused = await replicas[0].service.begin(order("t4", ScriptedChannel(), ALICE, "s1", b"4", policy))
    assert refused == Crowded(1, 8.0)


async def test_a_creation_that_is_refused_gives_its_turn_back(replicas: list[Replica]) -> None:
    await replicas[0].begin("t1", ScriptedChannel(), policy=TWO)
    again = await replicas[1].service.begin(order("t1", ScriptedChannel(), ALICE, "s1", b"1", TWO))
    assert not isinstance(again, Crowded)
    await until_turns(replicas[1], 0, 0)
    second = ScriptedChannel()
    await replicas[1].begin("t2", second, request_id=b"2", policy=TWO)
    await second.called()


@pytest.mark.parametrize("by", ["cancel", "remove"])
async def test_a_task_that_is_taken_away_while_it_waits_frees_its_place(
    replicas: list[Replica], callers: Callers, by: str
) -> None:
    one, other = replicas
    for number, replica in enumerate((one, other, other)):
        await callers.begin(replica, f"a{number}", ALICE, ONE)
    await callers.called(1)
    # Asked for where it does not run.
    if by == "cancel":
        await one.service.cancel(TaskKey(ALICE, "a1"), "")
    else:
        await one.service.remove(TaskKey(ALICE, "a1"))
    await until_turns(other, 0, 1)
    callers.finish("a0")
    await callers.called(2)
    assert callers.order == ["a0", "a2"]
    callers.finish("a2")


async def test_I5_the_turns_of_a_dead_replica_are_given_on_within_its_lease(callers: Callers) -> None:
    url = memory()
    dying, living = Replica(url, "r1", lease_ms=300), Replica(url, "r2", lease_ms=300)
    await dying.open()
    await living.open()
    await callers.begin(dying, "a0", ALICE, ONE)
    await callers.called(1)
    await callers.begin(dying, "a1", ALICE, ONE)
    await callers.begin(living, "b0", BOB, ONE)
    await callers.begin(living, "b1", BOB, ONE)
    # As a kill does: not a word to the store.
    dying.service.turns.asker = Asker("nobody", 300)
    await dying.die()
    async with asyncio.timeout(WAIT):
        while "b0" not in callers.order:
            # The store's clock is the real one; this replica looks three times per lease.
            living.clock.move(0.1)
            await living.leases.tick()
            await asyncio.sleep(0.02)
    callers.finish("b0")
    await callers.called(3)
    assert callers.order == ["a0", "b0", "b1"]
    callers.finish("b1")
    await living.close()


async def test_a_bell_that_was_not_heard_is_made_up_for_by_a_look(
    replicas: list[Replica], callers: Callers
) -> None:
    one, other = replicas
    await callers.begin(one, "a0", ALICE, ONE)
    await callers.begin(other, "a1", ALICE, ONE)
    await callers.called(1)
    await other.bus.close()
    callers.finish("a0")
    await one.reach("a0", "completed")
    await until_turns(one, 0, 0)
    async with asyncio.timeout(WAIT):
        while "a1" not in callers.order:
            other.clock.move(10)
            await asyncio.sleep(0.01)
    callers.finish("a1")


async def test_a_replica_that_stops_gives_back_all_at_once(
    replicas: list[Replica], callers: Callers
) -> None:
    one, other = replicas
    await callers.begin(one, "a0", ALICE, ONE)
    await callers.begin(one, "a1", ALICE, ONE)
    await callers.begin(other, "b0", BOB, ONE)
    await callers.called(1)
    await one.close()
    await callers.called(2)
    assert callers.order == ["a0", "b0"]
    callers.finish("b0")


async def test_a_call_that_goes_on_is_counted_and_waits_for_nobody(
    replicas: list[Replica], callers: Callers
) -> None:
    one, other = replicas
    await callers.begin(one, "a0", ALICE, ONE)
    await callers.called(1)
    resumed = order("r", ScriptedChannel(), BOB, "s1", b"9", ONE)
    async with other.service.turns.take(resumed, goes_on=True):
        await until_turns(other, 1, 0)
        await callers.begin(one, "a1", ALICE, ONE)
        found = await other.store.turns.ask(LINE, Asker("r2", 30_000), [])
        assert found is not None
        callers.finish("a0")
        await one.reach("a0", "completed")
        await until_turns(one, 0, 1)
        assert callers.order == ["a0"]
    await callers.called(2)
    callers.finish("a1")


async def test_one_that_exists_is_queued_whatever_the_bound(
    replicas: list[Replica], callers: Callers
) -> None:
    one, other = replicas
    policy = Policy(pattern="one_*", max_concurrent=1, max_queued=0)
    await callers.begin(one, "a0", ALICE, policy)
    await callers.called(1)
    anew = order("r", ScriptedChannel(), BOB, "s1", b"9", policy)
    turn = await other.service.turns.queue(anew, anyway=True)
    assert turn is not None
    assert not isinstance(turn, Crowded)
    assert not turn.given
    callers.finish("a0")
    async with asyncio.timeout(WAIT):
        await turn.mine()
    turn.leave()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    found = find_servers()
    if not found:
        pytest.skip("no Redis server here")
    server = start_server(next(iter(found.values())))
    yield server
    server.close()


async def test_I3_what_waits_does_not_begin_until_the_store_is_back(
    server: RedisServer, callers: Callers
) -> None:
    one, other = (Replica(server.url, name, lease_ms=600_000, timeout=0.3) for name in ("r1", "r2"))
    await one.open()
    await other.open()
    for number, replica in enumerate((one, other, other)):
        await callers.begin(replica, f"a{number}", ALICE, ONE)
    await callers.called(1)
    server.hang()
    callers.finish("a0")
    with pytest.raises(StoreAway):
        await other.store.ping()
    other.clock.move(30)
    assert callers.order == ["a0"]
    server.wake()
    async with asyncio.timeout(WAIT):
        while len(callers.order) < 2:
            one.clock.move(0.5)
            other.clock.move(0.5)
            await asyncio.sleep(PAUSE)
    assert callers.order == ["a0", "a1"]
    callers.finish("a1")
    await callers.called(3)
    callers.finish("a2")
    await one.close()
    await other.close()


async def test_turns_that_the_store_has_lost_are_told_again(
    replicas: list[Replica], callers: Callers
) -> None:
    one, other = replicas
    for number, replica in enumerate((one, other, other)):
        await callers.begin(replica, f"a{number}", ALICE, ONE)
    await callers.called(1)
    await one.store.link.quick.ask((b"DEL", *one.store.link.keys.line(LINE.upstream, LINE.pattern)))
    one.clock.move(10)
    await until_known(one, 1, 0)
    other.clock.move(10)
    await until_known(one, 1, 2)
    assert callers.order == ["a0"]
    callers.finish("a0")
    await callers.called(2)
    assert callers.order == ["a0", "a1"]
    callers.finish("a1")


async def until_known(replica: Replica, held: int, waiting: int) -> None:
    """Wait until the store knows of so many turns and of so many who wait."""
    _, holders, _, _, places, _, _ = replica.store.link.keys.line(LINE.upstream, LINE.pattern)
    found: list[int] = []
    async with asyncio.timeout(WAIT):
        while found != [held, waiting]:
            found = await replica.store.link.quick.ask((b"HLEN", holders), (b"HLEN", places))
            await asyncio.sleep(PAUSE)
