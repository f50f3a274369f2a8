"""Each script stays in one hash slot, so that Redis Cluster can follow; a cluster node checks it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.protocol.errors import StoreAway
from gateway.store.bus import RedisBus
from gateway.store.link import Way
from gateway.store.port import GIVEN, Ask, Asker, Bus, Command, Line, RateLimits, Store
from gateway.store.rates import StoreRates
from gateway.store.redis import RedisStore, open_store
from gateway.tasks.model import Task
from tests.contract.making import (
    DONE,
    LEASE_MS,
    OURS,
    ROOMY,
    SCOPE,
    create,
    key_of,
    new_task,
    pending,
    until,
)
from tests.redis_servers import RedisServer, find_servers, start


@pytest.fixture(scope="module", params=sorted({"redis-6.2", "valkey", *find_servers()}))
def node(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Run each server as a cluster of one node."""
    path = find_servers().get(str(request.param))
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"no {request.param} server here, and CI must have one")
        pytest.skip(f"no {request.param} server here")
    server = start(path, "--cluster-enabled", "yes")
    yield server
    server.close()


@pytest.fixture
async def one_node(node: RedisServer) -> AsyncIterator[RedisStore]:
    """Return an empty store on a cluster of one node that has all slots."""
    store = open_store(node.url, timeout=5.0)
    lane = store.link.quick
    if b"cluster_slots_assigned:0" in await _info(lane):
        await lane.ask((b"CLUSTER", b"ADDSLOTS", *(b"%d" % slot for slot in range(16_384))))
    await until(lambda: _ready(lane), words="the cluster did not come up")
    await lane.ask((b"FLUSHALL",))
    yield store
    await store.close()


async def _info(lane: Way) -> bytes:
    (words,) = await lane.ask((b"CLUSTER", b"INFO"))
    return words


async def _ready(lane: Way) -> bool:
    return b"cluster_state:ok" in await _info(lane)


async def test_every_step_of_the_store_stays_in_one_slot(one_node: RedisStore) -> None:
    store: Store = one_node
    await create(one_node, key_of())
    await store.start(key_of(), OURS)
    for relay_id, upstream_id in (("q1", b"1"), ("q2", b"2")):
        await store.ask(key_of(), OURS, pending(relay_id, upstream_id))
    assert await store.take_pending(key_of(), "q1") is not None
    assert await store.drop_pending(key_of(), OURS, b"2") is not None
    assert await store.note(key_of(), OURS, "half")
    assert await store.append(key_of(), OURS, b"{}") is not None
    assert len(await store.read_log(key_of(), None, 10)) == 1
    assert await store.find_request(SCOPE, "s1", b"1") == key_of()
    await store.renew([key_of()], "r1", 1)
    taken: list[Task] = []

    async def lost() -> bool:
        taken.extend(await store.claim_lost("r1", LEASE_MS, 10))
        return bool(taken)

    await until(lost)
    assert await store.cancel(key_of(), "stop") is not None
    await store.create(new_task(key_of("t2")), "r1", LEASE_MS, ROOMY)
    assert await store.finish(key_of("t2"), OURS, DONE) is not None
    assert await store.outcome(key_of("t2")) is not None
    assert len((await store.page(SCOPE, None, 10))[0]) == 2
    assert await store.remove(key_of("t2")) is not None
    assert await store.get(key_of("t2")) is None
    await store.end_session("s1", 1_000)
    assert await store.shared_secret(lambda: b"secret") == b"secret"


async def test_turns_of_a_rule_stay_in_one_slot(one_node: RedisStore) -> None:
    line, asker = Line("reports", "render_*", 1, 1), Asker("r1", LEASE_MS)
    for ticket in ("1", "2"):
        await one_node.turns.ask(line, asker, [Ask("wait", SCOPE, ticket)], bound=10)
    await one_node.turns.leave(line, asker, [("1", 5)])
    found = await one_node.turns.ask(line, asker, [Ask("hold", SCOPE, "2")], named="all")
    assert found is not None
    assert found.states == [GIVEN]


async def test_bus_and_rates_work_on_a_cluster_node(one_node: RedisStore) -> None:
    bus: Bus = RedisBus(one_node.link, "r1")
    rates: RateLimits = StoreRates(one_node.link, {"create": "100/minute"})
    assert await rates.hit("create", SCOPE) is None
    async with bus.watch(key_of()) as bell:
        async with asyncio.timeout(10):
            await bell.wait()
            await create(one_node, key_of())
            await one_node.start(key_of(), OURS)
            await bell.wait()
            await bus.send("r1", Command("cancel", key_of()))
            assert await anext(bus.commands()) == Command("cancel", key_of())
    await bus.close()


async def test_what_is_not_the_stores_own_slot_is_refused_there(one_node: RedisStore) -> None:
    with pytest.raises(StoreAway, match="CrossSlot"):
        await one_node.link.quick.ask((b"DEL", b"a", b"b"))
