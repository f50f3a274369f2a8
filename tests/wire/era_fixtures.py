"""Fixtures of the tests of the stateless era: replicas that live as long as the test run.

Gateways and upstream share one event loop for the whole run: a process for each test would cost more
than the tests. Loaded as a plugin by the test modules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests import redis_servers
from tests.redis_servers import RedisServer
from tests.tools import ToolMissing
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import Eras, configuration, deployed
from tests.wire.stateless_client import Stateless


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def era_upstream() -> AsyncIterator[EraUpstream]:
    """Serve the scripted upstream of both eras."""
    upstream = EraUpstream()
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def era_alone(
    era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve by one replica that keeps all in its memory."""
    config = configuration(era_upstream, "memory://")
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("alone")) as served:
        yield served


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def era_replicas(
    era_upstream: EraUpstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve by two replicas on Redis."""
    config = configuration(era_upstream, redis_url)
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("replicas"), 2) as served:
        yield served


@pytest.fixture(scope="session", params=["era_alone", "era_replicas"], ids=["memory", "redis"])
def eras(request: pytest.FixtureRequest) -> Eras:
    """Serve on each store. Modules to whose tests the store is all one take `era_alone` in its place."""
    return request.getfixturevalue(request.param)


@pytest_asyncio.fixture(loop_scope="session")
async def caller(eras: Eras) -> AsyncIterator[Stateless]:
    """Return a client with a credential of its own."""
    async with eras.client() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def own_redis() -> AsyncIterator[RedisServer]:
    """Start a Redis of the test's own."""
    found = redis_servers.find_servers()
    if not found:
        raise ToolMissing("no Redis server here")
    server = redis_servers.start(found.get("valkey") or list(found.values())[-1])
    yield server
    server.close()
