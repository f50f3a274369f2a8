"""The world of the tests of the stateless era: replicas in front of upstreams of both eras."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from redis.asyncio import Redis

from tests.balancers import CHOICE, serve
from tests.gateways import Gateway
from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import TASKS as EXTENSION

SECRET: Final = "a secret that both replicas know"
POLICY: Final[Json] = {
    "inline_within": "0s",
    "keep_alive": {"default": "30s", "max": "2m"},
    "poll_interval": "100ms",
    "timeout": "1m",
    "tools": {
        "plain*": "forbidden",
        "must": "required",
        "patient": {"inline_within": "30s"},
        "brief": {"inline_within": "50ms"},
        "unhurried": {"inline_within": "1500ms"},
        "short": {"timeout": "300ms"},
        "fleeting": {"timeout": "400ms", "keep_alive": {"default": "400ms", "max": "400ms"}},
        "one_by_one": {"max_concurrent": 1},
    },
    "methods": {"resources/read": "optional", "prompts/get": "optional"},
}
REQUIRED: Final[Json] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
NOT_FOUND: Final = (200, -32602, "Failed to retrieve task: Task not found")
T = TypeVar("T")
_NUMBERS: Final = itertools.count()


class Eras:
    """The replicas of one deployment, and the upstream behind them."""

    def __init__(self, upstream: EraUpstream, gateways: list[Gateway], redis: str | None) -> None:
        self.upstream = upstream
        self.gateways = gateways
        self.redis = redis

    def client(
        self, authorization: str | None = "", name: str = "main", replica: int = 0, **options: Any
    ) -> Stateless:
        """Return a client at a replica (the only one, where there is one), with a credential of its own.

        `None` sends no credential.
        """
        own = f"Bearer number-{next(_NUMBERS)}" if authorization == "" else authorization
        url = self.gateways[min(replica, len(self.gateways) - 1)].url(name)
        return Stateless(url, authorization=own, **options)

    def twin(self, client: Stateless, name: str = "main", **options: Any) -> Stateless:
        """Return the same client at the other replica."""
        return self.client(client.authorization, name, 1, **options)


def configuration(upstream: EraUpstream, store_url: str, **more: Any) -> Json:
    """Return a configuration with the policies that the tests name."""
    main: Json = {"url": upstream.url, "tasks": POLICY}
    return {
        "store": {"url": store_url, "prefix": f"{uuid.uuid4().hex}:"},
        "secret": SECRET,
        "upstreams": {
            "main": main,
            "modern": {**main, "url": upstream.modern_url},
            "poor": {**main, "url": upstream.url.replace("/mcp", "/poor")},
            "hasty": {**main, "answer_within": "400ms"},
            "shared": {**main, "scope": "shared"},
        },
        "lease": "2s",
        "drain": "1s",
        **more,
    }


async def left_in(redis_url: str, prefix: str) -> dict[str, int]:
    """Return the keys in Redis under a prefix, each with the milliseconds that it stays yet.

    -1 stands for ever. The counters of the rate limits are not of this: they say nothing of any task.
    """
    # redis-py leaves most of its methods' types open.
    store: Any = Redis.from_url(redis_url)  # pyright: ignore[reportUnknownMemberType] as said
    try:
        keys = [key.decode() async for key in store.scan_iter(match=f"{prefix}*", count=1000)]
        return {key: await store.pttl(key) for key in keys if ":rate:" not in key}
    finally:
        await store.aclose()


def new_key() -> str:
    """Return a key that no other test has."""
    return uuid.uuid4().hex


async def started(*configs: Json, place: Path) -> list[Gateway]:
    """Start gateways and wait until they serve."""
    gateways = [serve(config, place) for config in configs]
    for gateway in gateways:
        await asyncio.to_thread(gateway.wait)
    return gateways


@asynccontextmanager
async def deployed(
    upstream: EraUpstream, config: Json, place: Path, replicas: int = 1
) -> AsyncGenerator[Eras]:
    """Serve by gateways of a test's own."""
    gateways = await started(*[config] * (1 if CHOICE.balances(config) else replicas), place=place)
    try:
        yield Eras(upstream, gateways, None)
    finally:
        for gateway in gateways:
            await asyncio.to_thread(gateway.end)


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Have a request on its way; one that is still there at the end is given up."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
