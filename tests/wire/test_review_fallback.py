"""A creation whose answer is lost: the store may have the task all the same (I3 against I9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, TypeVar

import pytest
import pytest_asyncio

from gateway.store.scripts import CREATE
from tests.troubled import Troubled
from tests.wire.raw_upstream import soon
from tests.wire.recovery_world import LEASE, Doomed, command
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, WAIT, new_id, refusal
from tests.wire.stateless_client import Stateless

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("cuts the gateway that it speaks to off from Redis"),
]
ONE_BY_ONE: Final = "one_by_one"
T = TypeVar("T")


class CutOff:
    """Two replicas; the first one is cut off from Redis when that has taken a task and not yet said so."""

    def __init__(self, world: Doomed, way: Troubled) -> None:
        self.world = world
        self._way = way

    async def in_the_midst_of(self, creation: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let a creation begin, and cut the replica off."""
        asked = asyncio.Event()

        def on_its_way(chunk: bytes) -> None:
            if CREATE.sha in chunk:
                self._way.cut_after(0)
                asked.set()

        before = len(await self._tasks())
        self._way.on_request = on_its_way
        creating = asyncio.create_task(creation)
        async with asyncio.timeout(WAIT):
            await asked.wait()
        await soon(lambda: self._way.reply_bytes_left is None)
        self._way.shut()
        assert len(await self._tasks()) == before + 1
        return creating

    async def _tasks(self) -> list[str]:
        return await command(self.world.redis, "KEYS", f"{self.world.config['store']['prefix']}*:t:*")


@pytest_asyncio.fixture(loop_scope="session")
async def cut_off(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[CutOff]:
    world = Doomed(scripted, redis_url, tmp_path_factory.mktemp("fallback"))
    async with Troubled.to(redis_url) as way:
        store = {"url": way.url, "prefix": world.config["store"]["prefix"], "timeout": "500ms"}
        await world.start(store=store)
        await world.start()
        # Nothing is claimed before a whole lease of contact.
        await asyncio.sleep(2 * LEASE)
        yield CutOff(world, way)
        way.open_again()
        await world.end()


async def test_I3_a_what_another_replica_may_begin_does_not_run_as_an_ordinary_request_too(
    cut_off: CutOff, scripted: Upstream
) -> None:
    first, second = new_id(), new_id()
    async with cut_off.world.client("Bearer fallback") as seed:
        stream = await seed.begin(first, tool(first, ONE_BY_ONE), ident=1)
        await scripted.called(first)
        await stream.notification(CREATED)
        creating = await cut_off.in_the_midst_of(seed.begin(second, tool(second, ONE_BY_ONE), ident=2))
        other = seed.twin(cut_off.world.url(1))
        call = await scripted.called(second)
        await other.reach(second, "working", seconds=10 * LEASE)
        call.finish(text("once"))
        assert "store" in refusal(await (await creating).response(2))[1]
        await other.reach(second, "completed")
        assert len(scripted.calls[second]) == 1


async def test_I3_c_what_another_replica_may_begin_does_not_run_as_an_ordinary_request_too(
    cut_off: CutOff, scripted: Upstream
) -> None:
    first, second = new_id(), new_id()
    async with Stateless(cut_off.world.url(0), authorization="Bearer fallback c") as client:
        await client.call(ONE_BY_ONE, {"key": first})
        await scripted.called(first)
        creating = await cut_off.in_the_midst_of(client.call(ONE_BY_ONE, {"key": second}))
        call = await scripted.called(second)
        await asyncio.sleep(4 * LEASE)
        call.finish(text("once"))
        assert "store" in (await creating).refusal[2]
        assert len(scripted.calls[second]) == 1
