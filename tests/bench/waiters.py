"""Clients of the waiters scenario: blocked requests for the results of tasks that are held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from typing import Any, Final

import msgspec

from tests.bench import payloads
from tests.bench.calls import Session
from tests.bench.rounds import Measured, quantile
from tests.bench.wire import Answer, Connection, Target, WrongAnswer, messages_of

TTL_MS: Final = 600_000
LIMIT: Final = 120.0
AT_ONCE: Final = 8


class Waiter:
    """One client that asks for the result of a task and hears nothing until the task ends."""

    def __init__(self, target: Target, head: bytes, number: int, task: str) -> None:
        loop = asyncio.get_running_loop()
        self._connection = Connection(target)
        self._head = head
        self._number = number
        self._task = task
        self._heard: list[bytes] = []
        self._blocked: asyncio.Future[None] = loop.create_future()
        self.answered: asyncio.Future[float] = loop.create_future()

    async def open(self) -> None:
        """Ask, and return when the head of the answer is in and the answer is not."""
        await self._connection.open()
        self._connection.heard = self._hear
        self._connection.failed = self._fail
        self._connection.done = self._done
        params = {"taskId": self._task}
        body = {"jsonrpc": "2.0", "id": self._number, "method": "tasks/result", "params": params}
        self._connection.send(self._head, msgspec.json.encode(body))
        async with asyncio.timeout(LIMIT):
            await self._blocked
        if self.answered.done():
            raise WrongAnswer("a task ended too early")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _hear(self, part: bytes) -> None:
        if part:
            self._heard.append(part)
        if not self._blocked.done():
            self._blocked.set_result(None)

    def _done(self, answer: Answer) -> None:
        try:
            message = msgspec.json.decode(messages_of(b"".join(self._heard))[-1])
            text = message["result"]["content"][0]["text"]
        except (LookupError, TypeError, msgspec.DecodeError):
            self._fail(WrongAnswer(f"tasks/result: {answer} {self._heard!r}"))
            return
        if text != payloads.TEXTS["held"]:
            self._fail(WrongAnswer(f"tasks/result: {text!r}"))
        elif not self.answered.done():
            self.answered.set_result(time.perf_counter())

    def _fail(self, wrong: Exception) -> None:
        for waiting in (self._blocked, self.answered):
            if not waiting.done():
                waiting.set_exception(wrong)
                waiting.exception()


class Crowd:
    """Tasks on one replica, and the waiters for their results on another."""

    def __init__(self, target: Target, beside: Target) -> None:
        self._target = target
        self._beside = beside
        self._session = Session(target)
        self._waiters: list[Waiter] = []

    async def open(self, waiters: int, tasks: int) -> None:
        """Make so many tasks, and open so many waiters for them, in turn."""
        if not self._session.headers:
            await self._session.open()
            await self._call(self._session.connection, "hold", {})
        idents: list[str] = []

        async def make(connection: Connection) -> None:
            idents.append(await self._make(connection))

        await _many(self._target, tasks, make)
        head = self._session.head(self._beside)
        first = len(self._waiters)
        opened = [
            Waiter(self._beside, head, number, ident)
            for number, ident in enumerate(islice(cycle(idents), waiters), first)
        ]
        self._waiters += opened
        left = iter(opened)

        async def work() -> None:
            for waiter in left:
                await waiter.open()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())

    async def release(self) -> Measured:
        """Let all tasks end, and return how long it took until each waiter had its answer."""
        begin = time.perf_counter()
        await self._call(self._session.connection, "release", {})
        async with asyncio.timeout(LIMIT):
            times = [await waiter.answered - begin for waiter in self._waiters]
        return Measured(len(times), max(times), quantile(times, 0.5), quantile(times, 0.99))

    def close(self) -> None:
        """Close all connections."""
        for waiter in self._waiters:
            waiter.close()
        self._session.close()

    async def _make(self, connection: Connection) -> str:
        answer = await self._call(connection, "held", {"task": {"ttl": TTL_MS}})
        return str(answer["result"]["task"]["taskId"])

    async def _call(self, connection: Connection, tool: str, more: dict[str, Any]) -> Any:
        params: dict[str, Any] = {"name": tool, "arguments": {}, **more}
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await connection.ask(self._session.head(), msgspec.json.encode(body))
        message = msgspec.json.decode(answer.messages()[-1])
        if "result" not in message:
            raise WrongAnswer(f"{tool}: {answer}")
        return message


async def _many(target: Target, count: int, work: Callable[[Connection], Awaitable[None]]) -> None:
    """Do work so many times, a few at once, each on a connection that is used again."""
    left = iter(range(count))

    async def some() -> None:
        connection = Connection(target)
        await connection.open()
        for _ in left:
            await work(connection)
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, count)):
            group.create_task(some())
