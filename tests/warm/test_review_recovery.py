"""What a replica may not do when its lease ended while it waited for the store (I3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.tasks.policy import Policy
from tests.warm.service_world import WAIT, Replica, ScriptedChannel, memory
from tests.warm.test_service_recovery import Pair, Rebuilt, Resuming, begun
from tests.wire.raw_upstream import soon


class Drowsy(Replica):
    """A replica that is stopped for longer than its lease before it reads what `start` came to."""

    def _note(self, operation: str, seconds: float, answered: bool) -> None:
        super()._note(operation, seconds, answered)
        if operation == "start":
            self.clock.move(1)


class Stopping(Replica):
    """A replica that is told to stop just when it has claimed something."""

    def _note(self, operation: str, seconds: float, answered: bool) -> None:
        super()._note(operation, seconds, answered)
        if self.operations[-2:] == ["claim_lost", "claim_lost"]:
            self.service.draining = True


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    url = memory()
    one, two = Drowsy(url, "r1", lease_ms=80), Replica(url, "r2", lease_ms=80)
    await one.open()
    await two.open()
    yield one, two
    await one.close()
    await two.close()


async def test_I3_a_replica_that_slept_before_its_first_word_sends_no_request_once_another_has_the_task(
    pair: Pair,
) -> None:
    one, two = pair
    channel = ScriptedChannel()
    await one.begin("t", channel, policy=Policy(on_loss="fail"))
    await soon(lambda: "start" in one.operations)
    async with asyncio.timeout(WAIT):
        while (await two.record("t")).status != "failed":
            await asyncio.sleep(0.005)
            await two.look_after()
    await one.leases.tick()
    await soon(lambda: not one.service.running)
    assert channel.calls == 0


async def test_I9_a_replica_that_slept_before_its_first_word_goes_on_where_nobody_has_the_task(
    pair: Pair,
) -> None:
    one, _ = pair
    channel = ScriptedChannel()
    await one.begin("t", channel)
    await soon(lambda: "start" in one.operations)
    await one.leases.tick()
    await channel.called()
    channel.finish()
    await one.reach("t", "completed")


async def test_I5_what_a_replica_has_claimed_as_it_stops_is_left_to_others_at_once() -> None:
    url = memory()
    one, three = Replica(url, "r1", lease_ms=80), Replica(url, "r3", lease_ms=80)
    two = Stopping(url, "r2", lease_ms=600_000)
    for replica in (one, two, three):
        await replica.open()
    channel = ScriptedChannel()
    await one.begin("t", channel)
    await channel.called()
    await one.die()
    while not two.service.draining:
        two.clock.move(300)
        await asyncio.sleep(0.05)
        await two.leases.tick()
    assert (await three.record("t")).owner == "r2"
    async with asyncio.timeout(WAIT):
        while (await three.record("t")).status != "failed":
            await asyncio.sleep(0.005)
            await three.look_after()
    assert (await three.record("t")).owner == "r3"
    await two.close()
    await three.close()


async def ready(replica: Replica) -> None:
    """Let a replica be in contact with the store for longer than a lease."""
    replica.service.hands_over = True
    for _ in range(4):
        replica.clock.move(20)
        await replica.leases.tick()


async def test_I5_a_task_that_was_handed_over_a_moment_ago_is_handed_on_at_once() -> None:
    url = memory()
    one, two, three = (Replica(url, name, lease_ms=30_000) for name in ("r1", "r2", "r3"))
    here, there, last = Resuming(), Resuming(), Resuming()
    two.service.rebuild, three.service.rebuild = Rebuilt(there, Policy()), Rebuilt(last, Policy())
    for replica in (one, two, three):
        await replica.open()
    await ready(one)
    await begun(one, here)
    for replica, channel, following, its in ((one, here, two, there), (two, there, three, last)):
        channel.number(replica.name, "so far")
        (running,) = replica.service.running
        await soon(lambda running=running: running.can_be_taken_up)
        await ready(following)
        await replica.leases.tick()
        await replica.service.close()
        await its.called()
    last.say({"jsonrpc": "2.0", "id": "old", "result": {"content": []}})
    await three.reach("t", "completed")
    for replica in (one, two, three):
        await replica.close()
