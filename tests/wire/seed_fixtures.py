"""Fixtures of the dialect A tests: one scripted upstream, gateways of each store in front of it.

Gateways and upstream live as long as the test run, in one event loop: starting a process for each
test would cost more than the tests. Loaded as a plugin by the test modules.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.balancers import replicas, serve
from tests.wire.scripted_upstream import Upstream
from tests.wire.seed_client import Seed
from tests.wire.seed_world import House, configuration

_NUMBERS: Final = itertools.count()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scripted() -> AsyncIterator[Upstream]:
    """Serve the scripted upstream."""
    upstream = Upstream()
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["memory", "redis"])
async def house(
    request: pytest.FixtureRequest, scripted: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Serve the scripted upstream on each store; on Redis by two replicas."""
    place = tmp_path_factory.mktemp("house")
    if request.param == "memory":
        made = House(scripted, [serve(configuration(scripted, "memory://"), place)], None)
    else:
        url: str = request.getfixturevalue("redis_url")
        config = configuration(scripted, url)
        made = House(scripted, replicas(config, place, 2), url)
    for gateway in made.gateways:
        await asyncio.to_thread(gateway.wait)
    yield made
    for gateway in made.gateways:
        await asyncio.to_thread(gateway.end)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pair(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Serve the scripted upstream by two replicas."""
    place: Path = tmp_path_factory.mktemp("pair")
    config = configuration(scripted, redis_url)
    made = House(scripted, replicas(config, place, 2), redis_url)
    for gateway in made.gateways:
        await asyncio.to_thread(gateway.wait)
    yield made
    for gateway in made.gateways:
        await asyncio.to_thread(gateway.end)


@pytest_asyncio.fixture(loop_scope="session")
async def seed(house: House) -> AsyncIterator[Seed]:
    """Return a client with a session and a credential of its own."""
    async with house.client(f"Bearer number-{next(_NUMBERS)}") as client:
        yield client
