"""Fixtures of the tests of the bridge: gateways and upstreams that live as long as the test run.

Loaded as a plugin by the test modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.balancers import replicas as gateways_of
from tests.balancers import serve
from tests.wire.bridge_world import Bridge, configuration, upstreams
from tests.wire.modern_upstream import ModernUpstream


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def modern() -> AsyncIterator[ModernUpstream]:
    """Serve the upstream of the stateless era."""
    upstream = ModernUpstream()
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def bridge(modern: ModernUpstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """Serve the stateless upstreams by one replica."""
    place = tmp_path_factory.mktemp("bridge")
    config, seen = upstreams(modern, place)
    gateway = serve(configuration(config, "memory://"), place)
    await asyncio.to_thread(gateway.wait)
    yield Bridge([gateway], seen)
    await asyncio.to_thread(gateway.end)
    for one in seen.values():
        one.check()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def replicas(
    modern: ModernUpstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bridge]:
    """Serve the stateless upstreams by two replicas."""
    place = tmp_path_factory.mktemp("replicas")
    config, seen = upstreams(modern, place)
    both = configuration(config, redis_url)
    gateways = gateways_of(both, place, 2)
    for gateway in gateways:
        await asyncio.to_thread(gateway.wait)
    yield Bridge(gateways, seen)
    for gateway in gateways:
        await asyncio.to_thread(gateway.end)
