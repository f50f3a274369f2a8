"""What a replica may not do when its lease ended while it waited for the store (I3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.tasks.policy import Policy
from tests.warm.service_world import WAIT, Replica, ScriptedChannel, memory
from tests.warm.test_service_recovery import Pair
from tests.wire.raw_upstream import soon


class Drowsy(Replica):
    """A replica that is stopped for longer than its lease before it reads what `start` came to."""

    def _note(self, operation: str, seconds: float, answered: bool) -> None:
        super()._note(operation, seconds, answered)
        if operation == "start":
            self.clock.move(1)


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
