"""Leases: who runs a task, and how another takes over (I3, I5)."""

from __future__ import annotations

import asyncio

from gateway.store.keys import lease_member
from gateway.store.port import Bounds, Claim, Full
from gateway.store.redis import RedisStore
from gateway.tasks.model import Task
from tests.contract.conftest import World
from tests.contract.making import DONE, LEASE_MS, OURS, ROOMY, create, key_of, new_task, pending, until


async def _lose(world: World, *names: str) -> None:
    """Let leases of r1 end now."""
    for name in names:
        await world.redis.zadd("mtg:leases", {lease_member(key_of(name), "r1"): 1})


async def test_I5_a_task_whose_lease_has_ended_is_taken_over(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    made = await store.create(new_task(key_of()), "r1", 50, ROOMY)
    assert isinstance(made, Task)
    taken: list[Task] = []

    async def lost() -> bool:
        taken.extend(await other.claim_lost("r2", LEASE_MS, 10))
        return bool(taken)

    await until(lost)
    (task,) = taken
    assert (task.key, task.owner, task.epoch) == (key_of(), "r2", 2)
    assert await store.get(key_of()) == task
    assert await other.claim_lost("r3", LEASE_MS, 10) == []
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r2")]


async def test_I3_the_former_owner_cannot_write_any_more(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await create(store, key_of(), status="working")
    await _lose(world, "t1")
    await other.claim_lost("r2", LEASE_MS, 10)
    assert await store.ask(key_of(), OURS, pending()) is None
    assert await store.append(key_of(), OURS, b"{}") is None
    assert await store.note(key_of(), OURS, "late") is False
    assert await store.finish(key_of(), OURS, DONE) is None
    assert await other.finish(key_of(), Claim("r2", 2), DONE) is not None
    assert await world.redis.zcard("mtg:leases") == 0


async def test_I3_the_same_replica_is_fenced_by_the_epoch(world: World, store: RedisStore) -> None:
    await create(store, key_of(), status="working")
    await _lose(world, "t1")
    (task,) = await store.claim_lost("r1", LEASE_MS, 10)
    assert (task.owner, task.epoch) == ("r1", 2)
    assert await world.redis.zcard("mtg:leases") == 1
    assert await store.append(key_of(), OURS, b"{}") is None
    assert await store.append(key_of(), Claim("r1", 2), b"{}") is not None


async def test_a_lease_that_holds_is_not_taken(store: RedisStore, other: RedisStore) -> None:
    await create(store, key_of(), status="working")
    assert await other.claim_lost("r2", LEASE_MS, 10) == []


async def test_a_renewed_lease_is_not_taken(world: World, store: RedisStore, other: RedisStore) -> None:
    for name in ("t1", "t2"):
        await create(store, key_of(name), status="working")
    await _lose(world, "t1", "t2")
    await store.renew([key_of("t1")], "r1", LEASE_MS)
    assert [task.key for task in await other.claim_lost("r2", LEASE_MS, 10)] == [key_of("t2")]
    assert await store.append(key_of("t1"), OURS, b"{}") is not None


async def test_I5_a_renewal_that_comes_too_late_revives_nothing(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await create(store, key_of(), status="working")
    await _lose(world, "t1")
    await other.claim_lost("r2", LEASE_MS, 10)
    await store.renew([key_of()], "r1", 1)

    async def swept() -> bool:
        assert await other.claim_lost("r3", LEASE_MS, 10) == []
        return await world.redis.zscore("mtg:leases", lease_member(key_of(), "r1")) is None

    await until(swept)
    task = await store.get(key_of())
    assert task is not None and (task.owner, task.epoch) == ("r2", 2)
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r2")]


async def test_I3_of_many_replicas_exactly_one_takes_each_task(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    names = [f"t{number}" for number in range(30)]
    for name in names:
        await create(store, key_of(name), status="working")
    await _lose(world, *names)
    shares = await asyncio.gather(
        *(place.claim_lost(f"n{number}", LEASE_MS, 10) for number, place in enumerate((store, other) * 3))
    )
    taken = [task.key.task_id for share in shares for task in share]
    assert sorted(taken) == sorted(names)
    assert all(len(share) <= 10 for share in shares)


async def test_leases_of_ended_and_removed_tasks_are_swept_on_the_way(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    names = [f"t{number}" for number in range(40)]
    for name in names:
        await create(store, key_of(name), status="completed")
        if name.endswith("0"):
            await store.remove(key_of(name))
    await _lose(world, *names)
    await create(store, key_of("last"), status="working")
    await world.redis.zadd("mtg:leases", {lease_member(key_of("last"), "r1"): 2})
    (task,) = await other.claim_lost("r2", LEASE_MS, 5)
    assert task.key == key_of("last")
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of("last"), "r2")]


async def test_I5_a_replica_that_dies_while_it_takes_over_leaves_the_task_to_the_next(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await create(store, key_of(), status="working")
    await _lose(world, "t1")
    # What the first step of a take-over writes, by a replica that then dies.
    await world.redis.zadd("mtg:leases", {lease_member(key_of(), "dead"): 1})
    (task,) = await other.claim_lost("r2", LEASE_MS, 10)
    assert task.owner == "r2"
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r2")]


async def test_I5_an_old_lease_left_behind_does_not_cost_the_new_owner_its_own(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await create(store, key_of(), status="working")
    await _lose(world, "t1")
    await other.claim_lost("r2", LEASE_MS, 10)
    await _lose(world, "t1")
    assert await other.claim_lost("r2", LEASE_MS, 10) == []
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r2")]


async def test_a_refused_creation_leaves_the_lease_of_a_running_task(
    world: World, store: RedisStore
) -> None:
    await create(store, key_of(), status="working")
    await asyncio.gather(*(store.create(new_task(key_of()), "r1", LEASE_MS, ROOMY) for _ in range(5)))
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r1")]


async def test_I5_a_creation_beside_a_refused_one_keeps_its_lease(world: World, store: RedisStore) -> None:
    full = Bounds(active=0, stored=10)
    results = await asyncio.gather(
        store.create(new_task(key_of()), "r1", LEASE_MS, full),
        store.create(new_task(key_of()), "r1", LEASE_MS, ROOMY),
    )
    assert results[0] == Full("active", 0)
    assert isinstance(results[1], Task)
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r1")]


async def test_a_lease_leads_back_to_owner_and_scope_with_odd_names(
    world: World, store: RedisStore
) -> None:
    key = key_of("a:b\n{}")
    await store.create(new_task(key), "r:1 {x}", 1, ROOMY)
    taken: list[Task] = []

    async def lost() -> bool:
        taken.extend(await store.claim_lost("r:2", LEASE_MS, 10))
        return bool(taken)

    await until(lost)
    assert (taken[0].key, taken[0].owner) == (key, "r:2")
