"""The stores that the contract holds for, and a look at the keyspace after each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from redis.asyncio import Redis
from redis.asyncio import RedisCluster as ClusterClient

from gateway.store.link import ClusterLink, Link, PoolLink, open_link
from gateway.store.redis import RedisStore
from gateway.tasks.model import Scope, TaskKey
from tests.redis_groups import RedisCluster, Watched
from tests.redis_servers import RedisServer, find_servers, start

_FOUND = find_servers()
# These two come with the test extra; whatever Redis the machine has is taken as well.
_NAMES = sorted({"redis-6.2", "valkey", *_FOUND})
# These take long on a cluster, and what they are about is the same there.
_NOT_ON_CLUSTER = {"test_store_away", "test_turns_property"}
# How a store is reached, not what it does, is what differs under Sentinel: three modules tell.
_ON_SENTINEL = {"test_store_life", "test_bus", "test_rates"}
_ENDED = {b"completed", b"failed", b"cancelled", b"unknown"}
_ALONE = {b"mtg:leases", b"mtg:secret"}


class World:
    """One store as the tests see it: links for as many replicas as they like, and its keys."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._links: list[Link] = [open_link(url)]
        # redis-py leaves most of its methods' types open.
        self.redis: Any = _client(url, self._links[0])

    def link(self, *, timeout: float = 5.0) -> Link:
        """Return a link of its own, as another replica would have."""
        self._links.append(open_link(self.url, timeout=timeout))
        return self._links[-1]

    def store(self, *, log_length: int = 1_000, timeout: float = 5.0) -> RedisStore:
        """Return the store as another replica would have it."""
        return RedisStore(self.link(timeout=timeout), log_length=log_length)

    async def keys(self) -> set[bytes]:
        """Return all keys that there are."""
        return {key async for key in self.redis.scan_iter(count=1_000)}

    async def close(self) -> None:
        """Close all links."""
        for link in self._links:
            await link.close()
        await self.redis.aclose()


def _client(url: str, link: Link) -> Any:
    if isinstance(link, ClusterLink):
        return ClusterClient.from_url("redis://" + url.rpartition(",")[2])
    assert isinstance(link, PoolLink)
    return Redis(connection_pool=link.pool)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is not worth its time."""
    items[:] = [item for item in items if not _is_too_much(item)]


def _is_too_much(item: pytest.Item) -> bool:
    if "[cluster" in item.name:
        return item.path.stem in _NOT_ON_CLUSTER
    return "[sentinel" in item.name and item.path.stem not in _ON_SENTINEL


@pytest.fixture(scope="session")
def _running() -> Iterator[dict[str, RedisServer | RedisCluster | Watched]]:
    servers: dict[str, RedisServer | RedisCluster | Watched] = {}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture(params=["memory", *_NAMES, "cluster", "sentinel"])
def url(request: pytest.FixtureRequest, _running: dict[str, RedisServer | RedisCluster | Watched]) -> str:
    """Return the URL of each store in turn; a server that is missing skips, and fails in CI."""
    name = str(request.param)
    if name == "memory":
        return f"memory://{uuid.uuid4().hex}"
    binary = (
        next(iter(reversed(_FOUND.values())), None) if name in ("cluster", "sentinel") else _FOUND.get(name)
    )
    if binary is None:
        if os.environ.get("CI"):
            pytest.fail(f"no {name} server here, and CI must have one")
        pytest.skip(f"no {name} server here")
    if name not in _running:
        make = {"cluster": RedisCluster, "sentinel": Watched}.get(name, start)
        _running[name] = make(binary)
    return _running[name].url


@pytest.fixture
async def world(url: str) -> AsyncIterator[World]:
    """Return an empty store; afterwards no key may lack an expiry, and removal must leave nothing (I8)."""
    world = World(url)
    await world.redis.flushdb()
    yield world
    await _check_expiries(world)
    await _check_removal(world)
    await world.close()


@pytest.fixture
def store(world: World) -> RedisStore:
    """Return the store of replica r1."""
    return world.store()


@pytest.fixture
def other(world: World) -> RedisStore:
    """Return the same store, of another replica."""
    return world.store()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Return a real server of this test's own, that may be stopped."""
    if not _FOUND:
        if os.environ.get("CI"):
            pytest.fail("no Redis server here, and CI must have one")
        pytest.skip("no Redis server here")
    server = start(next(iter(_FOUND.values())))
    yield server
    server.close()


async def _check_expiries(world: World) -> None:
    endless: set[bytes] = set()
    keys = await world.keys()
    for key in keys:
        if b":t:" not in key:
            continue
        keep_alive, status = await world.redis.hmget(key, ["keep_alive", "status"])
        if keep_alive == b"" and status in _ENDED:
            scope, digest = key.rsplit(b":t:", 1)
            endless |= {b"%b:%b:%b" % (scope, kind, digest) for kind in (b"t", b"r", b"l")}
            endless |= {b"%b:%b" % (scope, kind) for kind in (b"i", b"e", b"a", b"c")}
    for key in keys - endless - _ALONE:
        assert await world.redis.pttl(key) != -1, f"{key!r} would stay for ever"


async def _check_removal(world: World) -> None:
    store = world.store()
    for key in await world.keys():
        if b":t:" in key:
            scope, digest = key.rsplit(b":t:", 1)
            upstream, tag = scope[scope.index(b"{") + 1 : scope.index(b"}")].decode().split(":")
            name = Scope(unquote(upstream), unquote(tag))
            await store.remove(TaskKey.from_digest(name, digest.decode()))
    left = {key for key in await world.keys() if b"{" in key}
    assert not left, f"removal left {left!r}"
