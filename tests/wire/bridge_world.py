"""The world of the tests of the bridge: gateways in front of upstreams of the other era.

Each upstream is there under several names: over HTTP and on a pipe, with and without tasks of its own.
"""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path
from typing import Any, Final

from tests.gateways import Gateway
from tests.wire.modern_upstream import ModernUpstream, Seen, command, seen_in
from tests.wire.modern_words import Json
from tests.wire.seed_client import Seed
from tests.wire.stateless_client import Stateless
from tests.wire.tasks_b_client import TasksB

POLICY: Final[Json] = {
    "inline_within": "0s",
    "keep_alive": {"default": "30s", "max": "2m"},
    "poll_interval": "50ms",
    "timeout": "1m",
    "tools": {"plain*": "forbidden"},
}
_NUMBERS: Final = itertools.count()


def credential() -> str:
    """Return a credential that nobody has used."""
    return f"Bearer bridge-{next(_NUMBERS)}"


def new_key() -> str:
    """Return a key that no other test has."""
    return uuid.uuid4().hex


class Bridge:
    """The replicas of one deployment and the upstreams behind them."""

    def __init__(self, gateways: list[Gateway], seen: dict[str, Seen]) -> None:
        self.gateways = gateways
        self._seen = seen

    def url(self, name: str, replica: int = 0) -> str:
        """Return the URL of an upstream at a replica."""
        return self.gateways[min(replica, len(self.gateways) - 1)].url(name)

    def seen(self, name: str) -> Seen:
        """Return what an upstream has seen."""
        return self._seen[name]

    def client_a(self, name: str, authorization: str | None = None) -> Seed:
        """Return a client of dialect A."""
        return Seed(self.url(name), authorization or credential())

    def client_b(self, name: str, authorization: str | None = None, **more: Any) -> TasksB:
        """Return a client of dialect B."""
        return TasksB(self.url(name), authorization=authorization or credential(), **more)

    def client_c(self, name: str, authorization: str | None = None, **more: Any) -> Stateless:
        """Return a client of dialect C."""
        return Stateless(self.url(name), authorization=authorization or credential(), **more)


def upstreams(modern: ModernUpstream, place: Path) -> tuple[Json, dict[str, Seen]]:
    """Return the configuration of the stateless upstreams, and where to look for what they saw."""
    logs = {"pipe": place / "pipe.jsonl", "tasks-pipe": place / "tasks-pipe.jsonl"}
    found: Json = {
        "modern": {"url": modern.url("/mcp")},
        "tasks": {"url": modern.url("/tasks")},
        **{path[1:]: {"url": modern.url(path)} for path in ("/gone", "/fine", "/streamed")},
        "pipe": {"command": command(logs["pipe"])},
        "tasks-pipe": {"command": command(logs["tasks-pipe"], tasks=True)},
    }
    seen = {"modern": modern.seen("/mcp"), "tasks": modern.seen("/tasks")}
    return (
        {name: {**how, "tasks": POLICY} for name, how in found.items()},
        {**seen, **{name: seen_in(log) for name, log in logs.items()}},
    )


def configuration(upstreams: Json, store_url: str) -> Json:
    """Return a configuration."""
    return {
        "store": {"url": store_url, "prefix": f"{uuid.uuid4().hex}:"},
        "secret": "a secret that both replicas know",
        "upstreams": upstreams,
        "lease": "2s",
        "drain": "200ms",
    }


def words(result: Json) -> str:
    """Return the text of a tool's result."""
    return result["content"][0]["text"]
