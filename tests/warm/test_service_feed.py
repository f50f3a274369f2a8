"""The bounded queue of one client stream (I10)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from gateway.service.feed import Feed, News
from gateway.tasks.model import Outcome, Task
from tests.cold.playbook import make_task

TASK: Task = make_task("t", "working")


def news(size: int) -> News:
    return News("message", TASK, b"x" * size)


def final() -> News:
    return News("final", TASK, outcome=Outcome(status="completed", result=b"{}"))


async def test_what_was_put_comes_out_in_order() -> None:
    feed = Feed(1_000)
    sizes = [3, 1, 2]
    for size in sizes:
        assert feed.put(news(size))
    feed.end()
    found = [await feed.get() for _ in range(4)]
    assert [len(item.message) for item in found[:3] if isinstance(item, News)] == sizes
    assert found[3] is None


async def test_I10_news_that_does_not_fit_ends_the_feed_and_keeps_what_is_queued() -> None:
    feed = Feed(10)
    assert feed.put(news(6))
    assert not feed.put(news(6))
    assert not feed.open
    assert not feed.put(news(1))
    assert isinstance(await feed.get(), News)
    assert await feed.get() is None


async def test_the_final_response_always_fits_an_open_feed() -> None:
    feed = Feed(10)
    feed.put(news(10))
    assert feed.put(final())
    feed.end()
    kinds = [item.kind for item in (await feed.get(), await feed.get()) if isinstance(item, News)]
    assert kinds == ["message", "final"]


async def test_what_was_read_makes_room() -> None:
    feed = Feed(10)
    for _ in range(100):
        assert feed.put(news(10))
        await feed.get()
    assert feed.open


async def test_a_feed_of_the_final_response_alone_takes_nothing_else() -> None:
    feed = Feed(10, only_final=True)
    assert not feed.open
    assert not feed.put(news(1))
    assert feed.put(final())
    item = await feed.get()
    assert isinstance(item, News)
    assert item.kind == "final"


async def test_I10_raw_bytes_wait_for_room_and_stop_when_the_feed_ends() -> None:
    feed = Feed(10)
    assert await feed.put_raw(b"x" * 11)
    waiting = asyncio.create_task(feed.put_raw(b"later"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await feed.get() == b"x" * 11
    assert await waiting
    assert await feed.put_raw(b"x" * 11)
    stuck = asyncio.create_task(feed.put_raw(b"never"))
    await asyncio.sleep(0)
    feed.end()
    assert not await stuck


async def test_a_reader_is_told_that_nothing_came_and_reads_on() -> None:
    feed = Feed(10)
    assert await feed.get(0.001) == b""
    feed.put(news(1))
    assert isinstance(await feed.get(0.001), News)


async def test_a_reader_that_waits_is_woken_by_the_end() -> None:
    feed = Feed(10)
    reading = asyncio.create_task(feed.get())
    await asyncio.sleep(0)
    feed.end()
    assert await reading is None


@pytest.mark.parametrize("turn", list(itertools.permutations(["put", "end", "get"])))
async def test_no_order_of_putting_ending_and_reading_hangs(turn: tuple[str, ...]) -> None:
    feed = Feed(10)
    reading: asyncio.Task[News | bytes | None] | None = None
    for step in turn:
        if step == "put":
            feed.put(news(1))
        elif step == "end":
            feed.end()
        else:
            reading = asyncio.create_task(feed.get())
            await asyncio.sleep(0)
    assert reading is not None
    async with asyncio.timeout(1):
        item = await reading
    assert (item is None) == (turn.index("end") < turn.index("put"))
