"""Which replica asks a client a pending request: one at a time, for as long as it says so (I6)."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.store.port import Asker
from gateway.store.redis import RedisStore
from tests.contract.conftest import World
from tests.contract.making import DONE, OURS, create, key_of, pending, until

KEY: Final = key_of()
ONE: Final = Asker("r1", 30_000)
# A name may hold whatever separates what is stored.
TWO: Final = Asker("r2:\n7:x", 30_000)
SHORT: Final = Asker("r3", 60)


async def test_I6_of_many_replicas_that_would_ask_one_may(store: RedisStore, other: RedisStore) -> None:
    await create(store, KEY, status="input_required")
    found = await asyncio.gather(
        *(place.bespeak(KEY, "q1", Asker(f"r{n}", 30_000)) for place in (store, other) for n in range(9))
    )
    # Each replica was asked about twice.
    assert found.count(0) == 2
    assert all(left == 0 or (left is not None and 0 < left <= 30_000) for left in found)


async def test_it_is_the_replicas_until_it_lets_go(store: RedisStore) -> None:
    await create(store, KEY, status="input_required")
    assert await store.bespeak(KEY, "q1", TWO) == 0
    assert await store.bespeak(KEY, "q1", TWO) == 0
    assert 0 < (await store.bespeak(KEY, "q1", ONE) or 0) <= 30_000
    # Nobody lets go of another's.
    await store.bespeak(KEY, "q1", Asker("r1", 0))
    assert 0 < (await store.bespeak(KEY, "q1", ONE) or 0) <= 30_000
    assert await store.bespeak(KEY, "q1", Asker(TWO.replica, 0)) == 0
    assert await store.bespeak(KEY, "q1", ONE) == 0


async def test_it_is_anybodys_when_its_lease_has_ended(store: RedisStore) -> None:
    await create(store, KEY, status="input_required")
    assert await store.bespeak(KEY, "q1", SHORT) == 0

    async def free() -> bool:
        return await store.bespeak(KEY, "q1", ONE) == 0

    await until(free, seconds=2)
    assert 0 < (await store.bespeak(KEY, "q1", SHORT) or 0) <= 30_000


async def test_who_waits_takes_it_along_to_another_replica(store: RedisStore) -> None:
    await create(store, KEY, status="input_required")
    assert await store.bespeak(KEY, "q1", TWO, "w1") == 0
    assert await store.bespeak(KEY, "q1", ONE, "w2")
    assert await store.bespeak(KEY, "q1", ONE) != 0
    # What a replica says later does not take that away.
    assert await store.bespeak(KEY, "q1", TWO) == 0
    assert await store.bespeak(KEY, "q1", ONE, "w1") == 0
    assert await store.bespeak(KEY, "q1", TWO) != 0


async def test_it_outlives_the_replica_that_runs_the_task(store: RedisStore) -> None:
    await create(store, KEY, status="input_required")
    assert await store.bespeak(KEY, "q1", TWO) == 0
    await store.renew([KEY], "r1", 0)
    (task,) = await store.claim_lost("r9", 30_000, 10)
    assert (task.owner, len(task.pending)) == ("r9", 1)
    assert await store.bespeak(KEY, "q1", ONE) != 0
    assert await store.bespeak(KEY, "q1", TWO) == 0


async def test_I8_nothing_is_left_of_it(store: RedisStore, world: World) -> None:
    await create(store, KEY, status="input_required")
    for relay, upstream in (("q2", b"8"), ("q3", b"9")):
        await store.ask(KEY, OURS, pending(relay, upstream))
    for relay in ("q1", "q2", "q3"):
        assert await store.bespeak(KEY, relay, ONE) == 0
    hashes = [key for key in await world.keys() if await world.redis.type(key) == b"hash"]
    (record,) = [key for key in hashes if await world.redis.hexists(key, "w:q1")]

    async def kept() -> set[bytes]:
        return {field for field in await world.redis.hkeys(record) if field.startswith(b"w:")}

    assert await kept() == {b"w:q1", b"w:q2", b"w:q3"}
    await store.take_pending(KEY, "q1")
    await store.drop_pending(KEY, OURS, b"8")
    assert await kept() == {b"w:q3"}
    await store.finish(KEY, OURS, DONE)
    assert await kept() == set()
    for relay in ("q1", "q3", "never"):
        assert await store.bespeak(KEY, relay, ONE) is None
    assert await store.bespeak(key_of("never was"), "q1", ONE) is None
    assert await kept() == set()
    assert not [key for key in await world.keys() if b"never" in key]
