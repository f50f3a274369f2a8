"""Fixtures of the tests of the stateless era: replicas that live as long as the test run.

Gateways and upstream share one event loop for the whole run: a process for each test would cost more
than the tests. Loaded as a plugin by the test modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import Eras, configuration, started
from tests.wire.stateless_client import Stateless


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def era_upstream() -> AsyncIterator[EraUpstream]:
    """Serve the scripted upstream of both eras."""
    upstream = EraUpstream()
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["memory", "redis"])
async def eras(
    request: pytest.FixtureRequest, era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve on each store: on memory by one replica, on Redis by two."""
    place = tmp_path_factory.mktemp("eras")
    url = None if request.param == "memory" else str(request.getfixturevalue("redis_url"))
    config = configuration(era_upstream, url or "memory://")
    gateways = await started(*[config] * (1 if url is None else 2), place=place)
    yield Eras(era_upstream, gateways, url)
    for gateway in gateways:
        await asyncio.to_thread(gateway.end)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def replicas(
    era_upstream: EraUpstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve by two replicas."""
    config = configuration(era_upstream, redis_url)
    gateways = await started(config, config, place=tmp_path_factory.mktemp("replicas"))
    yield Eras(era_upstream, gateways, redis_url)
    for gateway in gateways:
        await asyncio.to_thread(gateway.end)


@pytest_asyncio.fixture(loop_scope="session")
async def caller(eras: Eras) -> AsyncIterator[Stateless]:
    """Return a client with a credential of its own."""
    async with eras.client() as made:
        yield made
