"""The load generator: a process of its own that obeys one order a line and answers one line each.

Opening, running and closing are separate orders, so that who measures can read the CPU clocks of the
process under test at the first and after the last timed request, and nothing else is counted.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Literal, cast

import msgspec
import uvloop

from tests.bench.bridged_calls import ASKABLE, BridgedCaller, StatelessSession
from tests.bench.calls import Caller, Session
from tests.bench.cycles import CycleA, CycleB, CycleC, PollC
from tests.bench.idle import Listener, open_many
from tests.bench.rounds import Client, Measured, Round, quantile
from tests.bench.waiters import Crowd
from tests.bench.wakes import Wake
from tests.bench.wire import Connection, Target

Kind = Literal[
    "calls", "bridged", "askable", "task_a", "task_b", "task_c", "poll", "wake", "waiters", "idle"
]


class Order(msgspec.Struct):
    """What to do; `pause`, `warm` and `seconds` in seconds, `most` bounds a run's exchanges.

    A run has two answers: one when it begins to count, one when it has counted. `beside` is the replica
    at which results of `tasks` are waited for; `keep_ms` is the keep-alive of tasks of dialect A.
    """

    do: Literal["open", "run", "nudge", "release", "close"]
    kind: Kind = "calls"
    target: Target = Target(0, "")
    clients: int = 1
    tool: str = "small"
    pause: float = 0.0
    warm: float = 0.0
    seconds: float = 1.0
    most: int | None = None
    beside: Target | None = None
    tasks: int = 1
    keep_ms: int = 60_000


class Done(msgspec.Struct):
    """The answer to an order; `wrong` says why the run is worth nothing."""

    measured: Measured | None = None
    wrong: str = ""


class Load:
    """Holds the clients between orders."""

    def __init__(self) -> None:
        self._clients: list[Client] = []
        self._listeners: list[Listener] = []
        self._crowd: Crowd | None = None
        self._target = Target(0, "")
        self._round: Round | None = None

    async def obey(self, order: Order) -> Done:
        """Do what an order says."""
        if order.do == "open":
            await self._open(order)
        elif order.do == "nudge":
            return Done(await self._nudge())
        elif order.do == "release":
            return Done(None if self._crowd is None else await self._crowd.release())
        elif order.do == "close":
            await self._close()
        else:
            return await self._run(order)
        return Done()

    async def _run(self, order: Order) -> Done:
        gc.collect()
        self._round = Round(self._clients)
        await self._round.warm(order.warm)
        answer(Done())
        return Done(await self._round.run(order.seconds, order.most))

    async def _close(self) -> None:
        if self._round is not None:
            await self._round.drain()
        for client in (*self._clients, *self._listeners):
            client.close()
        if self._crowd is not None:
            self._crowd.close()
        self._clients, self._listeners, self._round, self._crowd = [], [], None, None

    async def _open(self, order: Order) -> None:
        self._target = order.target
        if order.kind == "idle":
            self._listeners += await open_many(order.target, order.clients)
            return
        if order.kind == "waiters":
            self._crowd = self._crowd or Crowd(order.target, order.beside or order.target)
            await self._crowd.open(order.clients, order.tasks)
            return
        for _ in range(order.clients):
            self._clients.append(await _client(order))

    async def _nudge(self) -> Measured:
        connection = Connection(self._target)
        await connection.open()
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nudge","arguments":{}}}'
        begin = time.perf_counter()
        await connection.ask(self._listeners[0].session.head(), body)
        times = [await listener.expect_nudge() - begin for listener in self._listeners]
        connection.close()
        return Measured(len(times), max(times), quantile(times, 0.5), quantile(times, 0.99))


async def _client(order: Order) -> Client:
    if order.kind in ("task_c", "poll"):
        make = CycleC if order.kind == "task_c" else PollC
        cycle = make(order.target, order.tool, order.pause)
        await cycle.open()
        return cycle
    if order.kind in ("bridged", "askable"):
        stateless = StatelessSession(order.target, order.tool, ASKABLE if order.kind == "askable" else {})
        await stateless.open()
        return BridgedCaller(stateless, order.tool)
    session = Session(order.target)
    await session.open()
    if order.kind == "wake":
        wake = Wake(session, order.beside)
        await wake.open()
        return wake
    if order.kind == "task_a":
        return CycleA(session, order.tool, order.pause, order.keep_ms)
    if order.kind == "task_b":
        return CycleB(session, order.tool, order.pause)
    return Caller(session, order.tool)


def _words(wrong: BaseException) -> str:
    if isinstance(wrong, BaseExceptionGroup):
        return _words(cast("BaseExceptionGroup[BaseException]", wrong).exceptions[0])
    return f"{type(wrong).__name__}: {wrong}"


def answer(done: Done) -> None:
    """Write one answer."""
    sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
    sys.stdout.buffer.flush()


async def main() -> None:
    """Read orders from stdin until it closes."""
    load, orders = Load(), asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    decode = msgspec.json.Decoder(Order).decode
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := await orders.readline():
        try:
            done = await load.obey(decode(line))
        except Exception as wrong:  # noqa: BLE001  # whatever it was, the one who measures must hear of it
            done = Done(wrong=_words(wrong))
        answer(done)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
