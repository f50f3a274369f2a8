"""Several workers behind one port (design section 2, I5, I6): real processes, signals and kills."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.scripted_upstream import Upstream, tool
from tests.wire.seed_client import CREATED, Seed, eventually, new_id
from tests.wire.seed_world import configuration
from tests.wire.workers_world import (
    WORKERS,
    Crowd,
    Held,
    children_of,
    lives,
    pids,
    resident,
    sockets_of,
    states,
)

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("workers are processes of one replica's machine"),
]


async def started(config: Mapping[str, Any], place: Path) -> Crowd:
    """Start a gateway and wait until all of its workers are ready."""
    crowd = Crowd(Gateway(config, place))
    try:
        await asyncio.to_thread(crowd.gateway.wait, "/readyz")
        await crowd.all_ready()
    except BaseException:
        crowd.gateway.process.kill()
        raise
    return crowd


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def crowd(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Crowd]:
    """Serve the scripted upstream by workers."""
    config = configuration(scripted, redis_url, workers=WORKERS)
    made = await started(config, tmp_path_factory.mktemp("crowd"))
    yield made
    await asyncio.to_thread(made.gateway.end)


@pytest_asyncio.fixture(loop_scope="session")
async def own(crowd: Crowd, tmp_path: Path) -> AsyncIterator[Crowd]:
    """Serve the same by two workers of the test's own, which may be ended; tasks may run on for a while."""
    config = {key: value for key, value in crowd.gateway.config.items() if key not in ("listen", "admin")}
    made = await started({**config, "workers": 2, "drain": "10s"}, tmp_path)
    yield made
    await asyncio.to_thread(made.gateway.end)


def client(gateway: Gateway, name: str) -> Seed:
    """Return a client with a credential of its own."""
    return Seed(gateway.url("main"), f"Bearer {name}")


async def test_connections_are_spread_evenly(crowd: Crowd) -> None:
    held = Held(crowd.gateway.port)
    await crowd.until_even()
    try:
        await asyncio.to_thread(held.more, 10 * WORKERS)
        found = await crowd.gauge("mcp_gateway_worker_connections")
        assert len(found) == WORKERS
        # One that others have opened may be known as closed only now.
        assert all(number >= 9 for number in found.values()), found
        assert max(found.values()) - min(found.values()) <= 2, found
    finally:
        held.close()


async def test_I6_a_task_made_by_one_worker_is_found_through_all(crowd: Crowd, scripted: Upstream) -> None:
    async with client(crowd.gateway, "found") as seed:
        task = new_id()
        stream = await seed.begin(task, tool(task))
        call = await scripted.called(task)
        await stream.notification(CREATED)
        # Each request comes on a connection of its own, which stays open: the next worker has fewer.
        for _ in range(3 * WORKERS):
            assert (await seed.get(task))["result"]["status"] == "working"
        call.finish()
        await seed.reach(task, "completed")
        for _ in range(WORKERS):
            assert "result" in await seed.fetch(task)


async def test_I6_a_task_is_cancelled_through_a_worker_that_does_not_run_it(
    crowd: Crowd, scripted: Upstream
) -> None:
    async with client(crowd.gateway, "cancelled") as seed:
        for _ in range(WORKERS):
            task, ident = new_id(), seed.ident()
            await seed.begin(task, tool(task), ident=ident)
            call = await scripted.called(task)
            await seed.cancel(ident)
            await call.cancelled()


async def test_tasks_are_made_by_all_workers_and_each_line_says_by_which(crowd: Crowd) -> None:
    await crowd.until_even()
    async with client(crowd.gateway, "spread") as seed:
        tasks = [new_id() for _ in range(2 * WORKERS)]
        for task in tasks:
            await seed.begin(task, tool(task, "quick"))
        found = {crowd.worker_of(task) for task in tasks}
    assert found == set(range(1, WORKERS + 1))


