"""Creation, look-up and listing."""

from __future__ import annotations

import asyncio

import pytest

from gateway.protocol.errors import Refusal
from gateway.store.port import Bounds, Exists, Full
from gateway.store.redis import RedisStore
from gateway.tasks.model import NewTask, Scope, Task
from tests.contract.conftest import World
from tests.contract.making import DONE, LEASE_MS, OURS, ROOMY, SCOPE, create, key_of, new_task

ODD_IDS = ["", "a\nb", "a\0b", "\ud800 alone", "x" * 10_000, "{}", "a{b}c", ":t:", "ünï🤷", " ", "%00%3A"]


@pytest.mark.parametrize("task_id", ODD_IDS)
async def test_an_odd_task_id_is_as_good_as_any(store: RedisStore, other: RedisStore, task_id: str) -> None:
    key = key_of(task_id)
    made = await create(store, key)
    assert made.key == key
    assert await other.get(key) == made
    assert await other.page(SCOPE, None, 10) == ([made], None)
    assert await other.find_request(SCOPE, "s1", b"1") == key
    assert await store.finish(key, OURS, DONE) is not None
    assert await other.remove(key) is not None


async def test_what_was_created_is_what_is_read(store: RedisStore, other: RedisStore) -> None:
    new = new_task(key_of(), keep_alive=None)
    made = await store.create(new, "r1", LEASE_MS, ROOMY)
    assert isinstance(made, Task)
    for field in NewTask.__struct_fields__:
        if field not in ("first_status", "course", "request", "request_kept"):
            assert getattr(made, field) == getattr(new, field)
    assert (made.status, made.owner, made.epoch, made.version) == ("submitted", "r1", 1, 1)
    assert made.created_at == made.updated_at > 1_700_000_000_000
    assert await other.get(key_of()) == made


async def test_I3_of_many_creations_of_one_id_exactly_one_succeeds(
    store: RedisStore, other: RedisStore
) -> None:
    for number in range(10):
        key = key_of(f"t{number}")
        results = await asyncio.gather(
            *(
                place.create(new_task(key), owner, LEASE_MS, ROOMY)
                for place, owner in ((store, "r1"), (other, "r2"))
                for _ in range(5)
            )
        )
        (made,) = [one for one in results if isinstance(one, Task)]
        assert [one for one in results if one != made] == [Exists()] * 9
        assert await store.get(key) == made


async def test_I3_an_ended_task_still_holds_its_id(world: World, store: RedisStore) -> None:
    await create(store, key_of(), status="completed")
    assert await store.create(new_task(key_of()), "r1", LEASE_MS, ROOMY) == Exists()
    assert await world.redis.zcard("mtg:leases") == 0


async def test_I10_a_scope_holds_as_many_active_tasks_as_it_may(world: World, store: RedisStore) -> None:
    bounds = Bounds(active=2, stored=10)
    for number in range(2):
        assert isinstance(await store.create(new_task(key_of(f"t{number}")), "r1", LEASE_MS, bounds), Task)
    assert await store.create(new_task(key_of("t2")), "r1", LEASE_MS, bounds) == Full("active", 2)
    assert await world.redis.zcard("mtg:leases") == 2
    other_scope = key_of("t2", Scope("reports", "bob"))
    assert isinstance(await store.create(new_task(other_scope), "r1", LEASE_MS, bounds), Task)
    await store.finish(key_of("t0"), OURS, DONE)
    assert isinstance(await store.create(new_task(key_of("t2")), "r1", LEASE_MS, bounds), Task)


async def test_I10_a_scope_holds_as_many_tasks_as_it_may(store: RedisStore) -> None:
    bounds = Bounds(active=10, stored=2)
    for number in range(2):
        await store.create(new_task(key_of(f"t{number}")), "r1", LEASE_MS, bounds)
        await store.finish(key_of(f"t{number}"), OURS, DONE)
    assert await store.create(new_task(key_of("t2")), "r1", LEASE_MS, bounds) == Full("stored", 2)
    await store.remove(key_of("t0"))
    assert isinstance(await store.create(new_task(key_of("t2")), "r1", LEASE_MS, bounds), Task)


async def test_I10_bounds_hold_under_a_race(store: RedisStore, other: RedisStore) -> None:
    bounds = Bounds(active=5, stored=100)
    results = await asyncio.gather(
        *(
            place.create(new_task(key_of(f"{place!r}{number}")), "r1", LEASE_MS, bounds)
            for place in (store, other)
            for number in range(10)
        )
    )
    assert len([one for one in results if isinstance(one, Task)]) == 5


async def test_I7_scopes_whose_names_run_together_stay_apart(store: RedisStore) -> None:
    one, two = Scope("a:b", "c"), Scope("a", "b:c")
    await create(store, key_of("t1", one))
    assert await store.get(key_of("t1", two)) is None
    assert await store.page(two, None, 10) == ([], None)
    assert await store.find_request(two, "s1", b"1") is None
    assert await store.remove(key_of("t1", two)) is None


