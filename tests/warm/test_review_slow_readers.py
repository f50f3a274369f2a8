"""What waits for a client that reads slowly: weighed with the results that it carries (I10)."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.service.feed import Feed, News
from gateway.tasks.model import Outcome, Task
from tests.cold.playbook import make_task

TASK: Final[Task] = make_task("t", "completed")
LIMIT: Final = 10_000


def ended(size: int) -> News:
    return News("status", TASK, outcome=Outcome(status="completed", result=b"x" * size))


async def test_I10_a_status_weighs_what_its_result_weighs() -> None:
    feed = Feed(LIMIT)
    assert feed.put(ended(6_000))
    assert not feed.put(ended(6_000))
    assert not feed.open


async def test_I10_statuses_without_results_are_not_kept_without_end() -> None:
    feed = Feed(LIMIT)
    taken = 0
    while feed.put(News("status", TASK)):
        taken += 1
    assert 0 < taken < LIMIT


async def test_a_result_that_is_larger_than_the_queue_is_taken_alone() -> None:
    feed = Feed(LIMIT)
    assert feed.put_now(ended(LIMIT * 2))
    assert not feed.put_now(ended(1))
    assert feed.open
    assert isinstance(await feed.get(), News)
    assert feed.put_now(ended(1))


async def test_what_does_not_fit_waits_until_the_client_has_read() -> None:
    feed = Feed(LIMIT)
    assert await feed.put_later(ended(6_000))
    waiting = asyncio.ensure_future(feed.put_later(ended(7_000)))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert isinstance(await feed.get(), News)
    assert await waiting
    last = await feed.get()
    assert isinstance(last, News)
    assert last.outcome is not None
    assert len(last.outcome.result or b"") == 7_000


async def test_nobody_waits_at_a_feed_that_has_ended() -> None:
    feed = Feed(LIMIT)
    await feed.put_later(ended(6_000))
    waiting = asyncio.ensure_future(feed.put_later(ended(7_000)))
    await asyncio.sleep(0)
    feed.end()
    assert not await waiting