async def test_each_worker_has_an_identity_and_sockets_of_its_own(crowd: Crowd) -> None:
    seen = await crowd.all_ready()
    assert len({told["replica"] for told in seen.values()}) == WORKERS
    processes = [crowd.gateway.process.pid, *pids(seen)]
    assert len(set(processes)) == WORKERS + 1
    held = [sockets_of(process) for process in processes]
    assert all(held)
    assert sum(map(len, held)) == len({one for sockets in held for one in sockets})


async def test_metrics_are_those_of_all_workers(crowd: Crowd) -> None:
    before = await crowd.counted()
    async with client(crowd.gateway, "counted") as seed:
        for _ in range(4 * WORKERS):
            await seed.ask("ping")
    after = await crowd.counted()
    name = "mcp_gateway_requests_total"
    key = f"{name}{[('method', 'ping'), ('status', '200'), ('upstream', 'main')]}"
    assert after[key] - before.get(key, 0) == 4 * WORKERS
    memory = (await crowd.gauge("process_resident_memory_bytes"))[""]
    processes = [crowd.gateway.process.pid, *pids(await crowd.workers())]
    assert memory == pytest.approx(sum(map(resident, processes)), rel=0.2)
    assert set((await crowd.gauge("mcp_gateway_build_info")).values()) == {1}
    assert (await crowd.gauge("mcp_gateway_workers"))["serving"] == WORKERS


async def test_what_is_said_at_the_start_is_said_once(crowd: Crowd) -> None:
    said = [line for line in crowd.gateway.process.lines if not line.startswith("{")]
    assert (
        sum(f"Serving main at http://127.0.0.1:{crowd.gateway.port}/main/mcp" == line for line in said) == 1
    )
    assert sum(line.startswith("Metrics and health at ") for line in said) == 1
    assert {line["worker"] for line in crowd.lines() if "worker" in line} == set(range(1, WORKERS + 1))


async def test_I5_a_killed_worker_is_replaced_and_no_sum_goes_down(crowd: Crowd) -> None:
    before = await crowd.all_ready()
    async with client(crowd.gateway, "killed") as seed:
        counted = await crowd.counted()
        os.kill(before[2]["process"], signal.SIGKILL)
        while (seen := await crowd.workers())[2].get("replica") in (before[2]["replica"], None):
            assert "result" in await seed.ask("ping")
            now = await crowd.counted()
            assert {
                key: (value, now.get(key)) for key, value in counted.items() if now.get(key, 0) < value
            } == {}
            counted = now
    assert seen[2]["process"] != before[2]["process"]
    assert {n: seen[n]["replica"] for n in (1, 3)} == {n: before[n]["replica"] for n in (1, 3)}
    crowd.gateway.process.wait_line(r'"worker 2 \(process \d+\) has died: SIGKILL"')
    assert counted["mcp_gateway_worker_restarts_total[('worker', '2')]"] == 1
    await crowd.all_ready()


async def test_a_worker_that_is_told_to_end_is_replaced_without_a_failed_request(crowd: Crowd) -> None:
    before = await crowd.all_ready()
    async with client(crowd.gateway, "told") as seed:
        os.kill(before[1]["process"], signal.SIGTERM)
        while (await crowd.workers())[1].get("replica") in (before[1]["replica"], None):
            assert "result" in await seed.ask("ping")
    crowd.gateway.process.wait_line("worker 1 has ended as it was asked to")
    assert states(await crowd.all_ready()) == {"serving": WORKERS}


async def test_a_worker_that_hangs_gets_no_connections(crowd: Crowd) -> None:
    before = await crowd.all_ready()
    os.kill(before[1]["process"], signal.SIGSTOP)
    try:
        await crowd.until(lambda seen: seen[1]["state"] == "silent")
        async with client(crowd.gateway, "hangs") as seed:
            for _ in range(2 * WORKERS):
                assert "result" in await seed.ask("ping")
    finally:
        os.kill(before[1]["process"], signal.SIGCONT)
    assert (await crowd.all_ready())[1]["replica"] == before[1]["replica"]


