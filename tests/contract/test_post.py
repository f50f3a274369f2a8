"""Letters and parcels between replicas, who owns a link, and what sessions are about, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.store.bus import RedisBus
from gateway.store.kept import RedisKept
from gateway.store.post import RedisPost
from tests.contract.conftest import World


class Reader:
    """A replica that takes letters."""

    def __init__(self, world: World, replica: str) -> None:
        link = world.link()
        self.bus = RedisBus(link, replica)
        self.post = RedisPost(link, self.bus, replica)
        self.letters: asyncio.Queue[bytes] = asyncio.Queue()
        self.made = asyncio.Event()
        self.post.take(self.letters.put_nowait, self.made.set)
        self.listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for _ in self.bus.commands():
            pass

    async def close(self) -> None:
        await self.bus.close()
        await self.listening


@pytest.fixture
async def pair(world: World) -> AsyncIterator[tuple[Reader, Reader]]:
    """Return two replicas that hear."""
    both = Reader(world, "a"), Reader(world, "b")
    async with asyncio.timeout(10):
        for one in both:
            await one.made.wait()
    yield both
    for one in both:
        await one.close()


async def test_letters_come_in_order_and_a_parcel_is_fetched_once(pair: tuple[Reader, Reader]) -> None:
    one, other = pair
    assert other.post.hears
    for number in range(50):
        assert await one.post.send("b", b"%d" % number)
    async with asyncio.timeout(10):
        assert [await other.letters.get() for _ in range(50)] == [b"%d" % number for number in range(50)]
    assert one.letters.empty()
    large = bytes(range(256)) * 40_000
    await one.post.leave("x", large)
    assert await other.post.fetch("x") == large
    assert await other.post.fetch("x") is None


async def test_a_letter_that_nobody_can_hear_is_told(pair: tuple[Reader, Reader]) -> None:
    assert await pair[0].post.send("nobody", b"x") is False


async def test_I6_a_link_has_one_owner_until_it_gives_it_up_or_falls_silent(
    pair: tuple[Reader, Reader],
) -> None:
    one, other = pair[0].post, pair[1].post
    assert await one.owner("u", "t") is None
    owners = await asyncio.gather(one.own("u", ["t", "s"], 60_000), other.own("u", ["t", "s"], 60_000))
    assert owners[0] == owners[1]
    assert await one.own("u", ["t"], 60_000, gone=owners[0][0]) == ["a"]
    assert await other.own("u", ["t"], 60_000) == ["a"]
    await other.disown("u", ["t"])
    assert await other.owner("u", "t") == "a"
    await one.disown("u", ["t"])
    assert await other.own("u", ["t"], 30) == ["b"]
    async with asyncio.timeout(10):
        while await one.own("u", ["t"], 60_000) != ["a"]:  # noqa: ASYNC110 an expiry is waited for
            await asyncio.sleep(0.005)
    assert await one.owner("v", "t") is None
    await one.disown("u", ["t", "s"])
    await other.disown("u", ["s"])


async def test_I8_what_a_session_is_about_is_kept_for_a_while(world: World) -> None:
    link = world.link()
    kept = RedisKept(link, RedisBus(link, "r1"))
    assert await kept.read("u", "t") == {}
    await kept.write("u", "t", {"level": "info", "uri:file:///ä": ""})
    await kept.write("u", "t", {"level": "debug", "uri:x": ""})
    await kept.write("u", "t", {"uri:x": None})
    assert await kept.read("u", "t") == {"level": "debug", "uri:file:///ä": ""}
    assert await kept.read("u", "other") == {}
    await kept.write("u", "s", {"level": "info"})
    await kept.forget("u", "t")
    assert await kept.read("u", "t") == {}
