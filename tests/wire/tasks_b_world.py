"""The world of the dialect B tests: gateways in front of one scripted upstream, and their policies."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.balancers import replicas as gateways_of
from tests.gateways import Gateway
from tests.wire.answers import Json
from tests.wire.scripted_upstream import Upstream
from tests.wire.tasks_b_client import TasksB

SECRET: Final = "a secret that all replicas know"
WORDS: Final = "The work has begun; go on with something else."
POLL_MS: Final = 250
DEFAULT_TTL_MS: Final = 90_000
MAX_TTL_MS: Final = 120_000
TIMEOUT_MS: Final = 60_000
TASKS: Final[Json] = {
    "keep_alive": {"default": "90s", "max": "2m"},
    "poll_interval": "250ms",
    "timeout": "1m",
    "tools": {
        "never_task": "forbidden",
        "always_task": {"mode": "required"},
        "one_by_one": {"max_concurrent": 1},
        "short": {"timeout": "400ms", "keep_alive": {"default": "2s"}},
        "brief": {"timeout": "100ms", "keep_alive": {"default": "500ms"}},
        "endless": {"keep_alive": {"max": "unlimited"}},
        "spoken": {"immediate_response": WORDS},
    },
}
_CREDENTIALS: Final = itertools.count()


def credential(name: str = "number") -> str:
    """Return a credential that nobody has used."""
    return f"Bearer {name}-{next(_CREDENTIALS)}"


class Place:
    """A gateway, the second replica where the store can be shared, and the upstream behind both."""

    def __init__(self, upstream: Upstream, gateways: list[Gateway]) -> None:
        self.upstream = upstream
        self.gateways = gateways

    def url(self, name: str = "main", replica: int = 0) -> str:
        """Return the URL of an upstream at a replica (the only one, where there is one)."""
        return self.gateways[min(replica, len(self.gateways) - 1)].url(name)

    def client(
        self, authorization: str | None = None, name: str = "main", replica: int = 0, **more: Any
    ) -> TasksB:
        """Return a client that has no session yet."""
        return TasksB(self.url(name, replica), authorization=authorization, **more)


def configuration(upstream: Upstream, store_url: str, **more: Any) -> Json:
    """Return a configuration with the policies that the tests name."""
    return {
        "store": {"url": store_url, "prefix": f"{uuid.uuid4().hex}:"},
        "secret": SECRET,
        "upstreams": {
            "main": {"url": upstream.url, "tasks": TASKS},
            "lenient": {"url": upstream.url, "tasks": {**TASKS, "tool_errors": "completed"}},
            "shared": {"url": upstream.url, "scope": "shared", "tasks": TASKS},
            "taskless": {"url": upstream.url, "tasks": {"default": "forbidden"}},
            "spoken": {"url": upstream.url, "tasks": {"immediate_response": WORDS}},
        },
        "lease": "2s",
        "drain": "1s",
        **more,
    }


@asynccontextmanager
async def served(config: Json, folder: Path, replicas: int = 1) -> AsyncGenerator[list[Gateway]]:
    """Serve by so many replicas; what the caller starts beside them and adds is ended with them."""
    gateways: list[Gateway] = []
    try:
        gateways += gateways_of(config, folder, replicas)
        for gateway in gateways:
            await asyncio.to_thread(gateway.wait)
        yield gateways
    finally:
        for gateway in gateways:
            await asyncio.to_thread(gateway.end)


def refusal(response: Json) -> tuple[int, str]:
    """Return code and words of an error response."""
    assert "error" in response, response
    return response["error"]["code"], response["error"]["message"]


def without_meta(result: Json) -> Json:
    """Return a result without its `_meta`."""
    return {name: value for name, value in result.items() if name != "_meta"}
