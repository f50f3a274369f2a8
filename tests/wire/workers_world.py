"""A gateway of several workers as its tests see it: who works, what is counted, who holds which socket."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from tests.gateways import HOST, Gateway
from tests.processes import START
from tests.wire.seed_client import PAUSE, WAIT, Json

WORKERS: Final = 3


class Crowd:
    """A gateway with workers. All that it is asked, it is asked over its two ports."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def workers(self) -> dict[int, Json]:
        """Return what readiness says of each worker."""
        _, body = await asyncio.to_thread(self.gateway.admin, "/readyz")
        return {int(number): told for number, told in json.loads(body)["workers"].items()}

    async def counted(self) -> dict[str, float]:
        """Return all counters, and the counts of all histograms."""
        _, body = await asyncio.to_thread(self.gateway.admin, "/metrics")
        return {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in text_string_to_metric_families(body)
            if family.type in ("counter", "histogram")
            for sample in family.samples
        }

    async def gauge(self, name: str) -> dict[str, float]:
        """Return a gauge by its label's value; one without labels under an empty text."""
        _, body = await asyncio.to_thread(self.gateway.admin, "/metrics")
        return {
            "".join(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body)
            for sample in family.samples
            if sample.name == name
        }

    async def until(
        self, wanted: Callable[[dict[int, Json]], bool], seconds: float = START
    ) -> dict[int, Json]:
        """Look until the workers are as they should be."""
        seen: dict[int, Json] = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if wanted(seen := await self.workers()):
                        return seen
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise AssertionError(f"{seen}\n{self.gateway.process.text}") from None

    async def until_counted(self, name: str, value: float) -> None:
        """Look until a counter has a value."""
        async with asyncio.timeout(WAIT):
            while True:
                if (await self.counted()).get(name) == value:
                    return
                await asyncio.sleep(PAUSE)

    async def all_ready(self) -> dict[int, Json]:
        """Wait until every worker is ready."""
        return await self.until(lambda seen: all(told.get("ready") for told in seen.values()))

    async def until_even(self) -> None:
        """Look until it is known that what others have opened is closed again, nearly all of it."""
        async with asyncio.timeout(WAIT):
            while True:
                found = await self.gauge("mcp_gateway_worker_connections")
                if max(found.values()) - min(found.values()) <= 1:
                    return
                await asyncio.sleep(PAUSE)

    def lines(self) -> list[Json]:
        """Return the log so far."""
        return [json.loads(line) for line in self.gateway.process.lines if line.startswith("{")]

    def worker_of(self, task: str) -> int:
        """Return the number of the worker that made a task, which the log tells."""
        pattern = rf'"worker":(\d+),.*"event":"created",.*"{task}"'
        return int(self.gateway.process.wait_line(pattern)[1])


class Held:
    """Connections to one port that have asked once and stay open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[socket.socket] = []

    def more(self, number: int) -> None:
        """Open so many more."""
        for _ in range(number):
            one = socket.create_connection((HOST, self._port), WAIT)
            self._open.append(one)
            one.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(4096).startswith(b"HTTP/1.1 404 ")

    def close(self) -> None:
        """Close all."""
        for one in self._open:
            one.close()


def sockets_of(pid: int) -> set[str]:
    """Return the sockets that a process holds, by their number in the kernel."""
    found: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = str(link.readlink())
        except FileNotFoundError:
            continue
        if name.startswith("socket:"):
            found.add(name)
    return found


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and that live."""
    out: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(words[1]) == pid and words[0] != "Z":
            out.append(int(stat.parent.name))
    return out


def lives(pid: int) -> bool:
    """Tell whether a process lives."""
    try:
        return not re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids(workers: dict[int, Json]) -> set[int]:
    """Return the process ids of workers."""
    return {told["process"] for told in workers.values() if told.get("process")}


def states(workers: dict[int, Json]) -> Counter[Any]:
    """Return how many workers are in which state."""
    return Counter(told["state"] for told in workers.values())
