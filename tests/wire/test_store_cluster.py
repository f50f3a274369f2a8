"""The gateway on a Redis Cluster that changes while it is used (design section 6; I2, I3, I9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from redis.crc import key_slot

from tests import redis_servers
from tests.gateways import Gateway
from tests.redis_groups import RedisCluster
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import WAIT, Seed, new_id
from tests.wire.seed_world import TASKS, House, configuration
from tests.wire.stateless_client import Stateless
from tests.wire.tasks_b_client import TasksB

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def cluster() -> Any:
    """Run three primaries, each with a replica."""
    found = redis_servers.find_servers()
    if not found:
        pytest.skip("no Redis server here")
    cluster = RedisCluster(list(found.values())[-1], replicas=1)
    yield cluster
    cluster.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house(
    scripted: Upstream, cluster: RedisCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Serve by two replicas on the cluster."""
    config = configuration(scripted, cluster.url)
    config["upstreams"]["main"]["tasks"] = {**TASKS, "inline_within": "0s"}
    config["store"]["timeout"] = "1s"
    place = tmp_path_factory.mktemp("clustered")
    made = House(scripted, [Gateway(config, place) for _ in range(2)], None)
    for gateway in made.gateways:
        await asyncio.to_thread(gateway.wait, "/readyz")
    yield made
    for gateway in made.gateways:
        await asyncio.to_thread(gateway.end)


class Users:
    """One client of each dialect, each at a replica of its own, who work until they are told to stop."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.done = {"a": 0, "b": 0, "c": 0, "plain": 0}
        self.over = False

    async def work(self, stack: AsyncExitStack) -> None:
        """Begin; errors come out where the block ends."""
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for work in (self._a, self._b, self._c, self._plain):
            group.create_task(work())

    async def more(self, times: int = 2) -> None:
        """Wait until each has done so much more."""
        wanted = {name: count + times for name, count in self.done.items()}
        async with asyncio.timeout(3 * WAIT):
            while any(self.done[name] < count for name, count in wanted.items()):  # noqa: ASYNC110  polled
                await asyncio.sleep(0.02)

    async def _finish(self, task: str) -> None:
        (await self._house.upstream.called(task)).finish(text(task))

    async def _a(self) -> None:
        async with self._house.client("Bearer cluster-a") as seed:
            while not self.over:
                task = new_id()
                await seed.begin(task, tool(task), ident=seed.ident())
                await seed.reach(task, "working")
                await self._finish(task)
                await seed.reach(task, "completed")
                assert (await seed.fetch(task))["result"]["content"] == text(task)["content"]
                assert task in await seed.tasks()
                await seed.delete(task)
                self.done["a"] += 1

    async def _b(self) -> None:
        async with TasksB(self._house.url(replica=1), authorization="Bearer cluster-b") as user:
            while not self.over:
                key = new_id()
                params = tool(key)
                task = await user.start(params["name"], params["arguments"])
                waiting = asyncio.ensure_future(user.result(task))
                await self._finish(key)
                assert (await waiting)["result"]["content"] == text(key)["content"]
                self.done["b"] += 1

    async def _c(self) -> None:
        async with Stateless(self._house.url(), authorization="Bearer cluster-c") as user:
            while not self.over:
                key = new_id()
                params = tool(key)
                task = (await user.call(params["name"], params["arguments"])).task_id
                await self._finish(key)
                found = await user.reach(task, "completed")
                assert found["result"]["content"] == text(key)["content"]
                self.done["c"] += 1

    async def _plain(self) -> None:
        async with self._house.client("Bearer cluster-plain", replica=1) as seed:
            while not self.over:
                assert "result" in await seed.ask("tools/list")
                self.done["plain"] += 1


def _reshard(cluster: RedisCluster) -> int:
    """Move the slots that have keys, each to the next node; return how many."""
    moved = 0
    for node in cluster.primaries:
        slots = {key_slot(key) for key in node.redis.scan_iter(count=1_000)}
        for slot in slots:
            if cluster.owner_of(slot) is node:
                others = [other for other in cluster.primaries if other is not node]
                cluster.move(slot, node, others[slot % len(others)])
                moved += 1
    return moved


async def test_slots_move_while_all_dialects_work_and_no_client_notices(
    house: House, cluster: RedisCluster
) -> None:
    users = Users(house)
    async with AsyncExitStack() as stack:
        await users.work(stack)
        await users.more()
        for _ in range(2):
            assert await asyncio.to_thread(_reshard, cluster)
            await users.more(1)
        users.over = True
    for gateway in house.gateways:
        assert (await asyncio.to_thread(gateway.admin, "/readyz"))[0] == 200


async def test_I9_a_primary_dies_and_running_tasks_end_right_when_its_replica_has_taken_over(
    house: House, cluster: RedisCluster
) -> None:
    # By now the first test has moved slots about; each scope's tasks are on one node, whichever.
    async with AsyncExitStack() as stack:
        seeds: list[Seed] = [
            await stack.enter_async_context(house.client(f"Bearer dying-{number}", replica=number % 2))
            for number in range(6)
        ]
        tasks = [new_id() for _ in seeds]
        streams = [
            await seed.begin(task, tool(task), ident=1) for seed, task in zip(seeds, tasks, strict=True)
        ]
        calls = [await house.upstream.called(task) for task in tasks]
        for seed, task in zip(seeds, tasks, strict=True):
            await seed.reach(task, "working")
        for node in cluster.primaries:
            await asyncio.to_thread(node.redis.wait, 1, 2_000)
        await asyncio.to_thread(cluster.primaries[0].kill)
        for call, task in zip(calls, tasks, strict=True):
            call.finish(text(task))
        for seed, stream, task in zip(seeds, streams, tasks, strict=True):
            assert "result" in await seed.ask("ping")
            assert (await stream.response(1))["result"]["content"] == text(task)["content"]
        for seed, task in zip(seeds, tasks, strict=True):
            async with asyncio.timeout(WAIT):
                while (found := await seed.get(task)).get("result", {}).get("status") != "completed":
                    assert found.get("error", {}).get("code", -32603) == -32603, found
                    await asyncio.sleep(0.05)
            assert (await seed.fetch(task))["result"]["content"] == text(task)["content"]
            assert len(house.upstream.calls[task]) == 1
    users = Users(house)
    async with AsyncExitStack() as stack:
        await users.work(stack)
        await users.more()
        users.over = True
    for gateway in house.gateways:
        await asyncio.to_thread(gateway.wait, "/readyz", 10)
