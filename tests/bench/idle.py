"""Clients of the idle scenario: sessions that only hold a GET stream open."""

from __future__ import annotations

import asyncio
import time

from tests.bench import payloads
from tests.bench.calls import Session
from tests.bench.rounds import Round
from tests.bench.wire import Answer, Connection, Target, WrongAnswer, messages_of, same_json


class Listener:
    """One session with its GET stream; the handshake goes over a connection that others use too."""

    def __init__(self, target: Target) -> None:
        self.session = Session(target)
        self.heard = b""
        self._stream = self.session.connection
        self._open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._nudged: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def open(self, shared: Connection) -> None:
        """Shake hands, open the stream, and return when its head is in."""
        await self.session.open(shared)
        await self._stream.open()
        self._stream.heard = self._hear
        self._stream.failed = self._fail
        self._stream.done = self._ended
        self._stream.send(self.session.target.head("GET", self.session.headers))
        async with asyncio.timeout(30):
            await self._open

    async def expect_nudge(self) -> float:
        """Return when the upstream's notification came down this stream (`time.perf_counter`)."""
        async with asyncio.timeout(30):
            return await self._nudged

    def begin(self, current: Round) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.session.close()

    def _hear(self, part: bytes) -> None:
        if not self._open.done():
            if self._stream.status() != 200:
                self._fail(WrongAnswer(f"GET: status {self._stream.status()}"))
            else:
                self._open.set_result(None)
        self.heard += part
        nudged = any(same_json(message, payloads.NUDGE) for message in messages_of(self.heard))
        if nudged and not self._nudged.done():
            self._nudged.set_result(time.perf_counter())

    def _ended(self, answer: Answer) -> None:
        self._fail(WrongAnswer(f"a GET stream ended: {answer}"))

    def _fail(self, wrong: Exception) -> None:
        for waiter in (self._open, self._nudged):
            if not waiter.done():
                waiter.set_exception(wrong)
                waiter.exception()


async def open_many(target: Target, count: int) -> list[Listener]:
    """Open so many idle sessions, eight at a time."""
    listeners = [Listener(target) for _ in range(count)]
    waiting = list(listeners)

    async def work() -> None:
        shared = Connection(target)
        await shared.open()
        while waiting:
            await waiting.pop().open(shared)
        shared.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(8, count)):
            group.create_task(work())
    return listeners
