"""The book of sessions: bounded, ended ones are refused, and the store is not waited for (I9, I10)."""

from __future__ import annotations

import pytest

from gateway.protocol.errors import Refusal
from gateway.session.book import IDLE_SECONDS, SessionBook
from gateway.session.token import Session
from gateway.store.redis import RedisStore, open_store
from tests.redis_servers import find_servers, start
from tests.warm.service_world import HandClock, memory


class Counts:
    """The number of sessions by upstream, as the gauge hears it."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}

    def __call__(self, upstream: str, count: int) -> None:
        self.now[upstream] = count


class World:
    def __init__(self, store: RedisStore, limit: int = 3) -> None:
        self.clock = HandClock()
        self.counts = Counts()
        self.store = store
        self.book = SessionBook(store, self.clock, limit, self.counts)

    def refused(self) -> Refusal | None:
        """Return how a new session is refused, if it is."""
        try:
            self.book.admit()
        except Refusal as refusal:
            return refusal
        return None


def session(tag: str, upstream: str = "reports") -> Session:
    return Session(tag, upstream, None, False, "2025-06-18", False)


@pytest.fixture
def world() -> World:
    return World(open_store(memory()))


async def test_I10_sessions_that_were_only_opened_count(world: World) -> None:
    for number in range(3):
        assert world.refused() is None
        world.book.note(session(f"s{number}"))
    refused = world.refused()
    assert refused is not None
    assert refused.status == 503
    assert refused.data is not None
    assert (refused.data["limit"], refused.data["max"]) == ("sessions", 3)
    assert refused.retry_after is not None
    assert world.counts.now == {"reports": 3}


async def test_29_idle_sessions_make_room_and_busy_ones_stay(world: World) -> None:
    for number in range(3):
        world.book.note(session(f"s{number}"))
    world.clock.move(IDLE_SECONDS / 4 + 1)
    await world.book.touch(session("s1"))
    assert world.refused() is None
    assert len(world.book) == 1
    # The token of an idle one stays good.
    await world.book.touch(session("s0"))
    assert len(world.book) == 2


async def test_the_same_session_counts_once(world: World) -> None:
    for _ in range(10):
        await world.book.touch(session("s"))
        world.book.note(session("s"))
    assert world.counts.now == {"reports": 1}


async def test_sessions_are_counted_by_upstream(world: World) -> None:
    world.book.note(session("a", "one"))
    world.book.note(session("b", "two"))
    world.book.forget("a")
    world.book.forget("unknown")
    assert world.counts.now == {"one": 0, "two": 1}


async def test_I6_an_ended_session_is_refused_here_and_at_a_replica_that_sees_it_first(
    world: World,
) -> None:
    await world.book.touch(session("s"))
    await world.book.end(session("s"))
    other = World(world.store)
    for book in (world.book, other.book):
        with pytest.raises(Refusal) as refused:
            await book.touch(session("s"))
        assert (refused.value.code, refused.value.status) == (-32001, 404)
    assert world.counts.now == {"reports": 0}


async def test_I10_the_memory_of_ended_sessions_is_bounded_and_the_store_still_knows_them(
    world: World,
) -> None:
    for number in range(20):
        await world.book.end(session(f"s{number}"))
    with pytest.raises(Refusal):
        await world.book.touch(session("s0"))


async def test_I9_without_the_store_sessions_are_let_in_and_only_the_first_waits() -> None:
    found = find_servers()
    if not found:
        pytest.skip("no Redis server here")
    server = start(next(iter(found.values())))
    store = open_store(server.url, timeout=0.1)
    try:
        world = World(store, limit=100)
        await world.book.touch(session("before"))
        server.hang()
        for number in range(50):
            await world.book.touch(session(f"s{number}"))
        await world.book.end(session("s1"))
        with pytest.raises(Refusal):
            await world.book.touch(session("s1"))
        assert world.counts.now == {"reports": 50}
    finally:
        server.close()
        await store.close()
