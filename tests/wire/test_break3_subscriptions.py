"""Very many readers of tasks that run on another replica."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from tests.wire.era_world import Eras, new_key
from tests.wire.raw_upstream import soon
from tests.wire.scripted_upstream import tool
from tests.wire.tasks_b_client import TasksB

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
TASKS: Final = 40
SUBSCRIPTIONS: Final = 25
WAITERS: Final = 100


async def published(url: str) -> int:
    """Return how often anything was published in Redis so far."""
    # redis-py leaves most of its methods' types open.
    store: Any = Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType] as said
    try:
        found = await store.info("commandstats")
    finally:
        await store.aclose()
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("publish", "spublish"))


async def test_I10_a_subscription_sends_no_command_for_each_of_its_tasks(
    era_replicas: Eras, redis_url: str
) -> None:
    async with (
        era_replicas.client() as caller,
        era_replicas.twin(caller) as twin,
        AsyncExitStack() as open_,
    ):
        keys = [new_key() for _ in range(TASKS)]
        made = await asyncio.gather(*(caller.ask("tools/call", tool(key)) for key in keys))
        ids = [one.task_id for one in made]
        before = await published(redis_url)
        opened = [
            await open_.enter_async_context(twin.listen({"taskIds": ids})) for _ in range(SUBSCRIPTIONS)
        ]
        assert all(len(one.acknowledged["taskIds"]) == TASKS for one in opened)
        # Each task told once shows that all readers are at work.
        for key in keys:
            (await era_replicas.upstream.called(key)).finish()
        ended = {(await anext(opened[-1]))["params"]["taskId"] for _ in ids}
        assert ended == set(ids)
        assert await published(redis_url) - before < TASKS * SUBSCRIPTIONS / 2


@pytest.mark.one_replica("counts at the replica where it waits")
async def test_I10_of_all_who_wait_for_a_task_its_replica_is_told_once(
    era_replicas: Eras, redis_url: str
) -> None:
    credential = f"Bearer {new_key()}"
    first, second = (one.url("main") for one in era_replicas.gateways)
    async with TasksB(first, authorization=credential) as client:
        key = new_key()
        task = (await client.call_task("work", {"key": key}))["task"]["taskId"]
        twin = client.twin(second)
        before = await published(redis_url)
        waiting = [asyncio.create_task(twin.result(task)) for _ in range(WAITERS)]
        streams = f'mcp_gateway_client_streams{{upstream="main"}} {WAITERS}.0'
        await soon(lambda: streams in era_replicas.gateways[1].admin("/metrics")[1])
        (await era_replicas.upstream.called(key)).finish()
        assert all("result" in one for one in await asyncio.gather(*waiting))
        assert await published(redis_url) - before < WAITERS / 2
