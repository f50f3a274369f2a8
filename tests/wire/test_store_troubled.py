"""A gateway whose way to its store is troubled: what goes on, what is refused, how it ends (I2, I5, I9)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import pytest_asyncio

from tests import redis_servers
from tests.gateways import Gateway
from tests.redis_servers import RedisServer
from tests.troubled import Troubled
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, NOT_FOUND, WAIT, Exchange, Seed, new_id, refusal
from tests.wire.seed_world import House, configuration
from tests.wire.tasks_b_client import TasksB

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
_BACK_S = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Run a Redis of this module's own."""
    found = redis_servers.find_servers()
    if not found:
        pytest.skip("no Redis server here")
    server = redis_servers.start(found.get("valkey") or list(found.values())[-1])
    yield server
    server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def way(server: RedisServer) -> AsyncIterator[Troubled]:
    """Return the gateway's way to it."""
    async with Troubled.to(server.url) as way:
        yield way


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house(
    scripted: Upstream, way: Troubled, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Serve by one gateway."""
    config = configuration(scripted, way.url, lease="3s")
    config["store"]["timeout"] = "300ms"
    gateway = Gateway(config, tmp_path_factory.mktemp("troubled"))
    await asyncio.to_thread(gateway.wait)
    yield House(scripted, [gateway], None)
    await asyncio.to_thread(gateway.end)


@asynccontextmanager
async def _shut(way: Troubled) -> AsyncGenerator[None]:
    way.shut()
    try:
        yield
    finally:
        way.open_again()


@asynccontextmanager
async def _paused(way: Troubled) -> AsyncGenerator[None]:
    way.pause()
    try:
        yield
    finally:
        way.resume()


@asynccontextmanager
async def _cut(way: Troubled) -> AsyncGenerator[None]:
    """Cut each connection in the middle of the first answer: what was asked has been done, unheard."""
    way.on_request = lambda _: way.cut_after(3)
    try:
        yield
    finally:
        way.on_request = lambda _: None
        way.reply_bytes_left = None


@asynccontextmanager
async def _slow(way: Troubled) -> AsyncGenerator[None]:
    way.delay = 0.1
    try:
        yield
    finally:
        way.delay = 0.0


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until it is so."""
    async with asyncio.timeout(_BACK_S):
        while not await condition():  # noqa: ASYNC110  another process decides when; there is no event
            await asyncio.sleep(0.05)


async def _is_answered(seed: Seed, task: str) -> bool:
    return "result" in await seed.get(task)


async def _is_not_found(seed: Seed, task: str) -> bool:
    found = await seed.get(task)
    return "error" in found and refusal(found) == NOT_FOUND


async def _not_ready(house: House, words: str) -> None:
    """Wait until readiness says these words of the store; its answers are up to a second old."""

    async def told() -> bool:
        status, body = await asyncio.to_thread(house.gateways[0].admin, "/readyz")
        return status == 503 and words in json.loads(body)["store"]

    await _until(told)


class _Scene:
    """What is under way when the trouble begins: calls, a waiter, a GET stream."""

    def __init__(self, house: House, seed: Seed, other: TasksB) -> None:
        self.house = house
        self.seed = seed
        self.other = other

    async def begin(self) -> None:
        """Begin everything."""
        seed, upstream = self.seed, self.house.upstream
        self.task, self.lonely, self.awaited = new_id(), new_id(), new_id()
        self.stream = await seed.begin(self.task, tool(self.task), ident=1)
        self.call = await upstream.called(self.task)
        left = await seed.begin(self.lonely, tool(self.lonely), ident=2)
        self.lonely_call = await upstream.called(self.lonely)
        await left.notification(CREATED)
        left.cut()
        self.listening: Exchange = await seed.listen()
        params = tool(self.awaited)
        self.ident = await self.other.start(params["name"], params["arguments"])
        self.waiting = asyncio.ensure_future(self.other.result(self.ident, seconds=3 * WAIT))
        self.awaited_call = await upstream.called(self.awaited)
        await seed.reach(self.task, "working")

    async def goes_on(self) -> None:
        """Plain calls are answered, and who waits for a call in person hears its end at once."""
        plain = new_id()
        assert "result" in await self.seed.ask("ping")
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(self.seed.ask("tools/call", tool(plain, "never_task")))
            (await self.house.upstream.called(plain)).finish(text("as ever"))
        assert asking.result()["result"] == text("as ever")
        self.call.finish(text("meanwhile"))
        assert (await self.stream.response(1))["result"]["content"] == text("meanwhile")["content"]
        self.awaited_call.finish(text("awaited"))

    async def is_refused(self) -> str:
        """What needs the store is refused with words; return the id of the task that was not made."""
        code, words = refusal(await self.seed.get(self.task))
        assert (code, "store" in words) == (-32603, True)
        must = new_id()
        refused = await (await self.seed.begin(must, tool(must, "task_or_nothing"), ident=3)).response(3)
        assert "store" in refusal(refused)[1]
        assert not self.house.upstream.calls[must]
        await _not_ready(self.house, "store")
        return must

    async def ends_right(self) -> None:
        """All that was under way ends as it should, each called once."""
        await _until(lambda: _is_answered(self.seed, self.task))
        await self.seed.reach(self.task, "completed")
        assert (await self.seed.fetch(self.task))["result"]["content"] == text("meanwhile")["content"]
        assert (await self.waiting)["result"]["content"] == text("awaited")["content"]
        question = self.lonely_call.ask()
        asked = await self.listening.asked()
        await self.seed.answer(asked, {"action": "accept", "content": {"name": "n"}})
        assert (await question.answered())["result"]["action"] == "accept"
        self.lonely_call.finish(text("lonely"))
        await self.seed.reach(self.lonely, "completed")
        for task in (self.task, self.lonely, self.awaited):
            assert len(self.house.upstream.calls[task]) == 1
        await asyncio.to_thread(self.house.gateways[0].wait, "/readyz", _BACK_S)


@pytest_asyncio.fixture(loop_scope="session")
async def scene(house: House) -> AsyncIterator[_Scene]:
    """Return a scene that has begun."""
    name = new_id()
    other = TasksB(house.url(), authorization=f"Bearer {name}-b")
    async with house.client(f"Bearer {name}") as seed, other:
        scene = _Scene(house, seed, other)
        await scene.begin()
        yield scene


@pytest.mark.parametrize("trouble", [_shut, _paused, _cut])
async def test_I9_the_store_is_away_and_everything_else_goes_on(
    scene: _Scene, way: Troubled, trouble: Callable[[Troubled], AbstractAsyncContextManager[None]]
) -> None:
    async with trouble(way):
        await scene.goes_on()
        must = await scene.is_refused()
        before = way.accepted
        await asyncio.sleep(1.5)
        assert way.accepted - before < 25
    await scene.ends_right()
    await _until(lambda: _is_not_found(scene.seed, must))
    assert not scene.house.upstream.calls[must]


async def test_a_slow_store_makes_answers_late_and_nothing_fail(scene: _Scene, way: Troubled) -> None:
    async with _slow(way):
        await scene.goes_on()
        created = new_id()
        stream = await scene.seed.begin(created, tool(created, "task_or_nothing"), ident=3)
        await stream.notification(CREATED)
        # Longer than the lease: it is renewed all the same.
        await asyncio.sleep(4)
        await scene.seed.reach(created, "working")
        status, _ = await asyncio.to_thread(scene.house.gateways[0].admin, "/readyz")
        assert status == 200
        (await scene.house.upstream.called(created)).finish(text("late"))
        assert (await stream.response(3))["result"]["content"] == text("late")["content"]
        await scene.ends_right()


async def test_I9_full_memory_refuses_new_tasks_and_lets_running_ones_end(
    scene: _Scene, server: RedisServer
) -> None:
    with server.full():
        await scene.goes_on()
        must = new_id()
        refused = await (await scene.seed.begin(must, tool(must, "task_or_nothing"), ident=3)).response(3)
        assert "store" in refusal(refused)[1]
        fallback = new_id()
        async with asyncio.TaskGroup() as group:
            posting = group.create_task(scene.seed.begin(fallback, tool(fallback), ident=4))
            (await scene.house.upstream.called(fallback)).finish(text("as ever"))
        assert (await posting.result().response(4))["result"] == text("as ever")
        await _not_ready(scene.house, "memory is full")
        assert refusal(await scene.seed.get(must)) == NOT_FOUND
        # Longer than the lease: nobody takes the task over.
        await asyncio.sleep(4)
    await scene.ends_right()


async def test_an_outage_fills_no_log(house: House) -> None:
    lines = [
        line for line in house.gateways[0].process.lines if re.search("leases could not|is away", line)
    ]
    assert 0 < len(lines) < 20
