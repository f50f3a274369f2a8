"""Ten times the load that fits: answers stay immediate, memory stays bounded, the rest goes on (I10)."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import pytest_asyncio

from tests.wire.scripted_upstream import Upstream, tool
from tests.wire.seed_client import Json, Seed, new_id
from tests.wire.seed_world import House, configuration, started

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("measures one gateway"),
]
SCOPES = 32
RUNNING, QUEUED = 16, 128
FITS = RUNNING + QUEUED
CONNECTIONS = 40
# A hundred may wait for a connection.
PLAIN_FITS = CONNECTIONS + 100
AT_ONCE = 64
# What a request may take on a machine that others use too; alone it is a few milliseconds.
SECONDS = 5.0
MIB = 1024 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def crowded(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    config = configuration(scripted, redis_url)
    config["upstreams"]["main"]["tasks"] = {
        "tools": {"work": {"max_concurrent": RUNNING, "max_queued": QUEUED}},
        "poll_interval": "1s",
    }
    config["upstreams"]["main"]["max_connections"] = CONNECTIONS
    gateway = await started(config, tmp_path_factory.mktemp("crowded"))
    yield House(scripted, [gateway], redis_url)
    await asyncio.to_thread(gateway.end)


def megabytes(house: House) -> float:
    """Return what the gateway's process holds in memory."""
    text = house.gateways[0].admin("/metrics")[1]
    found = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1]) / MIB


class Flood:
    """Many creations at the same time, of many scopes, and what became of each."""

    def __init__(self, house: House, seeds: list[Seed]) -> None:
        self._house = house
        self._seeds = seeds
        self.accepted: list[tuple[Seed, str]] = []
        self.refused: list[Json] = []
        self.slowest = 0.0
        self.answers = Counter[int]()

    async def pour(self, number: int) -> None:
        """Create so many tasks, so that the next of each connection follows its last answer."""
        left = iter(range(number))
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._pour(http, left))

    async def _pour(self, http: aiohttp.ClientSession, left: Iterator[int]) -> None:
        for place in left:
            seed, key = self._seeds[place % len(self._seeds)], new_id()
            params: Json = {**tool(key), "task": {}}
            message: Json = {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}
            headers = {
                "Accept": "application/json, text/event-stream",
                "Mcp-Session-Id": seed.session or "",
                "MCP-Protocol-Version": seed.version,
                "Authorization": seed.authorization or "",
            }
            began = time.monotonic()
            async with http.post(seed.url, json=message, headers=headers) as response:
                answer = await response.json()
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.answers[response.status] += 1
            if "error" in answer:
                self.refused.append(answer["error"])
            else:
                self.accepted.append((seed, key))


async def pinging(seed: Seed, times: list[float]) -> None:
    """Ask for something else all the while."""
    while True:
        began = time.monotonic()
        await seed.ask("ping", {})
        times.append(time.monotonic() - began)
        await asyncio.sleep(0.05)


async def test_I10_ten_times_what_fits_is_refused_at_once_and_costs_no_memory(crowded: House) -> None:
    seeds = [Seed(crowded.url(), f"Bearer flood-{n}", "2025-11-25") for n in range(SCOPES)]
    for seed in seeds:
        await seed.initialize()
    other = crowded.client("Bearer plain")
    await other.initialize()
    flood, pings = Flood(crowded, seeds), list[float]()
    pinger = asyncio.create_task(pinging(other, pings))
    await flood.pour(FITS)
    assert len(flood.accepted) == FITS
    full = megabytes(crowded)
    await flood.pour(9 * FITS)
    after = megabytes(crowded)
    pinger.cancel()
    await asyncio.wait([pinger])
    # A scope with nothing in the queue gets one place beyond the bound; here each has some.
    assert len(flood.accepted) == FITS
    assert len(flood.refused) == 9 * FITS
    for error in flood.refused:
        assert error["data"]["limit"] == "max_queued"
        assert error["data"]["retryAfter"] > 0
    assert after - full < 16
    assert flood.slowest < SECONDS
    assert max(pings) < SECONDS
    await finished(crowded, flood)
    for seed in (*seeds, other):
        seed.vanish()


async def finished(house: House, flood: Flood) -> None:
    """Let all calls end that were accepted, each in its turn."""

    async def finish(key: str) -> None:
        (await house.upstream.called(key)).finish()

    async with asyncio.TaskGroup() as group:
        for _, key in flood.accepted:
            group.create_task(finish(key))


async def test_I10_more_plain_calls_than_connections_are_refused_at_once_and_cost_no_memory(
    crowded: House,
) -> None:
    seed = crowded.client("Bearer many")
    await seed.initialize()
    keys = [new_id() for _ in range(5 * PLAIN_FITS)]
    before, statuses, refused = megabytes(crowded), Counter[int](), asyncio.Event()
    slowest = 0.0

    async def call(key: str) -> None:
        nonlocal slowest
        began = time.monotonic()
        message = {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": tool(key, "plain")}
        async with await seed.post(message) as exchange:
            statuses[exchange.status] += 1
            if exchange.status == 503:
                assert int(exchange.headers["retry-after"]) >= 1
                assert (await exchange.json())["error"]["data"]["limit"] == "max_connections"
                slowest = max(slowest, time.monotonic() - began)
                if statuses[503] == len(keys) - PLAIN_FITS:
                    refused.set()

    async def finish() -> None:
        open_keys, upstream = set(keys), crowded.upstream
        while len(keys) - len(open_keys) < PLAIN_FITS:
            async with upstream.changed:
                await upstream.changed.wait_for(lambda: bool(open_keys & upstream.calls.keys()))
            for key in open_keys & upstream.calls.keys():
                open_keys.discard(key)
                upstream.calls[key][0].finish()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(call(key))
        await refused.wait()
        assert megabytes(crowded) - before < 32
        group.create_task(finish())
    assert statuses == {200: PLAIN_FITS, 503: len(keys) - PLAIN_FITS}
    assert slowest < SECONDS
    seed.vanish()
