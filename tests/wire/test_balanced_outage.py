"""Redis is away from three replicas behind HAProxy and nginx: what their users see (I2, I9)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest
import pytest_asyncio

from tests import redis_servers
from tests.balancers import FRONTS, REPLICAS, Balancer, program
from tests.gateways import HOST, Gateway
from tests.tools import ToolMissing
from tests.troubled import Troubled
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, NOT_FOUND, PAUSE, Seed, eventually, new_id, refusal
from tests.wire.seed_world import configuration

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("has replicas and balancers of its own"),
]
# The task requests of a client wait no longer than this for a store that is away.
_WORDS_S: Final = 2.0
_BACK_S: Final = 10.0
Trouble = tuple[Callable[[Troubled], None], Callable[[Troubled], None]]
GONE: Final[Trouble] = (Troubled.shut, Troubled.open_again)
HANGS: Final[Trouble] = (Troubled.pause, Troubled.resume)


class Fleet:
    """Three replicas with one way to their Redis, and each balancer in front of them."""

    def __init__(
        self, upstream: Upstream, way: Troubled, gateways: list[Gateway], balancers: list[Balancer]
    ) -> None:
        self.upstream = upstream
        self.way = way
        self.gateways = gateways
        self.balancers = {balancer.kind: balancer for balancer in balancers}

    def client(self, front: str) -> Seed:
        """Return a client of a balancer, with a credential of its own."""
        url = f"http://{HOST}:{self.balancers[front].port}/main/mcp"
        return Seed(url, f"Bearer {new_id()}")

    async def told(self, status: int) -> list[str]:
        """Wait until each replica tells its readiness so, and return what all say of the store."""
        said: list[str] = []
        async with asyncio.timeout(_BACK_S):
            for gateway in self.gateways:
                while True:
                    found, body = await asyncio.to_thread(gateway.admin, "/readyz")
                    if found == status:
                        break
                    await asyncio.sleep(PAUSE)
                said.append(json.loads(body)["store"])
        return said


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fleet(scripted: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """Serve by three replicas behind both balancers."""
    found = redis_servers.find_servers()
    if not found:
        raise ToolMissing("no Redis server here")
    for front in FRONTS:
        program(front)
    place = tmp_path_factory.mktemp("outage")
    server = redis_servers.start(found.get("valkey") or list(found.values())[-1])
    async with Troubled.to(server.url) as way:
        config = configuration(scripted, way.url, lease="5s")
        config["store"]["timeout"] = "300ms"
        gateways = [Gateway(config, place) for _ in range(REPLICAS)]
        balancers = [Balancer(front, gateways, place) for front in FRONTS]
        try:
            for gateway in gateways:
                await asyncio.to_thread(gateway.wait, "/readyz")
            for balancer in balancers:
                await asyncio.to_thread(balancer.start)
            yield Fleet(scripted, way, gateways, balancers)
        finally:
            for part in (*balancers, *gateways):
                await asyncio.to_thread(part.end)
    server.close()


class Plain:
    """A client that calls tools plainly, without a pause, and opens a session now and then."""

    def __init__(self, fleet: Fleet, front: str) -> None:
        self._fleet = fleet
        self._front = front
        self.answered = 0
        self.longest = 0.0

    async def run(self) -> None:
        """Go on until it is cancelled; whatever is not answered right is an exception."""
        while True:
            async with self._fleet.client(self._front) as seed:
                for _ in range(10):
                    await self._call(seed)

    async def _call(self, seed: Seed) -> None:
        key, began = new_id(), time.monotonic()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(seed.ask("tools/call", tool(key, "never_task")))
            (await self._fleet.upstream.called(key)).finish(text(key))
        assert asking.result()["result"] == text(key)
        assert len(self._fleet.upstream.calls[key]) == 1
        self.longest = max(self.longest, time.monotonic() - began)
        self.answered += 1


@pytest.mark.parametrize(
    ("front", "trouble"),
    [("haproxy", GONE), ("haproxy", HANGS), ("nginx", GONE)],
    ids=["haproxy-gone", "haproxy-hangs", "nginx-gone"],
)
async def test_I9_an_outage_of_the_store_costs_no_plain_call_and_is_over_in_seconds(
    fleet: Fleet, front: str, trouble: Trouble
) -> None:
    begin, end = trouble
    plain = Plain(fleet, front)
    async with fleet.client(front) as seed, asyncio.TaskGroup() as group:
        running = group.create_task(plain.run())
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await fleet.upstream.called(task)
        await stream.notification(CREATED)
        begin(fleet.way)
        try:
            assert "ok" not in await fleet.told(503)
            before = plain.answered
            must = await _refused(fleet, seed, task)
            # Who waits in person hears the end at once; the store hears it when it is back.
            call.finish(text("meanwhile"))
            assert (await stream.response(1))["result"]["content"] == text("meanwhile")["content"]
            await _falls_back(fleet, seed)
            await eventually(lambda: plain.answered >= before + 30)
        finally:
            end(fleet.way)
        back = time.monotonic()
        await fleet.told(200)
        await _ends(seed, task)
        assert time.monotonic() - back < _BACK_S
        assert (await seed.fetch(task))["result"]["content"] == text("meanwhile")["content"]
        assert refusal(await seed.get(must)) == NOT_FOUND
        await _works(fleet, seed)
        running.cancel()
    assert plain.longest < 3, plain.longest
    assert len(fleet.upstream.calls[task]) == 1
    assert not fleet.upstream.calls[must]


async def _refused(fleet: Fleet, seed: Seed, task: str) -> str:
    """What needs the store is refused in time and in words, whichever replica is asked."""
    for _ in range(REPLICAS):
        began = time.monotonic()
        code, words = refusal(await seed.get(task))
        assert (code, "store" in words) == (-32603, True)
        assert time.monotonic() - began < _WORDS_S
    must = new_id()
    refused = await (await seed.begin(must, tool(must, "task_or_nothing"), ident=2)).response(2)
    assert "store" in refusal(refused)[1]
    return must


async def _falls_back(fleet: Fleet, seed: Seed) -> None:
    """What may be a task is a plain call."""
    key = new_id()
    async with asyncio.TaskGroup() as group:
        posting = group.create_task(seed.begin(key, tool(key), ident=3))
        (await fleet.upstream.called(key)).finish(text("plain"))
    assert (await posting.result().response(3))["result"] == text("plain")


async def _ends(seed: Seed, task: str) -> None:
    """Wait until the task is known to have ended, at each replica."""
    async with asyncio.timeout(_BACK_S):
        good = 0
        while good < REPLICAS:
            answer = await seed.get(task)
            done = answer.get("result", {}).get("status") == "completed"
            good = good + 1 if done else 0
            await asyncio.sleep(0 if done else PAUSE)


async def _works(fleet: Fleet, seed: Seed) -> None:
    """Each replica makes tasks again."""
    for number in range(10, 10 + REPLICAS):
        task = new_id()
        await (await seed.begin(task, tool(task, "task_or_nothing"), ident=number)).notification(CREATED)
        (await fleet.upstream.called(task)).finish()
        await seed.reach(task, "completed")
