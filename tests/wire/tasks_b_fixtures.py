"""Fixtures of the dialect B tests: one scripted upstream, gateways of each store in front of it.

Gateways and upstream live as long as the test run, in one event loop: starting a process for each
test would cost more than the tests. Loaded as a plugin by the test modules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.wire.scripted_upstream import Upstream
from tests.wire.tasks_b_client import TasksB
from tests.wire.tasks_b_world import Place, configuration, credential, served


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
    async with served(configuration(works, "memory://"), tmp_path_factory.mktemp("alone")) as gateways:
        yield Place(works, gateways)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def two(
    works: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    """Serve the scripted upstream by two replicas on Redis."""
    async with served(configuration(works, redis_url), tmp_path_factory.mktemp("two"), 2) as gateways:
        yield Place(works, gateways)


@pytest.fixture(scope="session", params=["memory", "redis"])
def place(request: pytest.FixtureRequest) -> Place:
    """Serve the scripted upstream on each store; on Redis by two replicas."""
    return request.getfixturevalue("alone" if request.param == "memory" else "two")


@pytest_asyncio.fixture(loop_scope="session")
async def client(place: Place) -> AsyncIterator[TasksB]:
    """Return a client with a session and a credential of its own."""
    async with place.client(credential()) as one:
        yield one
