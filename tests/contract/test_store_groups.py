"""A store of several servers loses one, or moves its slots, while it is used (design section 6)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis.crc import key_slot

from gateway.protocol.errors import StoreAway
from gateway.store.bus import RedisBus
from gateway.store.port import Command
from gateway.store.redis import RedisStore, open_store
from gateway.tasks.model import Scope, Task, TaskKey
from tests.contract.making import DONE, LEASE_MS, OURS, ROOMY, create, key_of, new_task, until
from tests.redis_groups import Node, RedisCluster, Watched
from tests.redis_servers import find_servers

_SCOPES = [Scope("reports", f"user-{number}") for number in range(8)]


class Load:
    """Tasks that live their lives in all scopes at the same time, again and again."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._ends = False
        self.lives = 0
        self.lost = 0
        self.faults: list[str] = []

    @classmethod
    @asynccontextmanager
    async def on(cls, store: RedisStore) -> AsyncGenerator[Load]:
        """Run while the block does; each life that was begun is lived to its end."""
        load = cls(store)
        async with asyncio.TaskGroup() as group:
            for scope in _SCOPES:
                group.create_task(load._live(scope))
            yield load
            load._ends = True

    async def more(self, lives: int = 40) -> None:
        """Wait until so many more have been lived."""
        wanted = self.lives + lives
        await until(lambda: _is(self.lives >= wanted), seconds=20, words="the load stands still")

    async def _live(self, scope: Scope) -> None:
        name, number = uuid.uuid4().hex, 0
        while not self._ends:
            number += 1
            try:
                await self._life(scope, f"{name}-{number}")
                self.lives += 1
            except StoreAway as away:
                self.faults.append(str(away))
                await asyncio.sleep(0.02)

    async def _life(self, scope: Scope, name: str) -> None:
        store, key = self._store, key_of(name, scope)
        assert isinstance(await store.create(new_task(key), "r1", LEASE_MS, ROOMY), Task)
        steps = (
            lambda: store.start(key, OURS),
            lambda: store.append(key, OURS, b"{}"),
            lambda: store.finish(key, OURS, DONE),
        )
        for step in steps:
            if await step() is None:
                self.lost += 1
                return
        found = await store.outcome(key)
        assert found is not None and found[1] == DONE
        assert key in [task.key for task in (await store.page(scope, None, 100))[0]]
        assert await store.remove(key) is not None
        assert await store.get(key) is None


async def _is(condition: bool) -> bool:
    return condition


