"""Moves of tasks in the store: the table holds, whoever asks and however many at once (I4)."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from gateway.protocol.errors import IllegalMove
from gateway.store.port import Claim
from gateway.store.redis import RedisStore
from gateway.tasks.machine import MOVES, TERMINAL
from gateway.tasks.model import Outcome, Status
from tests.contract.conftest import World
from tests.contract.making import DONE, OURS, create, key_of, pending

STATUSES: tuple[Status, ...] = get_args(Status)


@pytest.mark.parametrize("target", STATUSES)
@pytest.mark.parametrize("source", STATUSES)
async def test_I4_a_task_moves_only_where_the_table_says(
    store: RedisStore, source: Status, target: Status
) -> None:
    key = key_of()
    await create(store, key, status=source)
    try:
        await _move(store, target)
    except IllegalMove as error:
        assert (error.status, error.target) == (source, target)
    task = await store.get(key)
    assert task is not None
    moved = task.status == target
    assert moved == (target in MOVES[source] or source == target)
    if not moved:
        assert task.status == source


async def _move(store: RedisStore, target: Status) -> None:
    key = key_of()
    if target == "cancelled":
        await store.cancel(key, "no longer wanted")
    elif target in TERMINAL:
        await store.finish(key, OURS, Outcome(status=target))
    elif target == "input_required":
        await store.ask(key, OURS, pending())
    elif target == "working":
        await store.start(key, OURS)
        await store.take_pending(key, "q1")


@pytest.mark.parametrize("status", ["submitted", "working", "input_required"])
async def test_I4_finish_refuses_a_status_that_is_no_end(store: RedisStore, status: Status) -> None:
    await create(store, key_of(), status="working")
    with pytest.raises(IllegalMove):
        await store.finish(key_of(), OURS, Outcome(status=status))
    task = await store.get(key_of())
    assert task is not None and task.status == "working"


async def test_I4_of_two_ends_at_once_exactly_one_wins(store: RedisStore, other: RedisStore) -> None:
    for round_number in range(20):
        key = key_of(f"t{round_number}")
        await create(store, key, status="working")
        finished, cancelled = await asyncio.gather(
            store.finish(key, OURS, DONE), other.cancel(key, "stop"), return_exceptions=True
        )
        task = await store.get(key)
        assert task is not None
        if finished is None:
            assert not isinstance(cancelled, BaseException) and task.status == "cancelled"
        else:
            assert isinstance(cancelled, IllegalMove) and task.status == "completed"


async def test_I4_of_many_finishes_exactly_one_wins(store: RedisStore, other: RedisStore) -> None:
    await create(store, key_of(), status="working")
    ends: tuple[Status, ...] = ("completed", "failed", "unknown", "cancelled")
    results = await asyncio.gather(
        *(place.finish(key_of(), OURS, Outcome(status=end)) for end in ends for place in (store, other))
    )
    (winner,) = [task for task in results if task is not None]
    assert await store.get(key_of()) == winner


async def test_I4_cancel_of_an_ended_task_raises_and_of_none_returns_none(store: RedisStore) -> None:
    ended = await create(store, key_of(), status="failed")
    with pytest.raises(IllegalMove) as caught:
        await store.cancel(key_of(), "late")
    assert (caught.value.status, caught.value.target) == ("failed", "cancelled")
    assert await store.get(key_of()) == ended
    assert await store.cancel(key_of("never was"), "late") is None


async def test_a_start_moves_once_and_keeps_its_first_time(store: RedisStore) -> None:
    await create(store, key_of())
    first = await store.start(key_of(), OURS)
    assert first is not None and first.status == "working" and first.started_at is not None
    again = await store.start(key_of(), OURS)
    assert again is not None and again.started_at == first.started_at


async def test_an_end_says_what_happened_in_record_and_outcome(store: RedisStore) -> None:
    await create(store, key_of(), status="working")
    outcome = Outcome(
        status="failed", rpc_error=b'{"code":-32000}', error="the upstream said no", is_error=True
    )
    task = await store.finish(key_of(), OURS, outcome)
    assert task is not None
    assert (task.status, task.error, task.is_error) == ("failed", "the upstream said no", True)
    assert task.ended_at is not None and task.ended_at >= task.created_at
    assert await store.outcome(key_of()) == (task, outcome)


async def test_a_cancelled_task_has_an_outcome_with_the_words(store: RedisStore) -> None:
    await create(store, key_of(), status="working")
    assert (await store.outcome(key_of())) is not None
    task = await store.cancel(key_of(), "the client cancelled")
    assert task is not None
    found = await store.outcome(key_of())
    assert found == (task, Outcome(status="cancelled", error="the client cancelled"))


async def test_before_the_end_there_is_no_outcome(store: RedisStore) -> None:
    task = await create(store, key_of(), status="working")
    assert await store.outcome(key_of()) == (task, None)
    assert await store.outcome(key_of("never was")) is None


async def test_fields_of_a_later_version_survive_every_move(world: World, store: RedisStore) -> None:
    key = key_of()
    await create(store, key)
    record = store.link.keys.record(key)
    await world.redis.hset(record, "of_a_later_version", "kept")
    await store.start(key, OURS)
    await store.ask(key, OURS, pending())
    await store.take_pending(key, "q1")
    await store.note(key, OURS, "half")
    await store.finish(key, OURS, DONE)
    assert await world.redis.hget(record, "of_a_later_version") == b"kept"
    assert await world.redis.hget(record, "version") == b"1"


@pytest.mark.parametrize("claim", [Claim("r2", 1), Claim("r1", 2), Claim("r1", 0)])
async def test_nobody_but_the_owner_of_the_epoch_writes(store: RedisStore, claim: Claim) -> None:
    before = await create(store, key_of(), status="input_required")
    assert await store.start(key_of(), claim) is None
    assert await store.ask(key_of(), claim, pending("q2")) is None
    assert await store.drop_pending(key_of(), claim, b"7") is None
    assert await store.note(key_of(), claim, "mine") is False
    assert await store.append(key_of(), claim, b"{}") is None
    assert await store.finish(key_of(), claim, DONE) is None
    assert await store.get(key_of()) == before


async def test_after_the_end_every_write_is_a_soft_no_op(store: RedisStore) -> None:
    before = await create(store, key_of(), status="completed")
    assert await store.start(key_of(), OURS) is None
    assert await store.ask(key_of(), OURS, pending("q2")) is None
    assert await store.drop_pending(key_of(), OURS, b"7") is None
    assert await store.note(key_of(), OURS, "late") is False
    assert await store.append(key_of(), OURS, b"{}") is None
    assert await store.finish(key_of(), OURS, DONE) is None
    assert await store.get(key_of()) == before


async def test_a_task_removed_while_it_runs_is_finished_softly(
    store: RedisStore, other: RedisStore
) -> None:
    was = await create(store, key_of(), status="working")
    assert await other.remove(key_of()) == was
    assert await store.finish(key_of(), OURS, DONE) is None
    assert await store.get(key_of()) is None
    assert await other.remove(key_of()) is None
