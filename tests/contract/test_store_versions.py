"""The stored form of the next version, read and written by this one while both run (rolling deploys).

What the next version may do: more fields in a record, more in what is packed, statuses and dialects that
are not known here, commands of other kinds. It may not change what a field of today means.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.protocol.errors import IllegalMove
from gateway.store.bus import RedisBus
from gateway.store.keys import Keys
from gateway.store.port import Command
from gateway.store.redis import RedisStore
from gateway.tasks.model import Outcome
from tests.contract.conftest import World
from tests.contract.making import DONE, OURS, SCOPE, create, key_of, pending

_KEY = key_of()
_RECORD = Keys().record(_KEY)
_MORE = {b"next": b"1", b"next:list": msgspec.msgpack.encode([1, {"a": 2}]), b"version": b"2"}


@pytest.fixture
async def newer(world: World, store: RedisStore) -> RedisStore:
    """Return the store with a task that the next version has made."""
    await create(store, _KEY)
    await world.redis.hset(_RECORD, mapping=_MORE)
    await _repack(world, b"made", next={"deep": [1]}, tags=["x"])
    return store


async def _repack(world: World, field: bytes, **more: object) -> None:
    packed = msgspec.msgpack.decode(await world.redis.hget(_RECORD, field))
    await world.redis.hset(_RECORD, field, msgspec.msgpack.encode({**packed, **more}))


async def _kept(world: World) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = await world.redis.hgetall(_RECORD)
    return {name: value for name, value in found.items() if name in _MORE}


async def test_fields_that_are_not_known_survive_every_write(world: World, newer: RedisStore) -> None:
    task = await newer.get(_KEY)
    assert task is not None and (task.version, task.tool) == (2, "render")
    assert await newer.start(_KEY, OURS) is not None
    assert await newer.ask(_KEY, OURS, pending("q1", b"1")) is not None
    assert await newer.take_pending(_KEY, "q1") is not None
    assert await newer.note(_KEY, OURS, "half")
    assert await newer.append(_KEY, OURS, b"{}") is not None
    assert await newer.finish(_KEY, OURS, DONE) is not None
    assert await _kept(world) == _MORE
    made = msgspec.msgpack.decode(await world.redis.hget(_RECORD, "made"))
    assert (made["next"], made["tags"]) == ({"deep": [1]}, ["x"])
    assert [task.version for task in (await newer.page(SCOPE, None, 10))[0]] == [2]


async def test_a_task_of_the_next_version_is_taken_over_whole(world: World, newer: RedisStore) -> None:
    await newer.renew([_KEY], "r1", 0)
    (taken,) = await newer.claim_lost("r2", 1_000, 10)
    assert (taken.owner, taken.epoch) == ("r2", 2)
    assert await _kept(world) == _MORE


async def test_a_dialect_that_is_not_known_is_none(world: World, newer: RedisStore) -> None:
    await _repack(world, b"made", dialect="d", kept_from="noon")
    task = await newer.get(_KEY)
    assert task is not None and (task.dialect, task.kept_from) == ("none", "end")


@pytest.mark.parametrize(("ended_at", "status"), [(None, "working"), (b"1", "unknown")])
async def test_I4_a_status_that_is_not_known_is_shown_as_what_it_is_near_and_not_touched(
    world: World, newer: RedisStore, ended_at: bytes | None, status: str
) -> None:
    await world.redis.hset(_RECORD, "status", b"paused")
    if ended_at is not None:
        await world.redis.hset(_RECORD, "ended", ended_at)
    task = await newer.get(_KEY)
    assert task is not None and task.status == status
    assert await newer.start(_KEY, OURS) is None
    assert await newer.finish(_KEY, OURS, DONE) is None
    with pytest.raises(IllegalMove):
        await newer.cancel(_KEY, "stop")
    assert await world.redis.hget(_RECORD, "status") == b"paused"
    assert [task.status for task in (await newer.page(SCOPE, None, 10))[0]] == [status]


async def test_an_outcome_with_more_in_it_is_read(world: World, newer: RedisStore) -> None:
    await newer.finish(_KEY, OURS, DONE)
    packed = msgspec.msgpack.decode(await world.redis.get(Keys().outcome(_KEY)))
    packed |= {"status": "lapsed", "next": [1]}
    await world.redis.set(Keys().outcome(_KEY), msgspec.msgpack.encode(packed), keepttl=True)
    found = await newer.outcome(_KEY)
    assert found is not None
    assert found[1] == Outcome(status="unknown", result=DONE.result)


async def test_a_question_with_more_in_it_is_read_and_answered(world: World, newer: RedisStore) -> None:
    await newer.ask(_KEY, OURS, pending("q1", b"7"))
    stored: bytes = await world.redis.hget(_RECORD, "p:q1")
    head, rest = stored[: stored.index(b"7\x84") + 1], stored[stored.index(b"7\x84") + 1 :]
    more = msgspec.msgpack.encode({**msgspec.msgpack.decode(rest), "next": 1})
    await world.redis.hset(_RECORD, "p:q1", head + more)
    taken = await newer.take_pending(_KEY, "q1")
    assert taken is not None and taken[1] == pending("q1", b"7")


async def test_commands_of_other_kinds_are_left_out_quietly_and_more_fields_do_no_harm(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bus = RedisBus(world.link(), "r2")
    async with bus.watch(_KEY) as bell, asyncio.timeout(10):
        await bell.wait()
    sent: dict[str, Any] = {
        "kind": "cancel",
        "upstream": b"reports",
        "tag": b"alice",
        "task_id": b"t1",
        "digest": "",
        "message": b"",
    }
    for words in (
        {**sent, "kind": "wave"},
        {"kind": "wave"},
        {**sent, "tag": b"\xff"},
        {**sent, "next": 1},
    ):
        await world.redis.publish("mtg:to:r2", msgspec.msgpack.encode(words))
    async with asyncio.timeout(10):
        assert await anext(bus.commands()) == Command("cancel", _KEY)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    await bus.close()
