"""A replica that a test may end, beside one that stays."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.wire.recovery_world import Doomed, Survivor, surviving
from tests.wire.scripted_upstream import Upstream


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def survivor(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Survivor]:
    """Serve by a replica that stays."""
    async with surviving(scripted, redis_url, tmp_path_factory.mktemp("survivor")) as stays:
        yield stays


@pytest_asyncio.fixture(loop_scope="session")
async def doomed(
    scripted: Upstream, redis_url: str, survivor: Survivor, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Doomed]:
    """Serve by a replica that the test may end, beside the one that stays; the lease is a second."""
    world = Doomed(scripted, redis_url, tmp_path_factory.mktemp("doomed"), survivor)
    await world.begin()
    yield world
    await world.end()
