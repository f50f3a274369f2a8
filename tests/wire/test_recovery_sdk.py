"""An upstream on the official SDK that keeps its events: calls survive replicas that die or freeze (I3)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from tests import upstreams
from tests.upstreams import Running
from tests.wire.recovery_world import LEASE, Doomed, Survivor, killed, surviving
from tests.wire.scripted_upstream import Upstream
from tests.wire.seed_client import CREATED, Json, new_id

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("ends or freezes the gateways that it speaks to"),
]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Serve the fixture tools with numbered events."""
    log = tmp_path_factory.mktemp("numbered") / "runs.jsonl"
    server = upstreams.start_fixture("mcp2", "http", "--events", "--retry", "200", log=log)
    yield server
    server.process.stop(2)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def survivor(
    scripted: Upstream, numbered: Running, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Survivor]:
    """Serve by a replica that stays."""
    upstream = {"url": numbered.url, "tasks": {"keep_alive": {"default": "30s"}, "timeout": "1m"}}
    place = tmp_path_factory.mktemp("survivor")
    async with surviving(scripted, redis_url, place, upstreams={"main": upstream}) as stays:
        yield stays


@pytest_asyncio.fixture(loop_scope="session")
async def doomed(
    scripted: Upstream, survivor: Survivor, redis_url: str, tmp_path: Path
) -> AsyncIterator[Doomed]:
    """Serve by a replica that the test may end, beside the one that stays."""
    world = Doomed(scripted, redis_url, tmp_path, survivor)
    await world.begin()
    yield world
    await world.end()


def runs_of(server: Running, mark: str) -> list[Json]:
    """Return what the server logged of a call."""
    return [run for run in server.runs() if run["arguments"].get("mark") == mark]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_I3_a_tool_of_the_sdk_runs_once_and_its_result_comes_through_another_replica(
    doomed: Doomed, numbered: Running, end: signal.Signals
) -> None:
    async with doomed.client(f"Bearer sdk-{end}") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        arguments = {"seconds": 6, "steps": 60, "mark": task}
        params = {"name": "slow_count", "arguments": arguments, "_meta": {"progressToken": "p"}}
        stream = await seed.begin(task, params, ident=1)
        await stream.notification(CREATED)
        seen = [await stream.notification("notifications/progress") for _ in range(3)]
        if end == signal.SIGKILL:
            await killed(doomed.gateways[0])
        else:
            doomed.gateways[0].process.send(end)
        await asyncio.sleep(0)
        reading = await other.listen(stream.last_id)
        await other.reach(task, "completed", seconds=20 * LEASE)
        if end == signal.SIGSTOP:
            doomed.gateways[0].process.send(signal.SIGCONT)
        rest = [m for m in await reading.rest() if m.get("method") == "notifications/progress"]
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await stream.rest()
        told = [m["params"]["progress"] for m in [*seen, *rest]]
        assert told == sorted(set(told)), "each progress once, in order"
        assert told[-1] == 60
        assert "result" in reading.seen[-1]
        assert [run["event"] for run in runs_of(numbered, task)] == ["start", "end"]


async def test_I6_a_form_of_the_sdk_is_answered_through_the_replica_that_is_left(
    doomed: Doomed, numbered: Running
) -> None:
    async with doomed.client("Bearer form") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        stream = await seed.begin(task, {"name": "ask_name", "arguments": {"mark": task}}, ident=1)
        asked = await stream.asked()
        await killed(doomed.gateways[0])
        await other.answer(asked, {"action": "accept", "content": {"name": "Ada"}})
        await other.reach(task, "completed", seconds=10 * LEASE)
        assert (await other.fetch(task))["result"]["content"][0]["text"] == "Hello, Ada!"
        assert [run["event"] for run in runs_of(numbered, task)] == ["start", "end"]
