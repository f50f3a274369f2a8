"""A slot: the place of one worker, taken by one process after another."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from gateway.aio.clock import Clock
from gateway.observe.sums import Family
from gateway.workers.messages import KILL
from gateway.workers.process import WorkerProcess

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 10.0
HOPELESS: Final = 3
_log: Final = logging.getLogger("gateway.workers")


def pause_after(deaths: int) -> float:
    """Return the seconds until the next start: none after the first death, then doubling, with jitter.

    `deaths` counts those in a row, each soon after its start. The jitter takes up to half away, so that
    workers that died of one cause do not come back at one moment.
    """
    if deaths <= 1:
        return 0.0
    seconds = min(FIRST_SECONDS * 2.0 ** min(deaths - 2, 16), LONGEST_SECONDS)
    return seconds * (1 - secrets.randbelow(1000) / 2000)


class Slot:
    """Keeps one worker alive. It is `hopeless`, in words, while the configuration does not let it start."""

    def __init__(
        self,
        number: int,
        clock: Clock,
        config: Callable[[], bytes],
        changed: Callable[[], None],
        bury: Callable[[Iterable[Family]], None],
    ) -> None:
        self.number = number
        self.process: WorkerProcess | None = None
        self.hopeless: str | None = None
        self.restarts = 0
        self._clock = clock
        self._config = config
        self._changed = changed
        self._bury = bury
        self._level = 0
        self._stopped = asyncio.Event()
        self._mistakes = 0
        self._deaths = 0

    def __repr__(self) -> str:
        return f"<Slot {self.number}: {self.process or 'empty'}>"

    async def run(self) -> None:
        """Start processes one after another until the slot is stopped."""
        while not self._level:
            seconds = pause_after(self._deaths)
            if seconds:
                _log.warning("worker %d starts again in %.1f s", self.number, seconds)
                await self._rest(seconds)
            if not self._level:
                await self._once()

    def stop(self, level: int) -> None:
        """End the process that is in the slot, and put no other in."""
        self._level = max(self._level, level)
        self._stopped.set()
        if self.process is not None:
            self._pass_on(self.process)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _once(self) -> None:
        process = WorkerProcess(self.number, self._clock, self._changed)
        try:
            await process.start(self._config())
        except OSError as wrong:
            _log.error("worker %d cannot be started: %s", self.number, wrong)
            self._deaths += 1
            return
        self.process = process
        try:
            if self._level:
                self._pass_on(process)
            code = await process.listen()
        finally:
            process.kill()
            self._bury(process.last)
            self.process = None
        if not self._level:
            self._judge(process, code)
            self.restarts += 1
            self._changed()

    def _pass_on(self, process: WorkerProcess) -> None:
        process.stop(self._level)
        if self._level >= KILL:
            process.kill()

    def _judge(self, process: WorkerProcess, code: int) -> None:
        """Say what the process died of, and count it."""
        served = process.served_at
        steady = served is not None and self._clock.monotonic() - served >= STEADY_SECONDS
        failed = process.failed
        if code == 0 and failed is None and (served is not None or process.asked_to_end):
            _log.info("worker %d has ended as it was asked to; another takes its place", self.number)
            self._deaths = self._mistakes = 0
            return
        self._deaths = 1 if steady else self._deaths + 1
        self._mistakes = self._mistakes + 1 if failed is not None and failed.mistaken else 0
        words = failed.words if failed is not None else _cause(code)
        doing = "has died" if served is not None else "did not start"
        _log.error("worker %d (process %s) %s: %s", self.number, process.pid, doing, words)
        hopeless = failed is not None and self._mistakes >= HOPELESS
        self.hopeless = words if hopeless else None


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
