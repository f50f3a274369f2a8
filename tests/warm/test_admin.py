"""The operator's door, over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import ClientSession

from gateway.aio.clock import SystemClock
from gateway.front import admin
from gateway.front.admin import Admin, Probe, Probes
from gateway.observe.metrics import Metrics
from gateway.protocol.errors import StoreAway

Get = Callable[[str], Awaitable[tuple[int, str, str]]]


class HandClock(SystemClock):
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


class World:
    """What the probes see, and how often they were asked."""

    def __init__(self) -> None:
        self.store: str | Exception | None = None
        self.upstreams: dict[str, str | None] = {"a": None, "b": None}
        self.draining = False
        self.serving = True
        self.asked = 0
        self.hang = False

    def probes(self) -> Probes:
        return Probes(
            store=self.ask_store,
            upstreams={name: self._upstream(name) for name in self.upstreams},
            draining=lambda: self.draining,
            serving=lambda: self.serving,
        )

    async def ask_store(self) -> str | None:
        self.asked += 1
        if isinstance(self.store, Exception):
            raise self.store
        if self.hang:
            await asyncio.Event().wait()
        return self.store

    def _upstream(self, name: str) -> Probe:
        async def ask() -> str | None:
            return self.upstreams[name]

        return ask


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1.2.3", ["a", "b"], [])


@pytest.fixture
async def get(world: World, clock: HandClock, metrics: Metrics) -> AsyncIterator[Get]:
    door = Admin(metrics.render, world.probes(), clock)
    port = await door.start("127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{port}") as http:

        async def one(path: str) -> tuple[int, str, str]:
            async with http.get(path) as answer:
                return answer.status, answer.headers["Content-Type"], await answer.text()

        yield one
    await door.close()


async def test_metrics_are_served_in_the_type_of_the_exposition_format(get: Get, metrics: Metrics) -> None:
    metrics.sessions_now.labels("a").set(7)
    status, kind, text = await get("/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert 'mcp_gateway_sessions{upstream="a"} 7.0\n' in text


async def test_a_living_loop_is_healthy_whatever_else_is_wrong(get: Get, world: World) -> None:
    world.store, world.draining = StoreAway("away"), True
    status, _, text = await get("/healthz")
    assert (status, text) == (200, "ok")


async def test_a_replica_with_store_and_upstreams_is_ready(get: Get) -> None:
    status, kind, text = await get("/readyz")
    assert (status, kind) == (200, "application/json; charset=utf-8")
    assert json.loads(text) == {
        "ready": True,
        "store": "ok",
        "upstreams": {"a": "ok", "b": "ok"},
        "draining": False,
        "serving": True,
    }


async def test_I9_a_store_that_is_away_is_named(get: Get, world: World) -> None:
    world.store = StoreAway("the store did not answer: redis://user:hunter2@store:6379/0")
    status, _, text = await get("/readyz")
    assert status == 503
    assert '"store": "the store did not answer: redis://***@store:6379/0"' in text
    assert "hunter2" not in text


async def test_an_unforeseen_failure_is_named_by_its_kind_only(get: Get, world: World) -> None:
    world.store = RuntimeError("password=hunter2")
    status, _, text = await get("/readyz")
    assert status == 503
    assert '"store": "the check failed: RuntimeError"' in text


async def test_one_upstream_of_several_that_is_down_is_named_and_does_not_stop_the_others(
    get: Get, world: World
) -> None:
    world.upstreams["b"] = "connection refused"
    status, _, text = await get("/readyz")
    assert status == 200
    assert '"upstreams": {"a": "ok", "b": "connection refused"}' in text


async def test_a_replica_that_reaches_no_upstream_is_not_ready(get: Get, world: World) -> None:
    world.upstreams.update(a="connection refused", b="connection refused")
    status, _, _ = await get("/readyz")
    assert status == 503


async def test_a_draining_replica_is_not_ready_at_once(get: Get, world: World) -> None:
    assert (await get("/readyz"))[0] == 200
    world.draining = True
    status, _, text = await get("/readyz")
    assert status == 503
    assert '"ready": false' in text
    assert '"draining": true' in text


async def test_a_replica_that_does_not_let_clients_in_yet_is_not_ready(get: Get, world: World) -> None:
    world.serving = False
    status, _, text = await get("/readyz")
    assert status == 503
    assert json.loads(text)["serving"] is False


async def test_I9_a_balancer_keeps_a_replica_whose_store_is_away(get: Get, world: World) -> None:
    world.store = StoreAway("away")
    status, _, text = await get("/readyz?exclude=store")
    assert status == 200
    assert "store" not in json.loads(text)
    world.draining = True
    assert (await get("/readyz?exclude=store"))[0] == 503


async def test_a_balancer_keeps_a_replica_whose_upstreams_are_all_down(get: Get, world: World) -> None:
    world.upstreams = {"a": "connection refused", "b": "connection refused"}
    assert (await get("/readyz?exclude=upstreams"))[0] == 200


async def test_what_a_balancer_excludes_is_not_waited_for(get: Get, world: World) -> None:
    world.hang = True
    status, _, text = await get("/readyz?exclude=store&exclude=upstreams")
    assert (status, world.asked) == (200, 0)
    assert json.loads(text) == {"ready": True, "draining": False, "serving": True}


async def test_a_store_that_hangs_does_not_delay_who_asks_for_the_upstreams_only(
    get: Get, world: World
) -> None:
    world.hang = True
    status, _, text = await get("/readyz?exclude=store")
    assert (status, world.asked) == (200, 0)
    assert json.loads(text)["upstreams"] == {"a": "ok", "b": "ok"}


async def test_I12_a_check_that_there_is_not_cannot_be_excluded(get: Get) -> None:
    status, _, text = await get("/readyz?exclude=redis")
    assert (status, text) == (400, "exclude knows store and upstreams, not redis\n")


async def test_I10_answers_are_kept_for_a_second_and_asked_for_once(
    get: Get, world: World, clock: HandClock
) -> None:
    await asyncio.gather(*(get("/readyz") for _ in range(5)))
    assert world.asked == 1
    clock.seconds += 0.9
    await get("/readyz")
    assert world.asked == 1
    clock.seconds += 0.2
    await get("/readyz")
    assert world.asked == 2


async def test_a_probe_that_hangs_is_given_up(
    get: Get, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "PROBE_SECONDS", 0.05)
    world.hang = True
    status, _, text = await get("/readyz")
    assert status == 503
    assert '"store": "no answer within 0.05 s"' in text


async def test_other_paths_are_not_there(get: Get) -> None:
    assert (await get("/"))[0] == 404


async def test_the_port_is_free_again_after_close(world: World, clock: HandClock, metrics: Metrics) -> None:
    first = Admin(metrics.render, world.probes(), clock)
    port = await first.start("127.0.0.1", 0)
    await first.close()
    await first.close()
    second = Admin(metrics.render, world.probes(), clock)
    assert await second.start("127.0.0.1", port) == port
    await second.close()


async def test_a_port_that_is_taken_is_an_os_error(
    world: World, clock: HandClock, metrics: Metrics
) -> None:
    first = Admin(metrics.render, world.probes(), clock)
    port = await first.start("127.0.0.1", 0)
    second = Admin(metrics.render, world.probes(), clock)
    with pytest.raises(OSError, match="address already in use"):
        await second.start("127.0.0.1", port)
    await second.close()
    await first.close()
