"""What a replica leaves for the one that takes its task up: course, request, place, answers (I3, I8)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.store.keys import lease_member
from gateway.store.port import Claim, Left
from gateway.store.redis import RedisStore
from gateway.tasks.model import NewTask, Task
from tests.contract.conftest import World
from tests.contract.making import DONE, LEASE_MS, OURS, ROOMY, create, key_of, new_task, pending

OTHERS = Claim("r2", 2)


def left_behind(*, kept: bool = False) -> NewTask:
    """Return a task with all that another replica would need."""
    made = new_task(key_of())
    return msgspec.structs.replace(made, course=b"\x00course", request=b"\xffrequest", request_kept=kept)


async def lose(world: World) -> None:
    """Let the lease of r1 end now."""
    await world.redis.zadd("mtg:leases", {lease_member(key_of(), "r1"): 1})


async def test_what_is_left_is_read_by_the_new_owner_alone(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await store.create(left_behind(), "r1", LEASE_MS, ROOMY)
    await lose(world)
    assert len(await other.claim_lost("r2", LEASE_MS, 10)) == 1
    assert await other.left(key_of(), OTHERS) == Left(b"\x00course", b"\xffrequest")
    assert await store.left(key_of(), OURS) is None


@pytest.mark.parametrize("kept", [False, True])
async def test_I3_a_request_is_gone_when_its_call_starts_unless_it_may_be_sent_again(
    store: RedisStore, kept: bool
) -> None:
    await store.create(left_behind(kept=kept), "r1", LEASE_MS, ROOMY)
    assert await store.start(key_of(), OURS) is not None
    assert await store.start(key_of(), OURS) is not None
    found = await store.left(key_of(), OURS)
    assert found == Left(b"\x00course", b"\xffrequest" if kept else b"", "", 2)


async def test_a_place_is_stored_with_its_message_and_its_question(store: RedisStore) -> None:
    await store.create(left_behind(), "r1", LEASE_MS, ROOMY)
    await store.append(key_of(), OURS, b"{}", "é-1")
    assert (await store.left(key_of(), OURS) or Left()).place == "é-1"
    await store.ask(key_of(), OURS, pending(), "2")
    await store.append(key_of(), OURS, b"{}")
    assert (await store.left(key_of(), OURS) or Left()).place == "2"
    assert await store.mark(key_of(), OURS, "3", b"another")
    found = await store.left(key_of(), OURS)
    assert found is not None
    assert (found.place, found.course) == ("3", b"another")


async def test_I4_the_former_owner_marks_nothing(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await store.create(left_behind(), "r1", LEASE_MS, ROOMY)
    await lose(world)
    await other.claim_lost("r2", LEASE_MS, 10)
    assert await store.mark(key_of(), OURS, "9") is False
    assert await store.append(key_of(), OURS, b"{}", "9") is None
    assert await store.ask(key_of(), OURS, pending(), "9") is None
    assert (await other.left(key_of(), OTHERS) or Left()).place == ""


async def test_I6_an_answer_stays_until_it_was_delivered(store: RedisStore, other: RedisStore) -> None:
    await create(store, key_of(), status="input_required")
    found = await other.take_pending(key_of(), "q1", b'{"answer":1}')
    assert found is not None
    assert await other.take_pending(key_of(), "q1", b'{"answer":2}') is None
    left = await store.left(key_of(), OURS)
    assert left is not None
    assert left.answers == (("q1", b"7", b'{"answer":1}'),)
    await store.delivered(key_of(), OURS, "q1")
    assert await store.left(key_of(), OURS) == Left()


async def test_I8_nothing_of_it_is_left_when_the_task_has_ended(world: World, store: RedisStore) -> None:
    await store.create(left_behind(kept=True), "r1", LEASE_MS, ROOMY)
    await store.start(key_of(), OURS)
    await store.ask(key_of(), OURS, pending(), "1")
    await store.take_pending(key_of(), "q1", b"{}")
    assert await store.finish(key_of(), OURS, DONE) is not None
    (record,) = [key for key in await world.keys() if b":t:" in key]
    fields = await world.redis.hkeys(record)
    assert not {b"course", b"request", b"kept", b"place", b"held_until"} & set(fields)
    assert not [field for field in fields if field.startswith((b"a:", b"p:"))]


async def test_I4_who_takes_hold_of_its_task_again_is_not_robbed_of_it(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    made = await store.create(left_behind(), "r1", LEASE_MS, ROOMY)
    assert isinstance(made, Task)
    await lose(world)
    assert await store.hold(key_of(), OURS, 200) == made
    assert await other.claim_lost("r2", 50, 10) == []
    # The lease of the claimant is gone, the owner's is only put off.
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r1")]
    await asyncio.sleep(0.25)
    await lose(world)
    assert len(await other.claim_lost("r2", LEASE_MS, 10)) == 1
    assert await store.hold(key_of(), OURS, 200) is None


async def test_a_lease_that_is_let_go_of_is_taken_at_once(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await store.create(left_behind(), "r1", LEASE_MS, ROOMY)
    await store.renew([key_of()], "r1", 0)
    assert len(await other.claim_lost("r2", LEASE_MS, 10)) == 1
    assert await world.redis.zrange("mtg:leases", 0, -1) == [lease_member(key_of(), "r2")]


async def test_a_record_of_a_version_that_knew_no_courses_is_taken_over_as_ever(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    await create(store, key_of(), status="working")
    (record,) = [key for key in await world.keys() if b":t:" in key]
    await world.redis.hset(record, "of-a-later-version", "kept")
    await lose(world)
    assert len(await other.claim_lost("r2", LEASE_MS, 10)) == 1
    assert await other.left(key_of(), OTHERS) == Left()
    assert await world.redis.hget(record, "of-a-later-version") == b"kept"
