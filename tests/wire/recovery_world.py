"""The world of the recovery tests: replicas that die, freeze, stop or are cut off; a scripted upstream."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.gateways import Gateway
from tests.wire.scripted_upstream import Upstream
from tests.wire.seed_client import PAUSE, WAIT, Json, Seed
from tests.wire.seed_world import configuration, started

LEASE: Final = 1.0
_WAY: Final = re.compile(r'^mcp_gateway_tasks_taken_over_total\{.*way="(\w+)"\} (\S+)$', re.MULTILINE)


class Survivor:
    """A replica that outlives the tests of a module."""

    def __init__(self, gateway: Gateway, config: Json) -> None:
        self.gateway = gateway
        self.config = config


class Doomed:
    """Replicas in front of one upstream, which share one Redis. The second one, `survivor`, stays."""

    def __init__(
        self, upstream: Upstream, redis: str, place: Path, survivor: Survivor | None = None, **more: Any
    ) -> None:
        self.upstream = upstream
        self.redis = redis
        self.gateways: list[Gateway] = []
        self.config: Json = configuration(upstream, redis, lease=f"{LEASE:g}s", **more)
        self._place = place
        self._survivor = survivor
        self._before: dict[str, float] = {}

    async def begin(self) -> None:
        """Start the replica that the test may end, beside the one that stays."""
        assert self._survivor is not None
        self.config = self._survivor.config
        await self.start()
        self.gateways.append(self._survivor.gateway)
        self._before = self._taken(1)

    async def start(self, **more: Any) -> Gateway:
        """Start one more replica."""
        self.gateways.append(await started({**self.config, **more}, self._place))
        return self.gateways[-1]

    async def end(self) -> None:
        """End all replicas, also those that are frozen."""
        for gateway in self.gateways:
            if self._survivor is not None and gateway is self._survivor.gateway:
                continue
            if gateway.process.code is None:
                gateway.process.send(signal.SIGCONT)
            await asyncio.to_thread(gateway.end)

    def url(self, replica: int = 0, name: str = "main") -> str:
        """Return the URL of an upstream at a replica."""
        return self.gateways[replica].url(name)

    def client(self, authorization: str, replica: int = 0) -> Seed:
        """Return a client of a replica."""
        return Seed(self.url(replica), authorization)

    def taken(self, replica: int) -> dict[str, float]:
        """Return how many tasks a replica has taken over in this test, by way."""
        now = self._taken(replica)
        return {
            way: number - self._before.get(way, 0)
            for way, number in now.items()
            if number != self._before.get(way, 0)
        }

    def _taken(self, replica: int) -> dict[str, float]:
        found = self.gateways[replica].admin("/metrics")[1]
        return {way: float(number) for way, number in _WAY.findall(found) if float(number)}

    async def placed(self, place: str) -> None:
        """Wait until the store has a place in the upstream's stream that begins so."""
        async with asyncio.timeout(WAIT):
            while True:
                if any(found.startswith(place) for found in await self._places()):
                    return
                await asyncio.sleep(PAUSE)

    async def holds(self, words: bytes) -> bool:
        """Tell whether any record in Redis has words in it that can be read."""
        found: list[str] = []
        for key in await command(self.redis, "KEYS", f"{self.config['store']['prefix']}*:t:*"):
            found += await command(self.redis, "HVALS", key)
        return any(words.decode() in text for text in found)

    async def _places(self) -> list[str]:
        prefix = self.config["store"]["prefix"]
        found: list[str] = []
        for key in await command(self.redis, "KEYS", f"{prefix}*:t:*"):
            found += await command(self.redis, "HMGET", key, "place")
        return found


@asynccontextmanager
async def surviving(upstream: Upstream, redis: str, place: Path, **more: Any) -> AsyncGenerator[Survivor]:
    """Serve by a replica that stays while the block runs."""
    world = Doomed(upstream, redis, place, **more)
    yield Survivor(await world.start(), world.config)
    await world.end()


async def killed(gateway: Gateway) -> None:
    """Kill a gateway without a word."""
    gateway.process.send(signal.SIGKILL)
    await asyncio.to_thread(gateway.process.wait_end)


async def command(url: str, *words: str) -> list[str]:
    """Ask Redis something whose answer is a list, by its own wire."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(f"*{len(words)}\r\n".encode())
        for word in words:
            writer.write(b"$%d\r\n%b\r\n" % (len(word.encode()), word.encode()))
        found: list[str] = []
        for _ in range(int((await reader.readline())[1:])):
            size = int((await reader.readline())[1:])
            text = b"" if size < 0 else (await reader.readexactly(size + 2))[:-2]
            found.append(text.decode(errors="replace"))
    finally:
        writer.transport.abort()
    return found
