"""The world of a chaos run: Redis, upstreams, replicas with ways of their own to these, a balancer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.balancers import configured, program
from tests.chaos.history import Ran, Terms, read_log
from tests.chaos.parts import Part, listens, runs
from tests.processes import ROOT, free_port
from tests.redis_servers import find_servers
from tests.tools import ToolMissing
from tests.troubled import Troubled

HOST: Final = "127.0.0.1"
PREFIX: Final = "chaos:"
HTTP: Final = ("events", "plain")
# Seconds that the clock of a replica is wrong by.
SKEWS: Final = (0, 150, -150)


class Replica(Part):
    """A gateway process, its ports, and its own ways to Redis and to the upstreams."""

    def __init__(self, number: int, place: Path, config: dict[str, Any], ways: dict[str, Troubled]) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.ways = ways
        file = place / f"replica{number}.json"
        listening = {
            "listen": {"host": HOST, "port": self.port},
            "admin": {"host": HOST, "port": self.admin_port},
        }
        # JSON is YAML.
        file.write_text(json.dumps({**config, **listening}, indent=1), encoding="utf-8")
        command = [sys.executable, "-m", "gateway", "serve", "-c", str(file)]
        super().__init__(f"replica{number}", command, place, _skew(number))

    @property
    def base(self) -> str:
        """Its own address, past the balancer."""
        return f"http://{HOST}:{self.port}"

    async def ready(self) -> None:
        """Wait until it serves; raise `TimeoutError`."""
        await listens(self, self.port)


class World:
    """All parts; made by `built`."""

    def __init__(self, place: Path, terms: Terms, keep: float) -> None:
        self.place = place
        self.terms = terms
        self.keep = keep
        self.redis_port = free_port()
        self.balancer_port = free_port()
        self.logs = {name: place / f"{name}.jsonl" for name in (*HTTP, "child")}
        self.ports = {name: free_port() for name in HTTP}
        self.upstreams = {
            name: Part(
                name,
                [
                    sys.executable,
                    "-m",
                    "tests.chaos.upstream",
                    name,
                    str(self.ports[name]),
                    str(self.logs[name]),
                ],
                place,
            )
            for name in HTTP
        }
        self.redis = Part("redis", _redis_command(place, self.redis_port), place)
        self.replicas: list[Replica] = []
        self.balancer = Part("balancer", [], place)

    @property
    def url(self) -> str:
        """The address of the balancer."""
        return f"http://{HOST}:{self.balancer_port}"

    @property
    def parts(self) -> list[Part]:
        """All processes."""
        return [self.balancer, *self.replicas, *self.upstreams.values(), self.redis]

    def ran(self) -> list[Ran]:
        """Return what the upstreams' logs say so far."""
        return [one for log in self.logs.values() for one in read_log(log)]

    def children(self) -> list[int]:
        """Return the stdio upstreams that run."""
        log = self.logs["child"]
        lines = log.read_text().splitlines() if log.exists() else []
        pids = {int(line["pid"]) for line in map(json.loads, lines) if line["event"] == "start"}
        return [pid for pid in sorted(pids) if runs(pid)]

    async def start(self, stack: AsyncExitStack, replicas: int) -> None:
        """Start everything and wait until it serves."""
        for part, port in [
            (self.redis, self.redis_port),
            *((self.upstreams[n], self.ports[n]) for n in HTTP),
        ]:
            part.start()
            await listens(part, port)
        for number in range(replicas):
            ways = {
                "redis": await stack.enter_async_context(Troubled.to(f"redis://{HOST}:{self.redis_port}"))
            }
            for name in HTTP:
                target = f"http://{HOST}:{self.ports[name]}"
                ways[name] = await stack.enter_async_context(Troubled.to(target))
            self.replicas.append(Replica(number, self.place, self._config(ways), ways))
            self.replicas[-1].start()
        for replica in self.replicas:
            await replica.ready()
        file = self.place / "haproxy.cfg"
        file.write_text(configured("haproxy", self.balancer_port, self.replicas, self.place), "utf-8")
        # With a master process, since that is what reloads.
        self.balancer.command = [program("haproxy"), "-W", "-f", str(file)]
        self.balancer.start()
        await listens(self.balancer, self.balancer_port)

    async def stop(self) -> None:
        """End everything that still runs."""
        for part in self.parts:
            if part.alive:
                await part.stop(10)
        for pid in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def redis_says(self, *words: str) -> list[bytes]:
        """Send a command to Redis past all ways, and return the lines of its answer."""
        reader, writer = await asyncio.open_connection(HOST, self.redis_port)
        try:
            writer.write(" ".join(words).encode() + b"\r\n")
            first = (await reader.readline()).rstrip()
            if not first.startswith(b"*"):
                return [first]
            found: list[bytes] = []
            for _ in range(int(first[1:])):
                size = int((await reader.readline())[1:])
                found.append((await reader.readexactly(size + 2))[:-2])
            return found
        finally:
            writer.close()

    async def keys(self) -> list[str]:
        """Return the names of all keys in Redis."""
        return sorted(key.decode(errors="replace") for key in await self.redis_says("KEYS", "*"))

    async def goes_within(self, key: str, seconds: float) -> bool:
        """Tell whether a key has gone, or goes by itself in so many seconds."""
        left = int((await self.redis_says("PTTL", key))[0].removeprefix(b":"))
        return left == -2 or 0 <= left <= seconds * 1000

    def _config(self, ways: dict[str, Troubled]) -> dict[str, Any]:
        terms = self.terms
        tasks = {
            "keep_alive": {"default": f"{self.keep:g}s", "max": f"{self.keep:g}s"},
            "poll_interval": "200ms",
            "timeout": f"{terms.timeout:g}s",
            "inline_within": "200ms",
            "tools": {
                f"{terms.retry_prefix}*": {"on_loss": "retry"},
                "ask_work": {"mode": "required"},
                "plain_*": "forbidden",
            },
        }
        seconds = f"{max(5.0, terms.timeout):g}s"
        common: dict[str, Any] = {
            "era": "handshake",
            "answer_within": seconds,
            "idle": seconds,
            "tasks": tasks,
        }
        upstreams: dict[str, Any] = {
            name: {**common, "url": f"http://{HOST}:{ways[name].port}/mcp"} for name in HTTP
        }
        upstreams["child"] = {
            **common,
            "command": [sys.executable, "-S", "-m", "tests.chaos.child", str(self.logs["child"])],
            "env": {"PYTHONPATH": str(ROOT)},
        }
        return {
            "store": {"url": ways["redis"].url, "prefix": PREFIX, "timeout": "1s"},
            "secret": "the secret of all replicas",
            "upstreams": upstreams,
            "limits": {"rates": {"create": "off", "get": "off", "result": "off", "list": "off"}},
            "lease": f"{terms.lease:g}s",
            "drain": f"{terms.timeout:g}s",
            "drain_delay": "2s",
        }


