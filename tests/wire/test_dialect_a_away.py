"""Dialect A while Redis is away or has lost its memory (I9; design section 5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests import redis_servers
from tests.balancers import CHOICE
from tests.redis_servers import RedisServer
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import NOT_FOUND, PAUSE, WAIT, Seed, new_id, refusal
from tests.wire.seed_world import House, configuration, started

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def shaky(
    scripted: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[House, RedisServer]]:
    """Serve with a Redis of the test's own."""
    found = redis_servers.find_servers()
    if not found:
        pytest.skip("no Redis server here")
    redis = redis_servers.start(found.get("valkey") or list(found.values())[-1])
    config = configuration(scripted, redis.url)
    config["store"]["timeout"] = "300ms"
    gateway = await started(config, tmp_path_factory.mktemp("shaky"))
    yield House(scripted, [gateway], redis.url), redis
    await asyncio.to_thread(gateway.end)
    redis.close()


async def back(seed: Seed) -> None:
    """Wait until the gateway has its store again, and each replica that may be behind its port."""
    async with asyncio.timeout(WAIT):
        good = 0
        while good < CHOICE.doors:
            good = good + 1 if refusal(await seed.get("nothing")) == NOT_FOUND else 0
            await asyncio.sleep(0 if good else PAUSE)


async def test_I9_plain_traffic_and_running_tasks_outlive_redis(shaky: tuple[House, RedisServer]) -> None:
    house, redis = shaky
    async with house.client("Bearer away") as seed:
        task, plain, must = new_id(), new_id(), new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await house.upstream.called(task)
        await seed.reach(task, "working")
        redis.hang()
        assert "result" in await seed.ask("ping")
        code, words = refusal(await seed.get(task))
        assert code == -32603
        assert "store" in words
        async with asyncio.TaskGroup() as group:
            posting = group.create_task(seed.begin(plain, tool(plain), ident=2))
            (await house.upstream.called(plain)).finish(text("as ever"))
        assert (await posting.result().response(2))["result"] == text("as ever")
        refused = await (await seed.begin(must, tool(must, "task_or_nothing"), ident=3)).response(3)
        assert "store" in refusal(refused)[1]
        assert not house.upstream.calls[must]
        call.finish(text("meanwhile"))
        assert (await stream.response(1))["result"]["content"] == text("meanwhile")["content"]
        redis.wake()
        await back(seed)
        await seed.reach(task, "completed")
        assert (await seed.fetch(task))["result"]["content"] == text("meanwhile")["content"]
        assert refusal(await seed.get(plain)) == NOT_FOUND
        assert not call.is_cancelled


async def test_tasks_that_redis_forgot_are_not_found_and_stop(shaky: tuple[House, RedisServer]) -> None:
    house, redis = shaky
    async with house.client("Bearer forgotten") as seed:
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await house.upstream.called(task)
        await seed.reach(task, "working")
        redis.stop()
        redis.start()
        await back(seed)
        assert refusal(await seed.get(task)) == NOT_FOUND
        await call.cancelled()
        assert "error" in await stream.response(1)
        again = new_id()
        await seed.begin(again, tool(again))
        (await house.upstream.called(again)).finish()
        await seed.reach(again, "completed")
