"""The world of the dialect A tests: gateways in front of one scripted upstream, and their policies."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any, Final

from tests.balancers import serve
from tests.gateways import Gateway
from tests.wire.scripted_upstream import Upstream
from tests.wire.seed_client import Json, Seed

SECRET: Final = "a secret that both replicas know"
TASKS: Final[Json] = {
    "keep_alive": {"default": "30s", "max": "2m"},
    "poll_interval": "250ms",
    "timeout": "1m",
    "tools": {
        "never_task": "forbidden",
        "always_task": {"mode": "required"},
        "task_or_nothing": {"mode": "required", "refuse_plain": True},
        "one_by_one": {"max_concurrent": 1},
        "repeatable": {"on_loss": "retry"},
        "short": {"timeout": "300ms"},
        "endless": {"keep_alive": {"max": "unlimited"}},
    },
    "methods": {"resources/read": "optional", "prompts/get": "optional"},
}


class House:
    """A gateway, the second replica where the store can be shared, and the upstream behind both."""

    def __init__(self, upstream: Upstream, gateways: list[Gateway], redis: str | None) -> None:
        self.upstream = upstream
        self.gateways = gateways
        self.redis = redis

    def url(self, name: str = "main", replica: int = 0) -> str:
        """Return the URL of an upstream at a replica (the only one, where there is one)."""
        return self.gateways[min(replica, len(self.gateways) - 1)].url(name)

    def client(self, authorization: str | None = None, name: str = "main", replica: int = 0) -> Seed:
        """Return a client that has no session yet."""
        return Seed(self.url(name, replica), authorization)


def configuration(upstream: Upstream, store_url: str, **more: Any) -> Json:
    """Return a configuration with the policies that the tests name."""
    return {
        "store": {"url": store_url, "prefix": f"{uuid.uuid4().hex}:"},
        "secret": SECRET,
        "upstreams": {
            "main": {"url": upstream.url, "tasks": TASKS},
            "stateless": {"url": upstream.url.replace("/mcp", "/stateless"), "tasks": TASKS},
            "shared": {"url": upstream.url, "scope": "shared", "tasks": TASKS},
        },
        "lease": "2s",
        "drain": "1s",
        **more,
    }


async def started(config: Json, place: Path) -> Gateway:
    """Start a gateway and wait until it serves."""
    gateway = serve(config, place)
    await asyncio.to_thread(gateway.wait)
    return gateway
