"""How long tasks live: nothing stays, nothing goes early (I8)."""

from __future__ import annotations

import msgspec
import pytest

from gateway.store.redis import RedisStore
from gateway.tasks.model import Task
from tests.contract.conftest import World
from tests.contract.making import (
    DONE,
    LEASE_MS,
    OURS,
    ROOMY,
    SCOPE,
    create,
    key_of,
    new_task,
    pending,
    until,
)


async def _expiries(world: World) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for key in await world.keys():
        if b"{" in key:
            found[key.rsplit(b"}", 1)[1]] = await world.redis.pttl(key)
    return found


@pytest.mark.parametrize("end", ["finish", "cancel"])
async def test_I8_at_the_end_all_keys_of_a_task_get_one_expiry(
    world: World, store: RedisStore, end: str
) -> None:
    await create(store, key_of(), keep_alive=60_000, status="working")
    await store.append(key_of(), OURS, b"{}")
    if end == "finish":
        await store.finish(key_of(), OURS, DONE)
    else:
        await store.cancel(key_of(), "stop")
    lives = await _expiries(world)
    assert {name[:3] for name in lives} == {b":t:", b":r:", b":l:", b":i", b":e", b":c"}
    assert max(lives.values()) - min(lives.values()) <= 50
    assert 59_000 < min(lives.values()) <= max(lives.values()) <= 60_000
    record = await store.get(key_of())
    assert record is not None and record.ended_at is not None
    expiries = store.link.keys.scope(SCOPE)[1]
    assert await world.redis.zscore(expiries, key_of().digest) == record.ended_at + 60_000


async def test_I8_a_retention_from_creation_ends_where_it_was_announced(
    world: World, store: RedisStore
) -> None:
    new = msgspec.structs.replace(new_task(key_of(), keep_alive=60_000), kept_from="creation")
    made = await store.create(new, "r1", LEASE_MS, ROOMY)
    assert isinstance(made, Task)
    assert made.kept_from == "creation"
    ended = await store.finish(key_of(), OURS, DONE)
    assert ended is not None
    assert ended.expires_at == made.created_at + 60_000
    expiries = store.link.keys.scope(SCOPE)[1]
    assert await world.redis.zscore(expiries, key_of().digest) == made.created_at + 60_000


async def test_I8_a_retention_from_creation_that_is_over_at_the_end_leaves_nothing(
    world: World, store: RedisStore
) -> None:
    new = msgspec.structs.replace(new_task(key_of(), keep_alive=0), kept_from="creation")
    assert isinstance(await store.create(new, "r1", LEASE_MS, ROOMY), Task)
    assert await store.finish(key_of(), OURS, DONE) is not None
    assert await store.get(key_of()) is None
    assert await _expiries(world) == {}


async def test_I8_before_the_end_the_keys_cover_time_limit_and_keep_alive(
    world: World, store: RedisStore
) -> None:
    new = new_task(key_of(), keep_alive=7_200_000, timeout=1_800_000)
    assert isinstance(await store.create(new, "r1", LEASE_MS, ROOMY), Task)
    await store.append(key_of(), OURS, b"{}")
    lives = await _expiries(world)
    assert set(lives) >= {b":i", b":e", b":a", b":c", b":l:" + key_of().digest.encode()}
    assert all(life > 7_200_000 + 1_800_000 for life in lives.values())


async def test_I8_a_task_without_end_stays_after_its_end_and_not_before(
    world: World, store: RedisStore
) -> None:
    await create(store, key_of(), keep_alive=None, status="working")
    await store.append(key_of(), OURS, b"{}")
    assert all(life > 0 for life in (await _expiries(world)).values())
    await store.finish(key_of(), OURS, DONE)
    assert set((await _expiries(world)).values()) == {-1}


async def test_I8_keys_of_a_scope_live_as_long_as_their_longest_task(
    world: World, store: RedisStore
) -> None:
    await create(store, key_of("short"), keep_alive=1_000, status="completed")
    await create(store, key_of("long"), keep_alive=90_000, status="completed")
    lives = await _expiries(world)
    assert all(80_000 < lives[name] <= 90_000 for name in (b":i", b":e", b":c"))
    await create(store, key_of("endless"), keep_alive=None, status="completed")
    lives = await _expiries(world)
    assert all(lives[name] == -1 for name in (b":i", b":e", b":c"))
    await store.remove(key_of("endless"))
    lives = await _expiries(world)
    assert all(80_000 < lives[name] <= 90_000 for name in (b":i", b":e", b":c"))


