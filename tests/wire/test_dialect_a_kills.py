"""Dialect A: gateways that stop or are killed, and what the others make of their tasks (I5, I8)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import PAUSE, Exchange, Json, Seed, new_id, refusal, too_early
from tests.wire.seed_world import configuration, started

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("ends or freezes the gateway that it speaks to"),
]
LEASE = 1.0


@pytest_asyncio.fixture(loop_scope="session")
async def doomed(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[list[Gateway], Json, Path]]:
    """Return gateways that the test may kill (none at first), their configuration and folder."""
    config = configuration(scripted, redis_url, lease=f"{LEASE:g}s")
    gateways: list[Gateway] = []
    yield gateways, config, tmp_path_factory.mktemp("doomed")
    for gateway in gateways:
        await asyncio.to_thread(gateway.end)


async def killed(gateway: Gateway) -> None:
    """Kill a gateway without a word."""
    gateway.process.send(signal.SIGKILL)
    await asyncio.to_thread(gateway.process.wait_end)


async def cut_off(stream: Exchange) -> bool:
    """Whether a stream ends without a response."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await stream.rest()
    return not any("result" in m or "error" in m for m in stream.seen)


async def test_a_restart_keeps_what_ended_and_fails_what_ran(
    doomed: tuple[list[Gateway], Json, Path], scripted: Upstream
) -> None:
    gateways, config, place = doomed
    gateways.append(await started(config, place))
    seed = Seed(gateways[0].url("main"), "Bearer restart")
    await seed.initialize()
    ended, running = new_id(), new_id()
    await seed.begin(ended, tool(ended), ident=1)
    (await scripted.called(ended)).finish(text("kept"))
    await seed.reach(ended, "completed")
    stream = await seed.begin(running, tool(running), ident=2)
    call = await scripted.called(running)
    await seed.reach(running, "working")
    await killed(gateways[0])
    assert await cut_off(stream)
    gateways.append(await started(config, place))
    old = seed.twin(gateways[1].url("main"))
    async with Seed(gateways[1].url("main"), "Bearer restart") as again:
        assert (await again.fetch(ended))["result"]["content"] == text("kept")["content"]
        got = await again.reach(running, "failed", seconds=10 * LEASE)
        assert "utcome unknown" in got["error"]
        assert refusal(await again.fetch(running)) == too_early("failed")
        assert set(await again.tasks()) == {ended, running}
        # Most clients never initialize anew: the old session is as good as before.
        assert (await old.get(ended))["result"]["status"] == "completed"
        assert len(scripted.calls[running]) == 1
        call.end()
    old.vanish()


async def test_I5_another_replica_ends_what_a_dead_one_ran(
    doomed: tuple[list[Gateway], Json, Path], scripted: Upstream
) -> None:
    gateways, config, place = doomed
    gateways += [await started(config, place), await started(config, place)]
    async with Seed(gateways[0].url("main"), "Bearer survivor") as seed:
        other = seed.twin(gateways[1].url("main"))
        running, cancelled, asking = new_id(), new_id(), new_id()
        await seed.begin(running, tool(running), ident=1)
        await seed.begin(cancelled, tool(cancelled), ident=2)
        stream = await seed.begin(asking, tool(asking), ident=3)
        calls = [await scripted.called(task) for task in (running, cancelled, asking)]
        calls[2].ask()
        await stream.asked()
        await killed(gateways[0])
        await other.cancel(2)
        await other.reach(cancelled, "cancelled")
        for task in (running, asking):
            got = await other.reach(task, "failed", seconds=10 * LEASE)
            assert "utcome unknown" in got["error"]
        assert (await other.get(cancelled))["result"]["status"] == "cancelled"
        assert [len(scripted.calls[task]) for task in (running, cancelled, asking)] == [1, 1, 1]
        for call in calls:
            call.end()


async def test_I8_nothing_is_left_in_redis_when_all_has_expired(
    doomed: tuple[list[Gateway], Json, Path], scripted: Upstream, redis_url: str
) -> None:
    gateways, config, place = doomed
    gateways.append(await started(config, place))
    prefix = config["store"]["prefix"]
    async with Seed(gateways[0].url("main"), "Bearer short-lived") as seed:
        alone = await keys(redis_url, prefix)
        tasks = {how: new_id() for how in ("completed", "failed", "cancelled", "asked", "deleted")}
        streams = {
            how: await seed.begin(task, tool(task), ident=how, task={"keepAlive": 300})
            for how, task in tasks.items()
        }
        calls = {how: await scripted.called(task) for how, task in tasks.items()}
        calls["completed"].finish()
        calls["failed"].refuse(-1, "no")
        await seed.cancel("cancelled")
        calls["asked"].ask()
        await streams["asked"].asked()
        await seed.reach(tasks["asked"], "input_required")
        assert await keys(redis_url, prefix) > alone
        calls["asked"].finish()
        await seed.delete(tasks["deleted"])
        await seed.reach(tasks["asked"], "completed")
        left = await keys(redis_url, prefix)
        async with asyncio.timeout(5):
            while left - alone:
                await asyncio.sleep(PAUSE)
                left = {key for key in await keys(redis_url, prefix) if not is_rate(key)}
        assert await seed.tasks() == {}


async def keys(url: str, prefix: str) -> set[bytes]:
    """Return the keys with a prefix, by Redis' own wire."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(f"KEYS {prefix}*\r\n".encode())
    found: set[bytes] = set()
    for _ in range(int((await reader.readline())[1:])):
        size = int((await reader.readline())[1:])
        found.add((await reader.readexactly(size + 2))[:-2])
    writer.close()
    await writer.wait_closed()
    return found


def is_rate(key: bytes) -> bool:
    """Whether a key counts requests; those go with their window, not with a task."""
    return b"rate" in key.lower() or b"limit" in key.lower()


async def test_a_planned_stop_ends_streams_and_keeps_results(
    doomed: tuple[list[Gateway], Json, Path], scripted: Upstream
) -> None:
    gateways, config, place = doomed
    gateways += [await started({**config, "drain": "5s"}, place), await started(config, place)]
    async with Seed(gateways[0].url("main"), "Bearer stop") as seed:
        other = seed.twin(gateways[1].url("main"))
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        call = await scripted.called(task)
        await seed.reach(task, "working")
        gateways[0].process.send(signal.SIGTERM)
        await other.reach(task, "working")
        call.finish(text("drained"))
        await other.reach(task, "completed")
        assert await asyncio.to_thread(gateways[0].process.wait_end) == 0
        assert (await other.fetch(task))["result"]["content"] == text("drained")["content"]


async def test_I5_a_stop_that_cannot_wait_says_what_became_of_the_task(
    doomed: tuple[list[Gateway], Json, Path], scripted: Upstream
) -> None:
    gateways, config, place = doomed
    gateways += [await started({**config, "drain": "200ms"}, place), await started(config, place)]
    async with Seed(gateways[0].url("main"), "Bearer hurry") as seed:
        other = seed.twin(gateways[1].url("main"))
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        call = await scripted.called(task)
        gateways[0].process.send(signal.SIGTERM)
        assert await asyncio.to_thread(gateways[0].process.wait_end) == 0
        got = await other.reach(task, "failed", seconds=10 * LEASE)
        assert len(got["error"]) > 10
        call.end()
