"""Pending server requests and the log of a task."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.redis import RedisStore
from gateway.tasks.model import Status
from tests.contract.conftest import World
from tests.contract.making import DONE, OURS, create, key_of, pending


async def test_answers_in_any_order_and_work_goes_on_after_the_last(store: RedisStore) -> None:
    await create(store, key_of(), status="working")
    asked = [pending(f"q{number}", b'"u:%d"' % number) for number in range(12)]
    for one in asked:
        task = await store.ask(key_of(), OURS, one)
        assert task is not None and task.status == "input_required"
    task = await store.get(key_of())
    assert task is not None and task.pending == tuple(asked)
    left = len(asked)
    for one in reversed(asked):
        taken = await store.take_pending(key_of(), one.relay_id)
        left -= 1
        assert taken is not None and taken[1] == one
        assert taken[0].status == ("input_required" if left else "working")
        assert taken[0].pending == tuple(asked[:left])


async def test_of_many_answers_at_once_exactly_one_takes_the_request(
    store: RedisStore, other: RedisStore
) -> None:
    await create(store, key_of(), status="input_required")
    results = await asyncio.gather(
        *(place.take_pending(key_of(), "q1") for place in (store, other) for _ in range(10))
    )
    assert len([taken for taken in results if taken is not None]) == 1


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "unknown"])
async def test_I4_an_answer_after_the_end_is_not_taken(store: RedisStore, end: Status) -> None:
    await create(store, key_of(), status="input_required")
    if end == "cancelled":
        await store.cancel(key_of(), "stop")
    else:
        await store.finish(key_of(), OURS, DONE)
    assert await store.take_pending(key_of(), "q1") is None
    task = await store.get(key_of())
    assert task is not None and task.pending == () and task.ended


async def test_an_answer_to_nothing_changes_nothing(store: RedisStore) -> None:
    before = await create(store, key_of(), status="input_required")
    assert await store.take_pending(key_of(), "q9") is None
    assert await store.take_pending(key_of("never was"), "q1") is None
    assert await store.get(key_of()) == before


async def test_a_request_that_the_upstream_withdrew_is_dropped_by_the_upstreams_id(
    store: RedisStore,
) -> None:
    await create(store, key_of(), status="working")
    for relay_id, upstream_id in (("q1", b"7"), ("q2", b'"7"'), ("q3", b"77")):
        await store.ask(key_of(), OURS, pending(relay_id, upstream_id))
    task = await store.drop_pending(key_of(), OURS, b"7")
    assert task is not None and [one.relay_id for one in task.pending] == ["q2", "q3"]
    task = await store.drop_pending(key_of(), OURS, b"8")
    assert task is not None and task.status == "input_required"
    await store.drop_pending(key_of(), OURS, b'"7"')
    task = await store.drop_pending(key_of(), OURS, b"77")
    assert task is not None and task.status == "working" and task.pending == ()


async def test_a_request_asked_twice_waits_once(store: RedisStore) -> None:
    await create(store, key_of(), status="working")
    await store.ask(key_of(), OURS, pending())
    await store.ask(key_of(), OURS, pending())
    taken = await store.take_pending(key_of(), "q1")
    assert taken is not None and taken[0].status == "working"


async def test_odd_bytes_of_a_request_come_back_as_they_were(store: RedisStore) -> None:
    await create(store, key_of(), status="working")
    odd = pending("q:\n\0{}\ud800", b'"a:b\\u0000\xff"')
    await store.ask(key_of(), OURS, odd)
    taken = await store.take_pending(key_of(), odd.relay_id)
    assert taken is not None and taken[1] == odd


async def test_a_log_is_read_on_from_any_offset(store: RedisStore, other: RedisStore) -> None:
    await create(store, key_of(), status="working")
    messages = [b"", b"\xff\0\n", b"12,34\n56", b"x" * 100_000]
    offsets = [await store.append(key_of(), OURS, message) for message in messages]
    entries = await other.read_log(key_of(), None, 10)
    assert [entry.message for entry in entries] == messages
    assert [entry.offset for entry in entries] == offsets
    assert await other.read_log(key_of(), offsets[1], 1) == entries[2:3]
    assert await other.read_log(key_of(), offsets[-1], 10) == []
    assert await other.read_log(key_of("never was"), None, 10) == []


@pytest.mark.parametrize("offset", ["", "x", "1", "-", "+", "1-", "99999999999999999999999-1", "1-1\n"])
async def test_an_offset_that_is_none_reads_from_the_start(store: RedisStore, offset: str) -> None:
    await create(store, key_of(), status="working")
    await store.append(key_of(), OURS, b"first")
    assert [entry.message for entry in await store.read_log(key_of(), offset, 10)] == [b"first"]


async def test_I10_a_full_log_lets_the_oldest_go(world: World) -> None:
    store = world.store(log_length=3)
    await create(store, key_of(), status="working")
    for number in range(10):
        await store.append(key_of(), OURS, b"%d" % number)
    assert [entry.message for entry in await store.read_log(key_of(), None, 100)] == [b"7", b"8", b"9"]


async def test_a_log_outlives_the_end_of_its_task(store: RedisStore) -> None:
    await create(store, key_of(), status="working")
    await store.append(key_of(), OURS, b"the answer")
    await store.finish(key_of(), OURS, DONE)
    assert [entry.message for entry in await store.read_log(key_of(), None, 10)] == [b"the answer"]
