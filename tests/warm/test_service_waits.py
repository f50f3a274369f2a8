"""Waiting for a task: one reader of the store for all who wait, and nothing asked while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from gateway.service import hub
from gateway.service.hub import Bell, State
from gateway.tasks.model import TaskKey
from tests.warm.service_world import ALICE, WAIT, Replica, ScriptedChannel, memory

KEY = TaskKey(ALICE, "t")
Pair = tuple[Replica, Replica]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    url = memory()
    one, two = Replica(url, "r1"), Replica(url, "r2")
    await one.open()
    await two.open()
    yield one, two
    await one.close()
    await two.close()


async def next_of(states: AsyncGenerator[State | None, None]) -> State | None:
    async with asyncio.timeout(WAIT):
        return await anext(states)


async def test_all_who_wait_on_a_replica_share_its_reads(pair: Pair) -> None:
    one, two = pair
    channel = ScriptedChannel()
    await one.begin("t", channel)
    await channel.called()
    await one.reach("t", "working")
    waiting = [two.service.readers.wait(KEY, 60) for _ in range(50)]
    first = await next_of(waiting[0])
    assert first is not None
    assert first[0].status == "working"
    two.operations.clear()
    for states in waiting[1:]:
        assert await next_of(states) == first
    assert two.operations == []
    channel.finish()
    for states in waiting:
        ended = await next_of(states)
        assert ended is not None
        assert ended[0].status == "completed"
        with pytest.raises(StopAsyncIteration):
            await next_of(states)
    # One for each change that was told, however many wait.
    assert 1 <= two.operations.count("outcome") <= 3
    assert len(two.service.hub) == 0


@pytest.mark.parametrize("patience", [0.01, 0.05])
async def test_a_wait_tells_that_nothing_has_happened_with_and_without_a_timer_of_its_own(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(hub, "_ROUND_SECONDS", 0.02)
    one, two = pair
    channel = ScriptedChannel()
    await one.begin("t", channel)
    await channel.called()
    await one.reach("t", "working")
    async with aclosing(two.service.readers.wait(KEY, patience)) as states:
        assert await next_of(states) is not None
        two.operations.clear()
        assert [await next_of(states) for _ in range(3)] == [None] * 3
    assert two.operations == []
    assert len(two.service.hub) == 0
    channel.finish()


async def test_a_task_of_which_nothing_is_heard_is_looked_at_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_ROUND_SECONDS", 0.02)
    monkeypatch.setattr(hub, "_LOOK_AGAIN_SECONDS", 0.05)
    one, two = pair
    channel = ScriptedChannel()
    await one.begin("t", channel)
    await channel.called()
    await one.reach("t", "working")
    async with aclosing(two.service.readers.wait(KEY, 60)) as states:
        assert await next_of(states) is not None
        # Gone without a word, as with a store that was emptied.
        await two.store.link.quick.ask((b"FLUSHALL",))
        with pytest.raises(StopAsyncIteration):
            await next_of(states)
    assert len(two.service.hub) == 0
    channel.finish()


async def test_a_wait_that_is_stopped_ends_at_once_and_leaves_nothing(pair: Pair) -> None:
    one, two = pair
    channel = ScriptedChannel()
    await one.begin("t", channel)
    await channel.called()
    bell = Bell()
    other = two.service.readers.wait(KEY, 60)
    async with aclosing(two.service.readers.wait(KEY, 60, bell)) as states:
        assert await next_of(states) is not None
        assert await next_of(other) is not None
        bell.stop()
        while True:
            try:
                await next_of(states)
            except StopAsyncIteration:
                break
    assert len(two.service.hub) == 1
    await other.aclose()
    assert len(two.service.hub) == 0
    channel.finish()


async def test_nobody_waits_for_a_task_that_is_not_there(pair: Pair) -> None:
    _, two = pair
    with pytest.raises(StopAsyncIteration):
        await next_of(two.service.readers.wait(KEY, 60))
    assert len(two.service.hub) == 0
