"""Three replicas are restarted one after another under load, and no client notices (issue of deploys)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.balancers import FRONTS, Balancer, program
from tests.gateways import HOST, Gateway
from tests.wire.answers import Json
from tests.wire.scripted_upstream import Upstream, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import TasksB
from tests.wire.tasks_b_world import configuration, credential, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
CLIENTS: Final = 6


class Fleet:
    """Three replicas behind a balancer, each restarted on its own ports."""

    def __init__(self, config: Json, balancer: Balancer, gateways: list[Gateway]) -> None:
        self._config = config
        self.gateways = gateways
        self.balancer = balancer

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.balancer.port}/main/mcp"

    async def restart(self, number: int) -> None:
        """Stop a replica as an operator does and start it again; return when it is ready."""
        old = self.gateways[number]
        old.process.send(signal.SIGTERM)
        assert await asyncio.to_thread(old.process.wait_end, 30) == 0
        old.end()
        ports = {"listen": {"port": old.port}, "admin": {"port": old.admin_port}}
        new = Gateway({**self._config, **ports}, old.file.parent)
        new.port, new.admin_port = old.port, old.admin_port
        self.gateways[number] = new
        await asyncio.to_thread(new.wait, "/readyz")


@pytest_asyncio.fixture(loop_scope="session", params=FRONTS)
async def fleet(
    request: pytest.FixtureRequest,
    works: Upstream,
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Fleet]:
    program(request.param)
    folder = tmp_path_factory.mktemp("rolling")
    config = {**configuration(works, redis_url), "drain": "20s", "drain_delay": "2500ms"}
    gateways = [Gateway(config, folder) for _ in range(3)]
    balancer = Balancer(request.param, gateways, folder)
    fleet = Fleet(config, balancer, gateways)
    try:
        for gateway in gateways:
            await asyncio.to_thread(gateway.wait)
        await asyncio.to_thread(balancer.start)
        yield fleet
    finally:
        await asyncio.to_thread(balancer.end)
        for gateway in fleet.gateways:
            # The calls of clients that were cut off would be waited for.
            await asyncio.to_thread(gateway.process.kill)
            await asyncio.to_thread(gateway.end)


class Load:
    """Clients that do without a pause what clients do; whatever fails is an exception."""

    def __init__(self, url: str, works: Upstream) -> None:
        self._url = url
        self._works = works
        self.done: dict[str, int] = {"plain": 0, "task": 0, "session": 0}

    async def plain(self) -> None:
        """Call a tool plainly, over and over."""
        async with TasksB(self._url, authorization=credential()) as client:
            while True:
                key = new_id()
                async with asyncio.TaskGroup() as group:
                    asking = group.create_task(
                        client.ask("tools/call", {"name": "never_task", "arguments": {"key": key}})
                    )
                    (await self._works.called(key)).finish(text(key))
                assert asking.result().get("result") == text(key), asking.result()
                self.done["plain"] += 1

    async def tasks(self) -> None:
        """Make tasks that take a while, ask for their state, and fetch their results."""
        async with TasksB(self._url, authorization=credential()) as client:
            while True:
                key = new_id()
                task = await client.start("work", {"key": key})
                call = await self._works.called(key)
                for _ in range(5):
                    assert (await client.get(task))["result"]["status"] == "working"
                call.finish(text(key))
                await client.reach(task, "completed")
                assert without_meta((await client.result(task))["result"]) == text(key)
                self.done["task"] += 1

    async def sessions(self) -> None:
        """Open a session, list, and leave, over and over."""
        while True:
            async with TasksB(self._url, authorization=credential()) as client:
                assert "tools" in (await client.ask("tools/list"))["result"]
                answer = await client.send("DELETE")
                assert answer.status < 300, answer.status
                answer.cut()
            self.done["session"] += 1


async def test_I3_nobody_notices_a_rolling_restart(fleet: Fleet, works: Upstream) -> None:
    """Every request of every client is answered, and answered right."""
    load = Load(fleet.url, works)
    async with asyncio.TaskGroup() as group:
        jobs = [load.plain, load.tasks, load.sessions]
        running = [group.create_task(job()) for job in jobs for _ in range(CLIENTS // len(jobs))]
        for number in range(3):
            before = dict(load.done)
            await fleet.restart(number)
            assert all(load.done[kind] > before[kind] for kind in load.done), (before, load.done)
        for one in running:
            one.cancel()
    assert min(load.done.values()) > 10, load.done
