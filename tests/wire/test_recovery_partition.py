"""A replica that is cut off from Redis alone, and Redis that is away for all (I3, I4, I9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.troubled import Troubled
from tests.wire.recovery_world import LEASE, Doomed
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, Seed, new_id

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("cuts the gateways that it speaks to off from Redis"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def proxies(redis_url: str) -> AsyncIterator[list[Troubled]]:
    """Lead to Redis by two ways."""
    async with Troubled.to(redis_url) as one, Troubled.to(redis_url) as other:
        yield [one, other]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair(
    scripted: Upstream, redis_url: str, proxies: list[Troubled], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Doomed]:
    """Serve by two replicas, each with a way of its own to Redis."""
    world = Doomed(scripted, redis_url, tmp_path_factory.mktemp("cut"))
    prefix = world.config["store"]["prefix"]
    for proxy in proxies:
        await world.start(store={"url": proxy.url, "prefix": prefix, "timeout": "500ms"})
    yield world
    for proxy in proxies:
        proxy.open_again()
    await world.end()


async def test_I3_a_replica_that_is_cut_off_from_redis_loses_its_tasks_and_keeps_silent(
    pair: Doomed, proxies: list[Troubled]
) -> None:
    async with pair.client("Bearer partition") as seed:
        other = seed.twin(pair.url(1))
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await pair.upstream.called(task)
        call.raw(f"id: {task}.1\ndata:\n\n".encode())
        await stream.notification(CREATED)
        await pair.placed(task)
        # Nothing is claimed before a whole lease of contact.
        await asyncio.sleep(2 * LEASE)
        proxies[0].shut()
        assert await call.resumes() == f"{task}.1"
        await call.say_on_first({"jsonrpc": "2.0", "id": "past", "method": "ping"})
        await call.say_on_first({"jsonrpc": "2.0", "id": call.ident, "result": text("wrong")})
        call.finish(text("right"))
        await other.reach(task, "completed", seconds=10 * LEASE)
        proxies[0].open_again()
        told = [m for m in await stream.rest() if "result" in m or "error" in m]
        assert [m["result"]["content"] for m in told] in ([], [text("right")["content"]])
        assert (await seed.fetch(task))["result"]["content"] == text("right")["content"]
        assert pair.upstream.answers(call) == []
        assert not call.is_cancelled
        assert len(pair.upstream.calls[task]) == 1


async def test_I9_an_outage_for_all_that_outlasts_the_lease_leaves_each_task_with_its_replica(
    pair: Doomed, proxies: list[Troubled]
) -> None:
    async with pair.client("Bearer outage") as seed, Seed(pair.url(1), "Bearer outage") as other:
        tasks = [new_id(), new_id()]
        streams = [
            await client.begin(task, tool(task), ident=1)
            for client, task in zip((seed, other), tasks, strict=True)
        ]
        calls = [await pair.upstream.called(task) for task in tasks]
        for stream in streams:
            await stream.notification(CREATED)
        for proxy in proxies:
            proxy.shut()
        await asyncio.sleep(3 * LEASE)
        # One of them is back much sooner than the other.
        proxies[0].open_again()
        await asyncio.sleep(LEASE / 2)
        proxies[1].open_again()
        await asyncio.sleep(2 * LEASE)
        for client, task, call in zip((seed, other), tasks, calls, strict=True):
            assert (await client.get(task))["result"]["status"] == "working"
            call.finish(text("still mine"))
            await client.reach(task, "completed")
        for stream in streams:
            assert (await stream.response(1))["result"]["content"] == text("still mine")["content"]
        assert [len(pair.upstream.calls[task]) for task in tasks] == [1, 1]