async def test_I8_after_its_keep_alive_nothing_of_a_task_is_left(world: World, store: RedisStore) -> None:
    for number in range(20):
        key = key_of(f"t{number}")
        await create(store, key, keep_alive=200 + number, status="working")
        await store.append(key, OURS, b"{}")
        await store.ask(key, OURS, pending())
        await store.finish(key, OURS, DONE)

    async def gone() -> bool:
        return not await world.keys()

    await until(gone, words="something was left")


async def test_I8_an_expired_task_is_nowhere_to_be_found_though_others_keep_the_scope(
    store: RedisStore,
) -> None:
    staying = await create(store, key_of("stays"), keep_alive=60_000, status="completed")
    new = new_task(key_of("goes"), keep_alive=100, request_id=b"2")
    await store.create(new, "r1", LEASE_MS, ROOMY)
    await store.finish(key_of("goes"), OURS, DONE)
    assert await store.find_request(SCOPE, "s1", b"2") == key_of("goes")

    async def gone() -> bool:
        return await store.get(key_of("goes")) is None

    await until(gone)
    await until(lambda: _not_found(store, b"2"))
    assert await store.outcome(key_of("goes")) is None
    assert await store.page(SCOPE, None, 10) == ([staying], None)
    assert await store.remove(key_of("goes")) is None


async def _not_found(store: RedisStore, request_id: bytes) -> bool:
    return await store.find_request(SCOPE, "s1", request_id) is None


async def test_I8_what_expired_is_swept_from_its_scope(world: World, store: RedisStore) -> None:
    await create(store, key_of("stays"), keep_alive=60_000, status="completed")
    for number in range(5):
        await create(store, key_of(f"t{number}"), keep_alive=50, status="completed")

    async def swept() -> bool:
        await store.page(SCOPE, None, 1)
        index, expiries, _, requests = store.link.keys.scope(SCOPE)
        counts = [await world.redis.zcard(index), await world.redis.zcard(expiries)]
        return [*counts, await world.redis.hlen(requests)] == [1, 1, 1]

    await until(swept, words="expired tasks stayed in the index")


@pytest.mark.parametrize("keep_alive", [0, -1])
async def test_I8_without_keep_alive_a_task_is_gone_at_its_end(
    world: World, store: RedisStore, keep_alive: int
) -> None:
    await create(store, key_of(), keep_alive=keep_alive, status="working")
    await store.append(key_of(), OURS, b"{}")
    task = await store.finish(key_of(), OURS, DONE)
    assert task is not None and task.status == "completed"
    assert await world.keys() == set()


async def test_I8_removal_leaves_nothing_not_even_a_lease(world: World, store: RedisStore) -> None:
    for status in ("submitted", "working", "input_required", "completed", "cancelled"):
        await create(store, key_of(), status=status)
        await store.append(key_of(), OURS, b"{}")
        assert await store.remove(key_of()) is not None
        assert await world.keys() == set()


async def test_I8_the_lease_ends_with_the_task(world: World, store: RedisStore) -> None:
    await create(store, key_of("t1"), status="working")
    await create(store, key_of("t2"), status="working")
    assert await world.redis.zcard("mtg:leases") == 2
    await store.finish(key_of("t1"), OURS, DONE)
    await store.cancel(key_of("t2"), "stop")
    assert await world.redis.zcard("mtg:leases") == 0


async def test_I8_a_huge_keep_alive_is_kept_and_harms_nothing(store: RedisStore) -> None:
    await create(store, key_of(), keep_alive=2**62, status="working")
    task = await store.finish(key_of(), OURS, DONE)
    assert task is not None and task.keep_alive == 2**62
    assert await store.get(key_of()) == task


async def test_the_end_of_a_session_is_remembered_for_a_while(store: RedisStore, other: RedisStore) -> None:
    assert not await other.session_ended("s1\n\0{}")
    await store.end_session("s1\n\0{}", 200)
    assert await other.session_ended("s1\n\0{}")
    assert not await other.session_ended("s2")

    async def forgotten() -> bool:
        return not await other.session_ended("s1\n\0{}")

    await until(forgotten)
