"""A real Redis for the tasks scenario, and a tap in front of it that counts what crosses."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec
from redis.asyncio import Redis

from tests.bench.process import Child, free_port
from tests.bench.wire import WrongAnswer
from tests.redis_servers import find_servers

# Set-up and housekeeping of a client, not part of a task.
NOT_COUNTED: Final = frozenset(
    {
        "HELLO",
        "CLIENT",
        "SELECT",
        "AUTH",
        "PING",
        "INFO",
        "SUBSCRIBE",
        "PSUBSCRIBE",
        "SSUBSCRIBE",
        "UNSUBSCRIBE",
    }
)


def find_server() -> str | None:
    """Return the path of a Redis server, the newest there is, or of a Valkey one; `None` without any."""
    found = find_servers()
    redis = [name for name in found if name.startswith("redis-")]
    best = max(redis, key=_release, default=next(iter(found), None))
    return None if best is None else str(found[best])


def _release(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.removeprefix("redis-").split(".") if part.isdigit())


async def start_redis(command: str) -> tuple[Child, int]:
    """Start a Redis that keeps nothing on disk; return it with its port."""
    port = free_port()
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    child = await Child.start("redis", [command, *words])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        await writer.wait_closed()
        return child, port
    words_left = child.log()
    await child.close()
    raise WrongAnswer(f"Redis did not get ready: {words_left}")


class Server:
    """A Redis of the bench, and what it says of itself."""

    def __init__(self, child: Child, port: int) -> None:
        self.child = child
        self.port = port
        # redis-py leaves most of its methods' types open.
        self.client: Any = Redis(host="127.0.0.1", port=port)

    def url(self, database: int = 0) -> str:
        """Return the URL of a database."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    async def counters(self) -> dict[str, float]:
        """Return the scripts that were called, and the kB that came and went, since it was started."""
        stats = await self.client.info("stats")
        commands = await self.client.info("commandstats")
        return {
            "scripts": float(commands.get("cmdstat_evalsha", {"calls": 0})["calls"]),
            "redis_kb": (stats["total_net_input_bytes"] + stats["total_net_output_bytes"]) / 1e3,
        }

    async def used(self) -> int:
        """Return the bytes that it has in use, without the buffers of its clients."""
        found = await self.client.info("memory")
        return int(found["used_memory"]) - int(found.get("mem_clients_normal", 0))

    async def close(self) -> None:
        """Close the connection that it was asked on."""
        await self.client.aclose()


@asynccontextmanager
async def own_redis() -> AsyncGenerator[Server]:
    """Start a Redis for one measurement; raise `WrongAnswer` where there is none."""
    found = find_server()
    if found is None:
        raise WrongAnswer("there is no Redis server")
    child, port = await start_redis(found)
    server = Server(child, port)
    try:
        yield server
    finally:
        await server.close()
        await child.close()


class Burst(msgspec.Struct):
    """Commands that left in one piece; `answered` is when the next reply there was passed on."""

    commands: list[str]
    sent: float
    answered: float | None = None


class Tap:
    """A TCP proxy in front of Redis that notes each burst of commands.

    A burst is what a client wrote before it could have seen a reply to it: one round trip, however many
    commands are in it. With `delay` (seconds) replies are held back, so that what waits for what shows
    in the times: a step that a client hears of before the delay has passed did not wait for Redis.
    """

    def __init__(self, redis_port: int, delay: float = 0.0) -> None:
        self.bursts: list[Burst] = []
        self.delay = delay
        self.port = 0
        self._redis_port = redis_port
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on a free loopback port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self, self._redis_port), "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def counted(self) -> list[Burst]:
        """Return the bursts that have more in them than set-up and housekeeping."""
        return [burst for burst in self.bursts if not NOT_COUNTED.issuperset(burst.commands)]

    async def close(self) -> None:
        """Stop listening; open connections end with their clients."""
        if self._server is not None:
            self._server.close()


class _Client(asyncio.Protocol):
    def __init__(self, tap: Tap, redis_port: int) -> None:
        self._tap = tap
        self._redis_port = redis_port
        self._waiting = b""
        self._open: list[Burst] = []
        self._held: deque[bytes] = deque()
        self._transport: asyncio.Transport | None = None
        self._redis: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._early = b""
        self._parser = CommandParser()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._redis is not None:
            self._redis.close()

    def data_received(self, data: bytes) -> None:
        if commands := self._parser.feed(data):
            burst = Burst(commands, time.perf_counter())
            self._tap.bursts.append(burst)
            self._open.append(burst)
        if self._redis is None:
            self._early += data
        else:
            self._redis.write(data)

    def reply(self, data: bytes) -> None:
        """Pass a reply on, after the delay."""
        self._held.append(data)
        asyncio.get_running_loop().call_later(self._tap.delay, self._release)

    def redis_lost(self) -> None:
        """End the client's side too."""
        if self._transport is not None:
            self._transport.close()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: _Redis(self), "127.0.0.1", self._redis_port)
        self._redis = transport
        self._redis.write(self._early)

    def _release(self) -> None:
        data = self._held.popleft()
        now = time.perf_counter()
        for burst in self._open:
            burst.answered = now
        self._open.clear()
        if self._transport is not None:
            self._transport.write(data)


class _Redis(asyncio.Protocol):
    def __init__(self, client: _Client) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.reply(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.redis_lost()


class CommandParser:
    """Reads the names of commands out of a client's bytes (RESP arrays of bulk strings)."""

    def __init__(self) -> None:
        self._data = b""
        self._left = 0
        self._named = True

    def feed(self, data: bytes) -> list[str]:
        """Return the commands that begin in these bytes."""
        self._data += data
        names: list[str] = []
        while (end := self._data.find(b"\r\n")) >= 0:
            head = self._data[:end]
            if head[:1] == b"*":
                self._left, self._named = int(head[1:]), False
                self._data = self._data[end + 2 :]
                continue
            size = int(head[1:])
            if len(self._data) < end + 4 + size:
                break
            word = self._data[end + 2 : end + 2 + size]
            self._data = self._data[end + 4 + size :]
            if not self._named:
                names.append(word.decode("ascii", "replace").upper())
                self._named = True
        return names