def _binary() -> Path:
    found = find_servers()
    if not found:
        if os.environ.get("CI"):
            pytest.fail("no Redis server here, and CI must have one")
        pytest.skip("no Redis server here")
    return list(found.values())[-1]


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """Run three primaries, each with a replica."""
    cluster = RedisCluster(_binary(), replicas=1)
    yield cluster
    cluster.close()


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Run a primary with a replica and three Sentinels."""
    watched = Watched(_binary())
    yield watched
    watched.close()


@pytest.fixture
async def bus(store: RedisStore) -> AsyncIterator[RedisBus]:
    """Return a bus that listens."""
    bus = RedisBus(store.link, "r1")
    async with bus.watch(key_of()) as bell, asyncio.timeout(10):
        await bell.wait()
    yield bus
    await bus.close()


@pytest.fixture
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    """Return the store on what the test names."""
    name = "cluster" if "cluster" in request.fixturenames else "watched"
    group: RedisCluster | Watched = request.getfixturevalue(name)
    store = open_store(group.url, timeout=1.0)
    yield store
    await store.close()


async def _hears(bus: RedisBus) -> None:
    """Send words until one comes: some may be lost on the way."""

    async def send() -> None:
        while True:
            with suppress(StoreAway):
                await bus.send("r1", Command("cancel", key_of()))
            await asyncio.sleep(0.05)

    sending = asyncio.ensure_future(send())
    try:
        async with asyncio.timeout(15):
            assert (await anext(bus.commands())).kind == "cancel"
    finally:
        sending.cancel()


async def test_slots_move_under_load_and_nobody_notices(
    cluster: RedisCluster, store: RedisStore, bus: RedisBus
) -> None:
    kept = key_of("kept", Scope("reports", "user-0"))
    await create(store, kept)
    slots = {key_slot(b"mtg:{reports:user-%d}" % number) for number in range(len(_SCOPES))}
    slots.add(key_slot(b"mtg:leases"))
    async with Load.on(store) as load:
        await load.more()
        for turn in range(3):
            for slot in slots:
                await asyncio.to_thread(_move_on, cluster, slot, turn)
            await load.more()
    assert (load.faults, load.lost) == ([], 0)
    task = await store.get(kept)
    assert task is not None and task.status == "submitted"
    assert await store.finish(kept, OURS, DONE) is not None
    await _hears(bus)


def _move_on(cluster: RedisCluster, slot: int, turn: int) -> None:
    source, primaries = cluster.owner_of(slot), cluster.primaries
    target = primaries[(primaries.index(source) + 1 + turn % 2) % len(primaries)]
    cluster.move(slot, source, target, between=lambda: time.sleep(0.05))


async def test_a_primary_of_a_cluster_dies_and_its_replica_takes_over(
    cluster: RedisCluster, store: RedisStore, bus: RedisBus
) -> None:
    keys = [key_of("kept", scope) for scope in _SCOPES]
    for key in keys:
        await create(store, key)
    for node in cluster.primaries:
        await asyncio.to_thread(node.redis.wait, 1, 2_000)
    cluster.primaries[0].kill()
    await until(lambda: _all_found(store, keys), seconds=15, words="no replica took over")
    async with Load.on(store) as load:
        await load.more()
    assert load.faults == []
    await _hears(bus)
    await store.ping()


async def _all_found(store: RedisStore, keys: Sequence[TaskKey]) -> bool:
    try:
        found = await asyncio.gather(*(store.get(key) for key in keys))
    except StoreAway:
        return False
    assert None not in found
    return True


async def test_a_node_of_a_cluster_that_hangs_takes_only_its_own_scopes_away(
    cluster: RedisCluster, store: RedisStore, bus: RedisBus
) -> None:
    keys = [key_of("kept", scope) for scope in _SCOPES]
    for key in keys:
        await create(store, key)
    hung = cluster.primaries[0]
    hung.process.send(signal.SIGSTOP)
    began = time.monotonic()
    found = await asyncio.gather(*(_found_after(store, key) for key in keys))
    quick = [seconds for there, seconds in found if there]
    away = [seconds for there, seconds in found if not there]
    assert quick and away
    assert max(quick) < 0.8
    assert max(away) < 1.5
    await until(lambda: _all_found(store, keys), seconds=15, words="no replica took over")
    assert time.monotonic() - began < 10
    await _hears(bus)
    hung.process.send(signal.SIGCONT)
    async with Load.on(store) as load:
        await load.more()
    assert load.faults == []
    await until(lambda: _role(hung, "slave"), words="the old primary did not step down")
    await _hears(bus)


async def _found_after(store: RedisStore, key: TaskKey) -> tuple[bool, float]:
    began = time.monotonic()
    try:
        there = await store.get(key) is not None
    except StoreAway:
        there = False
    return there, time.monotonic() - began


async def _role(node: Node, role: str) -> bool:
    info = await asyncio.to_thread(node.redis.info, "replication")
    return info["role"] == role


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_sentinel_names_another_primary_under_load(
    watched: Watched, store: RedisStore, bus: RedisBus, number: signal.Signals
) -> None:
    kept = key_of("kept")
    await create(store, kept)
    old = watched.primary
    await asyncio.to_thread(old.redis.wait, 1, 2_000)
    async with Load.on(store) as load:
        await load.more()
        old.process.send(number)
        await until(lambda: _named_another(watched, old), seconds=20, words="no other primary was named")
        await load.more()
    assert all("store" in words for words in load.faults)
    assert await store.get(kept) is not None
    await _hears(bus)
    if number == signal.SIGSTOP:
        old.process.send(signal.SIGCONT)
    async with Load.on(store) as load:
        await load.more()
    assert load.faults == []
    await _hears(bus)


async def _named_another(watched: Watched, old: Node) -> bool:
    return await asyncio.to_thread(lambda: watched.primary is not old)
