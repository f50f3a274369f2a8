"""Words between replicas: bells and commands, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.protocol.errors import StoreAway
from gateway.store.bus import RedisBus
from gateway.store.link import open_link
from gateway.store.port import Command, Wakeup
from gateway.store.redis import RedisStore
from gateway.tasks.model import Outcome, TaskKey
from tests.contract.conftest import World
from tests.contract.making import DONE, LEASE_MS, OURS, SCOPE, create, key_of, pending, until
from tests.redis_servers import RedisServer


@pytest.fixture
async def bus(world: World) -> AsyncIterator[RedisBus]:
    """Return the bus of replica r2, which listens."""
    bus = RedisBus(world.link(), "r2")
    await _subscribed(bus)
    yield bus
    await bus.close()


async def _subscribed(bus: RedisBus) -> None:
    async with bus.watch(key_of("any")) as bell:
        await _rings(bell)


async def _rings(bell: Wakeup) -> None:
    async with asyncio.timeout(10):
        await bell.wait()


async def _silent(bell: Wakeup) -> bool:
    """Tell whether the bell stays silent for a moment."""
    try:
        async with asyncio.timeout(0.05):
            await bell.wait()
    except TimeoutError:
        return True
    return False


async def test_a_bell_rings_at_each_append_move_and_end(store: RedisStore, bus: RedisBus) -> None:
    key = key_of()
    await create(store, key)
    async with bus.watch(key) as bell:
        for change in (
            store.start(key, OURS),
            store.append(key, OURS, b"{}"),
            store.ask(key, OURS, pending("q1", b"1")),
            store.take_pending(key, "q1"),
            store.ask(key, OURS, pending("q2", b"2")),
            store.drop_pending(key, OURS, b"2"),
            store.finish(key, OURS, DONE),
            store.remove(key),
        ):
            assert await change is not None
            await _rings(bell)
            assert await _silent(bell)


async def test_a_bell_rings_at_cancel_and_take_over(store: RedisStore, bus: RedisBus) -> None:
    await create(store, key_of("t1"))
    await create(store, key_of("t2"))
    async with bus.watch(key_of("t1")) as first, bus.watch(key_of("t2")) as second:
        await store.cancel(key_of("t1"), "stop")
        await _rings(first)
        await store.renew([key_of("t2")], "r1", 1)

        async def taken() -> bool:
            return bool(await store.claim_lost("r3", LEASE_MS, 1))

        await until(taken)
        await _rings(second)


async def test_every_watcher_of_a_task_hears_and_nobody_else(store: RedisStore, bus: RedisBus) -> None:
    await create(store, key_of("t1"))
    async with (
        bus.watch(key_of("t1")) as one,
        bus.watch(key_of("t1")) as two,
        bus.watch(key_of("t2")) as three,
    ):
        await store.start(key_of("t1"), OURS)
        await _rings(one)
        await _rings(two)
        assert await _silent(three)
        async with bus.watch(key_of("t1")):
            pass
        await store.append(key_of("t1"), OURS, b"{}")
        await _rings(one)


async def test_a_bell_that_rang_before_the_wait_is_heard_once(store: RedisStore, bus: RedisBus) -> None:
    await create(store, key_of())
    async with bus.watch(key_of()) as bell, bus.watch(key_of()) as witness:
        for _ in range(3):
            await store.append(key_of(), OURS, b"{}")
            await _rings(witness)
        await _rings(bell)
        assert await _silent(bell)


async def test_watching_costs_the_store_nothing_per_watcher(world: World, bus: RedisBus) -> None:
    before = len(await world.redis.pubsub_channels())
    watches = [bus.watch(key_of(f"t{number}")) for number in range(50)]
    for watch in watches:
        await watch.__aenter__()
    assert len(await world.redis.pubsub_channels()) == before
    for watch in watches:
        await watch.__aexit__(None, None, None)
    assert "0 tasks watched" in repr(bus)


@pytest.mark.parametrize("task_id", ["t1", "a:b\n\0{}", "\ud800"])
async def test_a_command_reaches_the_replica_it_is_for(world: World, bus: RedisBus, task_id: str) -> None:
    sender, third = RedisBus(world.link(), "r1"), RedisBus(world.link(), "r3")
    await _subscribed(third)
    cancel = Command("cancel", TaskKey(SCOPE, task_id))
    answer = Command("answer", TaskKey(SCOPE, task_id), b'{"id":7,"result":{}}\xff')
    await sender.send("r3", cancel)
    await sender.send("r2", cancel)
    await sender.send("r2", answer)
    heard: list[Command] = []
    async with asyncio.timeout(10):
        async for command in bus.commands():
            heard.append(command)
            if len(heard) == 2:
                break
    assert heard == [cancel, answer]
    await third.close()
    await sender.close()


async def test_a_command_may_name_a_task_by_its_digest(bus: RedisBus) -> None:
    command = Command("cancel", TaskKey.from_digest(SCOPE, key_of().digest))
    await bus.send("r2", command)
    async with asyncio.timeout(10):
        assert await anext(bus.commands()) == command


async def test_what_is_not_understood_is_left_out(world: World, bus: RedisBus) -> None:
    await world.redis.publish("mtg:to:r2", b"\xff not a command")
    await bus.send("r2", Command("cancel", key_of()))
    async with asyncio.timeout(10):
        assert await anext(bus.commands()) == Command("cancel", key_of())


async def test_closing_ends_the_commands_and_rings_the_bells(world: World) -> None:
    bus = RedisBus(world.link(), "r9")
    async with bus.watch(key_of()) as bell:
        await _rings(bell)
        ended = asyncio.ensure_future(_collect(bus))
        await asyncio.sleep(0)
        await bus.close()
        assert await asyncio.wait_for(ended, 10) == []
        await _rings(bell)


async def _collect(bus: RedisBus) -> list[Command]:
    return [command async for command in bus.commands()]


async def test_after_a_lost_connection_every_bell_rings_and_words_come_again(server: RedisServer) -> None:
    link = open_link(server.url, timeout=1.0)
    bus, store = RedisBus(link, "r1"), RedisStore(link)
    await create(store, key_of())
    async with bus.watch(key_of()) as one, bus.watch(key_of("t2")) as two:
        await _rings(one)
        await _rings(two)
        server.stop()
        with pytest.raises(StoreAway):
            await bus.send("r1", Command("cancel", key_of()))
        server.start()
        await _rings(one)
        await _rings(two)
        await until(lambda: _well(store), words="the store did not come back")
        await create(store, key_of())
        await store.finish(key_of(), OURS, Outcome(status="failed"))
        await _rings(one)
        await bus.send("r1", Command("cancel", key_of()))
        async with asyncio.timeout(10):
            assert (await anext(bus.commands())).kind == "cancel"
    await bus.close()
    await store.close()


async def _well(store: RedisStore) -> bool:
    try:
        await store.ping()
    except StoreAway:
        return False
    return True


async def test_watching_works_before_the_store_is_there(server: RedisServer) -> None:
    server.stop()
    link = open_link(server.url, timeout=1.0)
    bus = RedisBus(link, "r1")
    async with bus.watch(key_of()) as bell:
        assert await _silent(bell)
        server.start()
        await _rings(bell)
    await bus.close()
    await link.close()
