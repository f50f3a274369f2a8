"""The store's clock as a replica knows it, whatever the machine's clock says."""

from __future__ import annotations

import asyncio

import pytest

from gateway.aio.clock import SystemClock
from gateway.protocol.errors import StoreAway
from gateway.store.clock import StoreClock
from gateway.store.link import open_link
from gateway.store.rates import StoreRates
from gateway.store.redis import RedisStore
from tests.contract.conftest import World
from tests.contract.making import SCOPE, create, key_of

_MINUTES = 420_000


class OffClock(SystemClock):
    """A clock that is wrong, and may be set while it runs."""

    def __init__(self, off_ms: int) -> None:
        self.off_ms = off_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.off_ms


@pytest.mark.parametrize("off", [_MINUTES, -_MINUTES])
async def test_replicas_whose_clocks_are_off_agree_with_the_store(
    world: World, store: RedisStore, off: int
) -> None:
    clock = OffClock(off)
    shared = StoreClock(world.link(), clock)
    assert abs(shared.now_ms() - clock.now_ms()) < 1_000
    await shared.look()
    assert abs(shared.now_ms() - (await create(store, key_of())).created_at) < 1_000
    clock.off_ms = -off
    assert abs(shared.now_ms() - (await create(store, key_of("t2"))).created_at) < 1_000


async def test_without_the_store_the_time_goes_on_as_it_was_last_heard(world: World) -> None:
    shared = StoreClock(world.link(), OffClock(_MINUTES))
    await shared.look()
    gone = StoreClock(open_link("redis://127.0.0.1:1", timeout=1), OffClock(_MINUTES))
    with pytest.raises(StoreAway):
        await gone.look()
    before = shared.now_ms()
    await asyncio.sleep(0.02)
    assert 10 < shared.now_ms() - before < 1_000


@pytest.mark.parametrize("step", [_MINUTES, -_MINUTES])
async def test_a_rate_does_not_see_that_the_clock_is_set(world: World, step: int) -> None:
    clock = OffClock(0)
    rates = StoreRates(world.link(), {"get": "60/minute"}, clock=clock)
    answers: list[float | None] = []
    for number in range(70):
        answers.append(await rates.hit("get", SCOPE))
        if number == 65:
            clock.off_ms = step
    assert 57 <= answers.count(None) <= 60
    assert all(0 < wait <= 60 for wait in answers if wait is not None)