async def test_a_request_is_found_by_session_and_id_spelt_alike(store: RedisStore) -> None:
    for number, request_id in enumerate((b"0", b"1", b'"1"', b'"a:b"')):
        made = await store.create(
            new_task(key_of(f"t{number}"), request_id=request_id), "r1", LEASE_MS, ROOMY
        )
        assert isinstance(made, Task)
    for number, request_id in enumerate((b"0", b"1", b'"1"', b'"a:b"')):
        assert await store.find_request(SCOPE, "s1", request_id) == key_of(f"t{number}")
    assert await store.find_request(SCOPE, "s2", b"1") is None
    assert await store.find_request(SCOPE, "s1", b"2") is None


async def test_a_request_id_used_again_finds_the_later_task(store: RedisStore) -> None:
    await create(store, key_of("first"))
    await create(store, key_of("second"))
    assert await store.find_request(SCOPE, "s1", b"1") == key_of("second")
    await store.remove(key_of("first"))
    assert await store.find_request(SCOPE, "s1", b"1") == key_of("second")
    await store.remove(key_of("second"))
    assert await store.find_request(SCOPE, "s1", b"1") is None


async def test_pages_go_in_the_order_of_creation(store: RedisStore) -> None:
    for number in range(25):
        await create(store, key_of(f"t{number}"))
    seen: list[str] = []
    place = None
    while True:
        tasks, place = await store.page(SCOPE, place, 10)
        seen += [task.key.task_id for task in tasks]
        if place is None:
            break
    assert seen == [f"t{number}" for number in range(25)]


async def test_a_place_stays_valid_while_tasks_come_and_go(store: RedisStore) -> None:
    for number in range(6):
        await create(store, key_of(f"t{number}"))
    _, place = await store.page(SCOPE, None, 3)
    assert place is not None
    await store.remove(key_of("t2"))
    await store.remove(key_of("t3"))
    await create(store, key_of("t6"))
    tasks, end = await store.page(SCOPE, place, 10)
    assert [task.key.task_id for task in tasks] == ["t4", "t5", "t6"]
    assert end is None


async def test_a_place_stays_valid_after_every_task_has_gone(store: RedisStore) -> None:
    for number in range(3):
        await create(store, key_of(f"t{number}"))
    _, place = await store.page(SCOPE, None, 2)
    for number in range(3):
        await store.remove(key_of(f"t{number}"))
    await create(store, key_of("later"))
    tasks, _ = await store.page(SCOPE, place, 10)
    assert [task.key.task_id for task in tasks] == ["later"]


async def test_a_page_that_is_exactly_full_is_the_last(store: RedisStore) -> None:
    for number in range(4):
        await create(store, key_of(f"t{number}"))
    tasks, place = await store.page(SCOPE, None, 4)
    assert len(tasks) == 4
    assert place is None


@pytest.mark.parametrize("place", ["", "x", "-inf", "(1", "1.5", "9" * 30, "1\n", "1 OR 1"])
async def test_I12_a_place_that_is_none_is_refused(store: RedisStore, place: str) -> None:
    await create(store, key_of())
    with pytest.raises(Refusal) as caught:
        await store.page(SCOPE, place, 10)
    assert caught.value.code == -32602


async def test_a_record_that_was_evicted_is_not_listed_and_frees_its_place(
    world: World, store: RedisStore
) -> None:
    bounds = Bounds(active=1, stored=1)
    await store.create(new_task(key_of()), "r1", LEASE_MS, bounds)
    await world.redis.delete(store.link.keys.record(key_of()))
    assert await store.get(key_of()) is None
    assert await store.page(SCOPE, None, 10) == ([], None)
    assert isinstance(await store.create(new_task(key_of("t2")), "r1", LEASE_MS, bounds), Task)


@pytest.mark.parametrize("lost", [("record",), ("record", "requests"), ("record", "index")])
async def test_an_id_whose_keys_were_evicted_is_made_anew_and_nothing_of_the_old_one_stays(
    world: World, store: RedisStore, lost: tuple[str, ...]
) -> None:
    names = ("index", "expiries", "active", "requests", "record", "outcome", "log")
    keys: dict[str, bytes] = dict(zip(names, store.link.keys.task(key_of()), strict=True))
    await create(store, key_of("t0"))
    await create(store, key_of())
    for name in lost:
        await world.redis.delete(keys[name])
    made = await store.create(new_task(key_of(), request_id=b"2"), "r1", LEASE_MS, ROOMY)
    assert isinstance(made, Task)
    assert (await store.page(SCOPE, None, 10))[0][-1] == made
    assert len(await world.redis.zrange(keys["index"], 0, -1)) == (1 if "index" in lost else 2)
    assert await store.find_request(SCOPE, "s1", b"2") == key_of()
    for one in (key_of("t0"), key_of()):
        await store.remove(one)


async def test_a_task_is_found_by_its_digest_alone(store: RedisStore) -> None:
    made = await create(store, key_of())
    assert await store.get(type(made.key).from_digest(SCOPE, key_of().digest)) == made
