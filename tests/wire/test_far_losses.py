"""Links of another replica, and losing things: the replica, the store, the way between them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.redis_servers import RedisServer, find_servers, start
from tests.troubled import Troubled
from tests.wire.far_world import LEASE, Far, alive, far, tool
from tests.wire.seed_client import PAUSE, WAIT, Seed
from tests.wire.test_far_links import call

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("says which replica does what"),
]


@pytest_asyncio.fixture(loop_scope="session")
async def trio(redis_url: str, tmp_path: Path) -> AsyncIterator[Far]:
    """Serve by three replicas that may be killed."""
    world = await far(tmp_path, redis_url, replicas=3)
    yield world
    for gateway in world.gateways:
        if gateway.process.code is None:
            gateway.process.send(signal.SIGCONT)
    await world.stop()


async def test_I5_the_owner_killed_in_mid_call_is_told_soon_and_the_next_calls_share_one_new_process(
    trio: Far,
) -> None:
    async with trio.client() as seed:
        others = [trio.at(seed, 1), trio.at(seed, 2)]
        pid = (await tool(others[0], "count"))["pid"]
        file = trio.file()
        exchange = await others[0].post(call(5, "wait", "w", file=str(file)))
        await exchange.notification("notifications/progress")
        trio.gateways[0].process.kill()
        began = time.monotonic()
        answer = await exchange.response(5)
        assert time.monotonic() - began < 6
        assert "replica that had the upstream's process is gone" in answer["error"]["message"]
        assert "outcome is unknown" in answer["error"]["message"]
        # Both revive at once: one wins.
        told = await asyncio.gather(*(tool(other, "count") for other in others * 3))
        assert len({one["pid"] for one in told}) == 1
        assert sorted(one["count"] for one in told) == [1, 2, 3, 4, 5, 6]
        assert len(trio.calls(file=str(file))) == 1
        await trio.ended(pid)


async def test_I6_a_call_to_an_owner_that_has_just_been_killed_is_made_once_on_a_new_process(
    trio: Far,
) -> None:
    async with trio.client() as seed:
        other = trio.at(seed, 1)
        before = await tool(other, "count")
        trio.gateways[0].process.kill()
        after = await tool(other, "count", mark="after")
        assert after["count"] == 1
        assert after["pid"] != before["pid"]
        assert len(trio.calls(mark="after")) == 1


async def test_I6_an_owner_that_stops_in_order_hands_its_sessions_on_at_once(trio: Far) -> None:
    async with trio.client() as seed:
        other = trio.at(seed, 1)
        pid = (await tool(other, "count"))["pid"]
        await asyncio.to_thread(trio.gateways[0].end)
        assert not alive(pid)
        began = time.monotonic()
        assert (await tool(other, "count"))["count"] == 1
        assert (await tool(trio.at(seed, 2), "count"))["count"] == 2
        assert time.monotonic() - began < LEASE


async def test_I6_an_owner_that_was_frozen_past_its_lease_lets_go_when_it_wakes(trio: Far) -> None:
    async with trio.client() as seed:
        other = trio.at(seed, 1)
        pid = (await tool(seed, "count"))["pid"]
        trio.gateways[0].process.send(signal.SIGSTOP)
        await asyncio.sleep(LEASE * 1.5)
        after = await tool(other, "count")
        assert after["pid"] != pid
        trio.gateways[0].process.send(signal.SIGCONT)
        told = [await tool(trio.at(seed, number), "count") for number in (0, 1, 2, 0)]
        assert {one["pid"] for one in told} == {after["pid"]}
        assert [one["count"] for one in told] == [2, 3, 4, 5]
        await trio.ended(pid)


@pytest_asyncio.fixture(loop_scope="session")
async def ways(redis_url: str, tmp_path: Path) -> AsyncIterator[tuple[Far, list[Troubled]]]:
    """Serve by two replicas, each with a way to the store that can be cut."""
    async with Troubled.to(redis_url) as one, Troubled.to(redis_url) as other:
        world = await far(tmp_path, [one.url, other.url])
        yield world, [one, other]
        await world.stop()


async def one_process(*seeds: Seed) -> bool:
    """Tell whether all replicas lead to one process."""
    return len({(await tool(seed, "count"))["pid"] for seed in seeds}) == 1


async def one_of(*pids: int) -> bool:
    """Tell whether one process is left."""
    return sum(alive(pid) for pid in pids) == 1


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(WAIT):
        while not await holds():  # noqa: ASYNC110 other processes are watched
            await asyncio.sleep(PAUSE)


@pytest.mark.parametrize("whose", [0, 1])
async def test_I3_a_connection_cut_in_mid_exchange_loses_and_doubles_nothing(
    ways: tuple[Far, list[Troubled]], whose: int
) -> None:
    world, cuts = ways
    async with world.client() as seed:
        other = world.at(seed, 1)
        exchange = await other.post(call(6, "progress", "p", times=1200, bytes=300))
        seen = 0
        while (message := await exchange.next()) is not None and "result" not in message:
            assert message["params"]["progress"] == seen
            seen += 1
            if seen in (100, 600):
                cuts[whose].cut()
        assert seen == 1200
        assert message is not None and message["id"] == 6
        for number in range(4):
            cuts[number % 2].cut()
            assert "count" in await tool(other, "count", number=number)
        assert [len(world.calls(tool="count", number=number)) for number in range(4)] == [1] * 4


@pytest_asyncio.fixture(loop_scope="session")
async def own(tmp_path: Path) -> AsyncIterator[tuple[Far, RedisServer]]:
    """Serve by two replicas over a store that may be stopped."""
    found = find_servers()
    if not found:
        pytest.skip("no Redis server here")
    server = start(next(iter(found.values())))
    world = await far(tmp_path, server.url)
    yield world, server
    await world.stop()
    server.close()


async def test_I9_with_the_store_away_calls_go_on_and_afterwards_one_process_is_left(
    own: tuple[Far, RedisServer],
) -> None:
    world, server = own
    async with world.client() as seed:
        other = world.at(seed, 1)
        first = (await tool(other, "count"))["pid"]
        server.stop()
        began = time.monotonic()
        aside = (await tool(other, "count"))["pid"]
        assert time.monotonic() - began < 5
        assert aside != first
        assert (await tool(seed, "count"))["pid"] == first
        await asyncio.sleep(LEASE)
        assert (await tool(other, "count"))["pid"] == aside
        assert (await tool(seed, "count"))["pid"] == first
        server.start()
        await until(lambda: one_process(seed, other))
        await until(lambda: one_of(first, aside))


async def test_I10_use_from_another_replica_keeps_a_process_and_without_it_it_ends(
    redis_url: str, tmp_path: Path
) -> None:
    world = await far(tmp_path, redis_url, upstream={"idle": "1s"})
    try:
        async with world.client() as seed:
            other = world.at(seed, 1)
            pid = (await tool(seed, "count"))["pid"]
            for number in range(8):
                await asyncio.sleep(0.3)
                told = await tool(other, "count")
                assert (told["pid"], told["count"]) == (pid, number + 2)
            await world.ended(pid)
            assert (await tool(other, "count"))["count"] == 1
    finally:
        await world.stop()
