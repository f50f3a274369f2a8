"""A timed round of the load: clients that repeat one exchange until time is up, and what they measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tests.bench.wire import TRAFFIC, WrongAnswer


class Measured(msgspec.Struct):
    """What a round measured; times in seconds.

    `first_*` is the time to a stream's first event, `polls` the status requests that came too early,
    `marks` a paced cycle's moments on the clock that all processes share, `bytes` what the clients sent
    and heard.
    """

    count: int = 0
    elapsed: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    first_p50: float = 0.0
    first_p99: float = 0.0
    polls: int = 0
    load_cpu: float = 0.0
    bytes: int = 0
    marks: list[list[float]] = []


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value that so large a part of the values does not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


DRAIN = 60.0


class Client(Protocol):
    """One of the concurrent clients of a round."""

    def begin(self, current: Round) -> None:
        """Start repeating the exchange; tell the round of each one, and leave when it is over."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Round:
    """A window of time in which finished exchanges count, opened while the clients are already at work.

    They work before it (the warm-up) and go on after it, so that neither the first nor the last
    exchanges of a long cycle are cut off or come in a bunch.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = clients
        self._running = len(clients)
        self._stop = False
        self._most: int | None = None
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._latencies: list[float] = []
        self._firsts: list[float] = []
        self.result = Measured()

    async def warm(self, seconds: float) -> None:
        """Let all clients work for so long; raise `WrongAnswer` for the first wrong answer."""
        for client in self._clients:
            client.begin(self)
        if seconds:
            await self._pass(seconds)

    async def run(self, seconds: float, most: int | None = None) -> Measured:
        """Count for so long, or until there were so many exchanges; raise `WrongAnswer` as `warm`."""
        self._most = most
        self._latencies, self._firsts, self.result = [], [], Measured()
        moved = TRAFFIC.sent + TRAFFIC.heard
        cpu, start = time.process_time(), time.perf_counter()
        await self._pass(seconds)
        result = self.result
        self.result = Measured()
        result.elapsed, result.load_cpu = time.perf_counter() - start, time.process_time() - cpu
        result.bytes = TRAFFIC.sent + TRAFFIC.heard - moved
        result.p50, result.p99 = quantile(self._latencies, 0.5), quantile(self._latencies, 0.99)
        result.first_p50, result.first_p99 = quantile(self._firsts, 0.5), quantile(self._firsts, 0.99)
        self._stop = True
        return result

    async def drain(self) -> None:
        """Let each client finish its exchange; raise `WrongAnswer` where one never ends."""
        self._stop = True
        try:
            async with asyncio.timeout(DRAIN):
                await self._left
        except TimeoutError:
            raise WrongAnswer(f"{self._running} clients still wait for an answer") from None

    def record(self, start: float, end: float, first: float | None) -> bool:
        """Take one finished exchange; tell whether the client should go on."""
        result = self.result
        result.count += 1
        self._latencies.append(end - start)
        if first is not None:
            self._firsts.append(first - start)
        if not self._stop and (self._most is None or result.count < self._most):
            return True
        self._running -= 1
        if self._running == 0 and not self._left.done():
            self._left.set_result(None)
        return False

    def fail(self, wrong: Exception) -> None:
        """End the round: a wrong answer makes it worth nothing."""
        if not self._left.done():
            self._left.set_exception(wrong)

    async def _pass(self, seconds: float) -> None:
        done, _ = await asyncio.wait([self._left], timeout=seconds)
        for ended in done:
            ended.result()
