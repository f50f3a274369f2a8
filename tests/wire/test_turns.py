"""Turns over three replicas: bounds and order as the upstream sees them, deaths, full queues (I5, I10)."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import Json, Seed, eventually, new_id
from tests.wire.seed_world import House, configuration, started
from tests.wire.stateless_client import Stateless

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("says which replica does what"),
]
LEASE = 1.0
RULES: Json = {
    "two": {"max_concurrent": 2},
    "one": {"max_concurrent": 1},
    "spare": {"max_concurrent_per_scope": 1},
    "crowded": {"max_concurrent": 1, "max_queued": 1},
}
WORK_SECONDS = 0.01


async def made(scripted: Upstream, redis_url: str, place: pytest.TempPathFactory, number: int) -> House:
    """Serve by replicas of the test's own."""
    config = configuration(scripted, redis_url, lease=f"{LEASE:g}s")
    for upstream in config["upstreams"].values():
        upstream["tasks"] = {**upstream["tasks"], "tools": RULES}
    folder = place.mktemp("turns")
    gateways = await asyncio.gather(*(started(config, folder) for _ in range(number)))
    return House(scripted, gateways, redis_url)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trio(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    house = await made(scripted, redis_url, tmp_path_factory, 3)
    yield house
    for gateway in house.gateways:
        await asyncio.to_thread(gateway.end)


class Workshop:
    """The upstream's own view: which calls came in which order, and how many there were at once."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.order: list[str] = []
        self.most = 0
        self.open = asyncio.Event()
        self._now = 0

    async def work(self, key: str) -> None:
        """Do one call when it comes and the workshop is open."""
        call = await self._upstream.called(key)
        self.order.append(key)
        self._now += 1
        self.most = max(self.most, self._now)
        await self.open.wait()
        await asyncio.sleep(WORK_SECONDS)
        self._now -= 1
        call.finish()


def gauge(gateways: Sequence[Gateway], state: str, pattern: str) -> float:
    """Return how many calls of a rule wait, or have turns, as the gateways say."""
    wanted = re.compile(
        rf'^mcp_gateway_turns{{pattern="{pattern}",state="{state}".*}} (\S+)$', re.MULTILINE
    )
    return sum(float(n) for one in gateways for n in wanted.findall(one.admin("/metrics")[1]))


async def until_waiting(gateways: Sequence[Gateway], number: int, pattern: str) -> None:
    await eventually(lambda: gauge(gateways, "waiting", pattern) == number)


async def test_thirty_tasks_of_three_scopes_on_three_replicas_are_two_at_a_time_and_in_fair_order(
    trio: House,
) -> None:
    shop = Workshop(trio.upstream)
    names = [f"{scope}{n}-{new_id()}" for scope in "abc" for n in range(10)]
    clients = {scope: trio.client(f"Bearer turns-{scope}") for scope in "abc"}
    for client in clients.values():
        await client.initialize()
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(shop.work(name))
        # The first scope comes with all it has before the others come at all.
        for place, name in enumerate(names):
            client = clients[name[0]]
            # The first stream must stay open: a client that reads nothing is no reason to stop.
            await client.twin(trio.url(replica=place % 3)).begin(name, tool(name, "two"))
        await until_waiting(trio.gateways, 28, "two")
        shop.open.set()
    assert shop.most == 2
    assert {name[0] for name in shop.order[:2]} == {"a"}
    count = {"a": 0, "b": 0, "c": 0}
    for name in shop.order[2:26]:
        count[name[0]] += 1
        # Two that got their turns together may come in either order, from different replicas.
        assert max(count.values()) - min(count.values()) <= 2, shop.order
    assert count == {"a": 8, "b": 8, "c": 8}
    for name in names:
        await clients[name[0]].reach(name, "completed")
    await until_waiting(trio.gateways, 0, "two")
    for client in clients.values():
        client.vanish()


async def test_each_scope_has_its_own_bound_and_the_others_go_on(trio: House) -> None:
    async with trio.client("Bearer spare-a") as ada, trio.client("Bearer spare-b") as bob:
        first, second, third = (new_id() for _ in range(3))
        await ada.begin(first, tool(first, "spare"))
        await ada.twin(trio.url(replica=1)).begin(second, tool(second, "spare"))
        await bob.twin(trio.url(replica=2)).begin(third, tool(third, "spare"))
        calls = [await trio.upstream.called(name) for name in (first, third)]
        assert (await ada.get(second))["result"]["status"] == "submitted"
        assert second not in trio.upstream.calls
        calls[0].finish()
        (await trio.upstream.called(second)).finish()
        calls[1].finish()
        await ada.reach(second, "completed")


async def test_I10_a_full_queue_answers_at_once_when_to_come_back(trio: House) -> None:
    client = trio.client("Bearer crowd")
    await client.initialize()
    newer = Seed(trio.url(replica=1), "Bearer crowd", "2025-11-25")
    await newer.initialize()
    modern = Stateless(trio.url(replica=2), authorization="Bearer crowd")
    running, waiting, refused = (new_id() for _ in range(3))
    await client.begin(running, tool(running, "crowded"))
    call = await trio.upstream.called(running)
    await client.twin(trio.url(replica=1)).begin(waiting, tool(waiting, "crowded"))
    began = time.monotonic()
    async with await client.begin(refused, tool(refused, "crowded")) as exchange:
        assert exchange.status == 429
        assert 0 < int(exchange.headers["retry-after"]) <= 60
        error = (await exchange.json())["error"]
    assert error["data"]["limit"] == "max_queued"
    assert 0 < error["data"]["retryAfter"] <= 60
    # In sessions of 2025-11-25 the same, without the status.
    answer = await newer.ask("tools/call", {**tool(refused, "crowded"), "task": {}})
    assert answer["error"]["data"]["limit"] == "max_queued"
    async with modern:
        # What may be a task but need not be is no way past the others either.
        reply = await modern.ask("tools/call", tool(refused, "crowded"))
    assert reply.refusal[0] == 429
    assert reply.response["error"]["data"]["limit"] == "max_queued"
    assert time.monotonic() - began < 2
    assert refused not in trio.upstream.calls
    assert "error" in await client.get(refused)
    # Another scope, which has none waiting, gets a place.
    async with trio.client("Bearer newcomer") as other:
        late = new_id()
        await other.begin(late, tool(late, "crowded"))
        assert (await other.get(late))["result"]["status"] == "submitted"
        await other.delete(late)
    call.finish()
    (await trio.upstream.called(waiting)).finish(text("at last"))
    await client.reach(waiting, "completed")
    client.vanish()
    newer.vanish()


async def test_a_waiting_task_says_so_and_then_no_more(trio: House) -> None:
    """2025-11-25 tasks: `statusMessage` describes the current state."""
    client = Stateless(trio.url(replica=2), authorization="Bearer patient")
    async with client:
        first, second = new_id(), new_id()
        made = [await client.ask("tools/call", tool(name, "one")) for name in (first, second)]
        call = await trio.upstream.called(first)
        shown = await client.ask("tasks/get", {"taskId": made[1].task_id})
        assert shown.result["status"] == "working"
        assert "turn" in shown.result["statusMessage"]
        call.finish()
        late = await trio.upstream.called(second)
        shown = await client.ask("tasks/get", {"taskId": made[1].task_id})
        assert "turn" not in shown.result.get("statusMessage", "")
        late.finish()


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_task_that_is_given_up_while_it_waits_is_never_called(trio: House, how: str) -> None:
    async with trio.client(f"Bearer given-up-{how}") as client:
        first, second, third = (new_id() for _ in range(3))
        await client.begin(first, tool(first, "one"))
        call = await trio.upstream.called(first)
        await client.twin(trio.url(replica=1)).begin(second, tool(second, "one"), ident=77)
        await client.twin(trio.url(replica=2)).begin(third, tool(third, "one"))
        if how == "cancel":
            await client.cancel(77)
        else:
            await client.delete(second)
        await until_waiting(trio.gateways, 1, "one")
        call.finish()
        (await trio.upstream.called(third)).finish()
        await client.reach(third, "completed")
        assert second not in trio.upstream.calls


async def test_I5_a_replica_that_is_killed_with_turns_holds_nobody_up_beyond_its_lease(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    house = await made(scripted, redis_url, tmp_path_factory, 2)
    try:
        dying, living = house.client("Bearer dying"), house.client("Bearer living", replica=1)
        await dying.initialize()
        await living.initialize()
        held = [new_id(), new_id()]
        for name in held:
            await dying.begin(name, tool(name, "two"))
            await scripted.called(name)
        late = [new_id(), new_id()]
        for name in late:
            await living.begin(name, tool(name, "two"))
        await until_waiting(house.gateways[1:], 2, "two")
        killed_at = time.monotonic()
        house.gateways[0].process.send(signal.SIGKILL)
        for name in late:
            (await scripted.called(name)).finish()
        assert time.monotonic() - killed_at < 3 * LEASE + 1
        for name in late:
            await living.reach(name, "completed")
        other = dying.twin(house.url(replica=1))
        for name in held:
            await other.reach(name, "failed", "completed")
        dying.vanish()
        living.vanish()
    finally:
        for gateway in house.gateways:
            await asyncio.to_thread(gateway.end)
