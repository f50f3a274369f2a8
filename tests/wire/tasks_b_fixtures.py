"""Fixtures of the dialect B tests: one scripted upstream, gateways of each store in front of it.

Gateways and upstream live as long as the test run, in one event loop: starting a process for each
test would cost more than the tests. Loaded as a plugin by the test modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.scripted_upstream import Upstream
from tests.wire.tasks_b_client import TasksB
from tests.wire.tasks_b_world import Place, configuration, credential


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def works() -> AsyncIterator[Upstream]:
    """Serve the scripted upstream."""
    upstream = Upstream()
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def alone(works: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """Serve the scripted upstream on the embedded store."""
    gateway = Gateway(configuration(works, "memory://"), tmp_path_factory.mktemp("alone"))
    await asyncio.to_thread(gateway.wait)
    yield Place(works, [gateway])
    await asyncio.to_thread(gateway.end)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def two(
    works: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    """Serve the scripted upstream by two replicas on Redis."""
    folder = tmp_path_factory.mktemp("two")
    config = configuration(works, redis_url)
    gateways = [Gateway(config, folder) for _ in range(2)]
    for gateway in gateways:
        await asyncio.to_thread(gateway.wait)
    yield Place(works, gateways)
    for gateway in gateways:
        await asyncio.to_thread(gateway.end)


@pytest.fixture(scope="session", params=["memory", "redis"])
def place(request: pytest.FixtureRequest) -> Place:
    """Serve the scripted upstream on each store; on Redis by two replicas."""
    return request.getfixturevalue("alone" if request.param == "memory" else "two")


@pytest_asyncio.fixture(loop_scope="session")
async def client(place: Place) -> AsyncIterator[TasksB]:
    """Return a client with a session and a credential of its own."""
    async with place.client(credential()) as one:
        yield one