async def test_a_stopping_gateway_lets_the_tasks_of_all_workers_finish(
    own: Crowd, crowd: Crowd, scripted: Upstream
) -> None:
    processes = pids(await own.workers())
    async with client(own.gateway, "drain") as seed:
        tasks = [new_id() for _ in range(4)]
        await own.until_even()
        calls = [await begun(seed, task, scripted) for task in tasks]
        assert {own.worker_of(task) for task in tasks} == {1, 2}
        own.gateway.process.send(signal.SIGTERM)
        for _ in range(2):
            own.gateway.process.wait_line(r"draining: [12] tasks run")
        twin = seed.twin(crowd.gateway.url("main"))
        assert [(await twin.get(task))["result"]["status"] for task in tasks] == ["working"] * 4
        for call in calls:
            call.finish()
        assert await asyncio.to_thread(own.gateway.process.wait_end) == 0
        assert not [process for process in processes if lives(process)]
        for task in tasks:
            assert (await twin.reach(task, "completed"))["status"] == "completed"


async def begun(seed: Seed, task: str, scripted: Upstream) -> Any:
    """Begin a task and return its call, once its client could know of it."""
    stream = await seed.begin(task, tool(task))
    call = await scripted.called(task)
    await stream.notification(CREATED)
    return call


async def test_more_signals_hurry(own: Crowd, scripted: Upstream) -> None:
    async with client(own.gateway, "hurry") as seed:
        call = await begun(seed, new_id(), scripted)
        own.gateway.process.send(signal.SIGINT)
        own.gateway.process.wait_line("draining: 1 tasks run")
        own.gateway.process.send(signal.SIGINT)
        assert await asyncio.to_thread(own.gateway.process.wait_end, 5) == 0
        await call.cancelled()


async def test_I5_workers_whose_supervisor_is_killed_drain_and_end(
    own: Crowd, crowd: Crowd, scripted: Upstream
) -> None:
    processes = pids(await own.workers())
    assert set(children_of(own.gateway.process.pid)) == processes
    async with client(own.gateway, "orphan") as seed:
        task = new_id()
        call = await begun(seed, task, scripted)
        own.gateway.process.send(signal.SIGKILL)
        assert await asyncio.to_thread(own.gateway.process.wait_end) == -signal.SIGKILL
        own.gateway.process.wait_line("draining: 1 tasks run")
        assert [process for process in processes if lives(process)]
        call.finish()
        await seed.twin(crowd.gateway.url("main")).reach(task, "completed")
    await eventually(lambda: not any(map(lives, processes)))


async def test_a_changed_configuration_is_taken_by_all_workers_and_a_bad_one_by_none(
    crowd: Crowd,
) -> None:
    gateway = crowd.gateway
    old = gateway.file.read_text(encoding="utf-8")
    gateway.file.write_text(old.replace(f'"workers": {WORKERS}', '"workers": 2'), encoding="utf-8")
    gateway.process.send(signal.SIGHUP)
    gateway.process.wait_line("refused, the old one stays: cannot be changed without a restart: workers")
    gateway.file.write_text(old.replace('"lease"', '"leash"'), encoding="utf-8")
    gateway.process.send(signal.SIGHUP)
    gateway.process.wait_line("refused, the old one stays: .*did you mean .*lease")
    assert (await crowd.counted())["mcp_gateway_config_reloads_total[('outcome', 'refused')]"] == 2
    gateway.file.write_text(old.replace('"shared": {', '"more": {', 1), encoding="utf-8")
    gateway.process.send(signal.SIGHUP)
    taken = "mcp_gateway_config_reloads_total[('outcome', 'taken')]"
    await crowd.until_counted(taken, WORKERS)
    before = await crowd.workers()
    for _ in before:
        await served(gateway, "more")
    # What takes a dead worker's place has the new configuration too.
    os.kill(before[1]["process"], signal.SIGKILL)
    await crowd.until(lambda seen: seen[1].get("replica") not in (before[1]["replica"], None))
    for _ in before:
        await served(gateway, "more")


async def served(gateway: Gateway, name: str) -> None:
    """Open a session with an upstream, which must be there."""
    async with Seed(gateway.url(name), "Bearer more"):
        pass
