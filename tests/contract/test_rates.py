"""Rates per scope (SEP-1686 section 8.1.3), on every store."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.protocol.errors import ConfigError
from gateway.store.link import open_link
from gateway.store.rates import StoreRates
from gateway.tasks.model import Scope
from tests.contract.conftest import World
from tests.contract.making import SCOPE
from tests.redis_servers import RedisServer


async def test_a_small_rate_is_exact_and_says_when_to_come_back(world: World) -> None:
    rates = StoreRates(world.link(), {"create": "5/minute"})
    assert [await rates.hit("create", SCOPE) for _ in range(5)] == [None] * 5
    for _ in range(2):
        wait = await rates.hit("create", SCOPE)
        assert wait is not None and 50 < wait <= 60


async def test_scopes_and_kinds_have_rates_of_their_own(world: World) -> None:
    rates = StoreRates(world.link(), {"create": "1/minute", "list": "1/minute", "get": None})
    assert await rates.hit("create", SCOPE) is None
    assert await rates.hit("create", SCOPE) is not None
    assert await rates.hit("list", SCOPE) is None
    assert await rates.hit("create", Scope("reports", "bob")) is None
    assert await rates.hit("create", Scope("other", "alice")) is None
    for _ in range(10):
        assert await rates.hit("get", SCOPE) is None
        assert await rates.hit("result", SCOPE) is None


@pytest.mark.parametrize("amount", [40, 100, 650])
async def test_a_large_rate_is_never_exceeded_and_nearly_used(world: World, amount: int) -> None:
    rates = StoreRates(world.link(), {"get": f"{amount}/minute"})
    answers = await asyncio.gather(*(rates.hit("get", SCOPE) for _ in range(amount + 50)))
    allowed = answers.count(None)
    assert amount * 0.95 <= allowed <= amount
    assert all(0 < wait <= 60 for wait in answers if wait is not None)


async def test_a_window_ends(world: World) -> None:
    rates = StoreRates(world.link(), {"get": "2/second"})
    await rates.hit("get", SCOPE)
    await rates.hit("get", SCOPE)
    async with asyncio.timeout(10):
        while (wait := await rates.hit("get", SCOPE)) is not None:
            assert wait <= 1
            await asyncio.sleep(wait)


async def test_replicas_share_a_rate(server: RedisServer) -> None:
    links = [open_link(server.url), open_link(server.url)]
    one, two = (StoreRates(link, {"create": "10/minute"}) for link in links)
    answers = [await place.hit("create", SCOPE) for place in (one, two) * 10]
    assert answers.count(None) == 10
    for link in links:
        await link.close()


async def test_I9_with_the_store_away_everything_is_allowed_and_quickly(server: RedisServer) -> None:
    link = open_link(server.url, timeout=1.0)
    rates = StoreRates(link, {"create": "1/minute"})
    assert await rates.hit("create", SCOPE) is None
    assert await rates.hit("create", SCOPE) is not None
    server.stop()
    began = time.monotonic()
    answers = [await rates.hit("create", Scope("reports", f"s{number}")) for number in range(50)]
    assert answers == [None] * 50
    assert time.monotonic() - began < 2
    await link.close()


async def test_I9_a_store_that_hangs_holds_nobody_up(server: RedisServer) -> None:
    link = open_link(server.url, timeout=0.3)
    rates = StoreRates(link, {"create": "1/minute"})
    await rates.hit("create", SCOPE)
    server.hang()
    began = time.monotonic()
    assert await rates.hit("create", Scope("reports", "bob")) is None
    assert time.monotonic() - began < 1
    server.wake()
    await link.close()


def test_a_rate_that_is_none_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match="600/minute"):
        StoreRates(open_link("memory://"), {"create": "often"})
