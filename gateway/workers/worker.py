"""The life of one worker: a house whose connections come from the supervisor's doorman."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import signal
import socket
from collections.abc import Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import uvloop

from gateway import __version__
from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.app import House
from gateway.config.model import Config
from gateway.doors import HttpFront
from gateway.observe.logs import configure
from gateway.observe.sums import families
from gateway.protocol.errors import ConfigError, GatewayError, PluginError
from gateway.workers.hearing import hear
from gateway.workers.line import Line
from gateway.workers.messages import (
    DRAIN,
    LEAVE,
    NOW,
    AskMetrics,
    AskReady,
    Beat,
    Begin,
    Closed,
    Failed,
    Leaving,
    Metrics,
    NoMore,
    Ready,
    Renew,
    Renewed,
    Serving,
    Stop,
    ToWorker,
)

BEAT_SECONDS: Final = 1.0
_CHANGED_SECONDS: Final = 0.05
_AT_ONCE: Final = 64
_LAST_SECONDS: Final = 1.0
_READ_SECONDS: Final = 0.1
_log: Final = logging.getLogger("gateway.workers")


class Orders:
    """How urgently the worker is to end; only ever more so."""

    def __init__(self) -> None:
        self._events = {level: asyncio.Event() for level in (LEAVE, DRAIN, NOW)}

    def heed(self, level: int) -> None:
        """Take an order."""
        for each, event in self._events.items():
            if each <= level:
                event.set()

    def given(self, level: int) -> asyncio.Event:
        """Return the event of an order of this urgency."""
        return self._events[level]


class Worker:
    """One worker from its first words to its last."""

    def __init__(self, line: Line[ToWorker], door: socket.socket, config: Config, clock: Clock) -> None:
        self._line = line
        self._door = door
        self._clock = clock
        self._crew = Crew("worker")
        self._orders = Orders()
        self._no_more = asyncio.Event()
        self._taken = 0
        self._house = House(config)
        self._front = HttpFront(self._house)
        self._operators = self._front.admin()

    async def run(self) -> None:
        """Serve until the supervisor ends it, or is gone; raise what keeps it from starting."""
        hear({signal.SIGTERM: LEAVE}, self._orders.heed)
        self._crew.spawn(self._obey(), "orders")
        try:
            if await self._until(LEAVE, self._house.start()):
                await self._serve()
        finally:
            await self._house.stop()
            await self._front.shut()
            await self._crew.close()
            self._line.say(Metrics(0, families(self._house.metrics.registry)))

    async def _serve(self) -> None:
        await self._front.open(listen=False)
        self._crew.keep(self._beat, "beat")
        loop = asyncio.get_running_loop()
        loop.add_reader(self._door, self._adopt)
        _log.info("serving, replica %s", self._house.replica)
        self._line.say(Serving(self._house.replica))
        await self._orders.given(LEAVE).wait()
        self._line.say(Leaving())
        await self._until(DRAIN, self._front.leave())
        await self._until(NOW, self._close_door())
        loop.remove_reader(self._door)
        await self._until(NOW, self._front.close())

    async def _close_door(self) -> None:
        """Take no more connections, and read the first request of those that were on their way."""
        self._line.say(Closed())
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._no_more.wait()
        self._adopt()
        await self._clock.sleep(_READ_SECONDS)

    async def _until(self, level: int, work: Coroutine[Any, Any, None]) -> bool:
        """Do `work` unless an order comes first; tell whether it was done, raise what it raised."""
        doing = self._house.crew.spawn(work, "serve")
        waiting = self._house.crew.spawn(self._orders.given(level).wait(), "order")
        await asyncio.wait([doing, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not doing.done():
            doing.cancel()
            return False
        await doing
        return True

    async def _obey(self) -> None:
        while (message := await self._line.hear()) is not None:
            match message:
                case Stop():
                    self._orders.heed(message.level)
                case AskMetrics():
                    self._line.say(Metrics(message.ident, families(self._house.metrics.registry)))
                case AskReady():
                    self._crew.spawn(self._tell_ready(message), "readiness")
                case Renew():
                    self._renew(message)
                case NoMore():
                    self._no_more.set()
                case Begin():
                    _log.error("the supervisor begins twice")
        _log.error("the supervisor is gone; this worker drains and ends")
        self._no_more.set()
        self._orders.heed(DRAIN)

    async def _tell_ready(self, asked: AskReady) -> None:
        self._line.say(Ready(asked.ident, await self._operators.readiness(asked.exclude)))

    def _renew(self, asked: Renew) -> None:
        # A house that is not furnished yet is better built anew.
        taken = self._front.serving and self._front.reload(lambda: _unpack(asked.config))
        self._line.say(Renewed(asked.ident, taken))

    async def _beat(self) -> None:
        """Tell the number of connections soon after it has changed, and that this worker lives."""
        told, told_at = Beat(-1, -1), 0.0
        while True:
            beat = Beat(self._front.connections, self._taken)
            now = self._clock.monotonic()
            if beat != told or now - told_at >= BEAT_SECONDS:
                self._line.say(beat)
                told, told_at = beat, now
            await self._clock.sleep(_CHANGED_SECONDS)

    def _adopt(self) -> None:
        """Take the connections that have been handed over."""
        for _ in range(_AT_ONCE):
            try:
                word, found, _flags, _address = socket.recv_fds(self._door, 1, 1)
            except BlockingIOError:
                return
            if not word:
                asyncio.get_running_loop().remove_reader(self._door)
                return
            self._taken += 1
            for number in found:
                self._crew.spawn(self._front.adopt(socket.socket(fileno=number)), "connection")


def _leave_be(_number: int, _frame: FrameType | None) -> None:
    """Do nothing."""


def main(ends: list[int]) -> int:
    """Be a worker on the two ends of lines that the supervisor left open; return the exit code."""
    # A key at the terminal is for the supervisor. Its ends are no business of our children.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave_be)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
    line, door = (socket.socket(fileno=number) for number in ends)
    line.set_inheritable(False)
    door.set_inheritable(False)
    door.setblocking(False)
    return uvloop.run(_run(line, door))


async def _run(end: socket.socket, door: socket.socket) -> int:
    line = await Line[ToWorker].over(end, ToWorker)
    with door:
        try:
            return await _begin(line, door)
        except (ConfigError, PluginError) as wrong:
            line.say(Failed(str(wrong), mistaken=True))
        except (GatewayError, OSError) as wrong:
            line.say(Failed(str(wrong), mistaken=False))
        except Exception as wrong:  # noqa: BLE001  whatever it is, the supervisor hears of it
            _log.exception("this worker fails")
            line.say(Failed(f"{type(wrong).__name__}: {wrong}", mistaken=False))
        finally:
            await line.close()
    return 1


async def _begin(line: Line[ToWorker], door: socket.socket) -> int:
    begin = await line.hear()
    if not isinstance(begin, Begin):
        return 0
    if begin.version != __version__:
        words = f"the supervisor is of version {begin.version}, this worker of {__version__}"
        raise ConfigError(f"{words}: restart the gateway")
    config = _unpack(begin.config)
    configure(config.log.level, config.log.format, begin.number)
    worker = Worker(line, door, config, SystemClock())
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    await worker.run()
    return 0


def _unpack(config: bytes) -> Config:
    found: Config = pickle.loads(config)  # noqa: S301  from the process that started this one, on its own pipe
    return found