@asynccontextmanager
async def built(place: Path, terms: Terms, keep: float, replicas: int) -> AsyncGenerator[World]:
    """Start a world, and end it whatever comes; raise `ToolMissing` for what is not installed."""
    world = World(place, terms, keep)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.stop)
        await world.start(stack, replicas)
        yield world


def _redis_command(place: Path, port: int) -> list[str]:
    found = find_servers()
    if not found:
        raise ToolMissing("no Redis server here")
    folder = place / "redis"
    folder.mkdir(exist_ok=True)
    binary = found.get("redis-7.0") or found.get("valkey") or list(found.values())[-1]
    # What was answered survives a kill: it is in the kernel's hands, though perhaps not on the disk.
    keeping = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--dir", str(folder)]
    return [str(binary), "--port", str(port), "--bind", HOST, *keeping]


def library() -> Path | None:
    """Return the library of the Debian package `faketime`, if it is installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def _skew(number: int) -> dict[str, str]:
    """Return what makes the clock of a replica wrong, where the library for that is installed."""
    skew = SKEWS[number % len(SKEWS)]
    if not skew or (found := library()) is None:
        return {}
    return {"LD_PRELOAD": str(found), "FAKETIME": f"{skew:+d}s", "DONT_FAKE_MONOTONIC": "1"}
