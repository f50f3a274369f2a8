"""A store that hangs, forgets or comes late (I3, I5, I9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from tests import redis_servers
from tests.balancers import CHOICE
from tests.redis_servers import RedisServer
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, NOT_FOUND, PAUSE, WAIT, Seed, new_id, refusal
from tests.wire.seed_world import House, configuration, started
from tests.wire.test_break_clients import send_and_leave

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shaky(
    scripted: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[House, RedisServer]]:
    """Serve with a Redis of this module's own."""
    found = redis_servers.find_servers()
    if not found:
        pytest.skip("no Redis server here")
    server = redis_servers.start(found.get("valkey") or list(found.values())[-1])
    config = configuration(scripted, server.url, lease="30s")
    config["store"]["timeout"] = "300ms"
    gateway = await started(config, tmp_path_factory.mktemp("hanging"))
    yield House(scripted, [gateway], server.url), server
    server.wake()
    await asyncio.to_thread(gateway.end)
    server.close()


@pytest_asyncio.fixture(loop_scope="session")
async def seed(shaky: tuple[House, RedisServer]) -> AsyncIterator[Seed]:
    """Return a client whose gateway has its store."""
    house, server = shaky
    server.wake()
    async with house.client(f"Bearer {new_id()}") as client:
        await back(client)
        yield client
    server.wake()


async def back(seed: Seed) -> None:
    """Wait until the gateway has its store again, and each replica that may be behind its port."""
    async with asyncio.timeout(WAIT):
        good = 0
        while good < CHOICE.doors:
            good = good + 1 if refusal(await seed.get("nothing")) == NOT_FOUND else 0
            await asyncio.sleep(0 if good else PAUSE)


async def test_a_resumed_stream_outlives_a_store_that_hangs(
    shaky: tuple[House, RedisServer], seed: Seed
) -> None:
    house, server = shaky
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    await stream.notification(CREATED)
    stream.cut()
    resumed = await seed.listen(stream.last_id)
    server.hang()
    assert refusal(await seed.get(task))[0] == -32603
    server.wake()
    await back(seed)
    call.tell("notifications/message", {"level": "info", "data": "after the pause"})
    call.finish(text("whole"))
    messages = await resumed.rest()
    assert messages[-1]["id"] == 1
    assert messages[-1]["result"]["content"] == text("whole")["content"]
    assert messages[-2]["params"]["data"] == "after the pause"


async def test_the_original_stream_gets_its_response_although_the_store_forgot_the_task(
    shaky: tuple[House, RedisServer], seed: Seed
) -> None:
    house, server = shaky
    # redis-py leaves most of its methods' types open.
    client: Any = redis.asyncio.from_url(server.url)
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    await client.flushall()
    await client.aclose()
    call.finish(text("in hand"))
    assert (await stream.response(1))["result"]["content"] == text("in hand")["content"]
    assert refusal(await seed.get(task)) == NOT_FOUND


async def test_a_creation_that_came_too_late_leaves_the_id_free(
    shaky: tuple[House, RedisServer], seed: Seed
) -> None:
    house, server = shaky
    task = new_id()
    server.hang()
    refused = await (await seed.begin(task, tool(task, "always_task"), ident=1)).response(1)
    assert refused["error"]["code"] == -32603
    server.wake()
    async with asyncio.timeout(WAIT):
        answer = await (await seed.begin(task, tool(task, "always_task"), ident=2)).next()
        while answer is not None and "error" in answer:
            await asyncio.sleep(0.1)
            answer = await (await seed.begin(task, tool(task, "always_task"), ident=2)).next()
    await back(seed)
    (await house.upstream.called(task)).finish()
    await seed.reach(task, "completed")
    assert len(house.upstream.calls[task]) == 1


@pytest.mark.one_replica("without the store no other replica can be told")
async def test_I9_a_cancel_while_the_store_hangs_reaches_the_upstream_at_once(
    shaky: tuple[House, RedisServer], seed: Seed
) -> None:
    house, server = shaky
    task = new_id()
    await seed.begin(task, tool(task), ident=7)
    call = await house.upstream.called(task)
    await seed.reach(task, "working")
    server.hang()
    await seed.cancel(7)
    await call.cancelled()
    server.wake()
    await back(seed)
    await seed.reach(task, "cancelled")


async def test_I5_a_time_limit_while_the_store_hangs_reaches_the_upstream_at_once(
    shaky: tuple[House, RedisServer], seed: Seed
) -> None:
    house, server = shaky
    task = new_id()
    stream = await seed.begin(task, tool(task, "short"), ident=7)
    call = await house.upstream.called(task)
    server.hang()
    assert "Timed out" in (await stream.response(7))["error"]["message"]
    await call.cancelled()
    server.wake()
    await back(seed)
    await seed.reach(task, "failed")


async def test_a_session_is_ended_although_its_client_did_not_wait_for_the_answer(
    shaky: tuple[House, RedisServer], seed: Seed
) -> None:
    house, server = shaky
    async with house.client(seed.authorization) as other:
        task = new_id()
        stream = await other.begin(task, tool(task), ident=1)
        call = await house.upstream.called(task)
        call.finish()
        await stream.response(1)
        server.hang()
        await send_and_leave(other, "DELETE", None, 0.1)
        server.wake()
        await house.upstream.ends(call.session)
        async with asyncio.timeout(WAIT):
            status = 0
            while status != 404:
                status = (await other.post({"jsonrpc": "2.0", "id": 2, "method": "ping"})).status
                await asyncio.sleep(PAUSE)
