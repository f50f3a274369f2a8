"""The supervisor: holds the ports, keeps the workers, passes on what it is told by signals."""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
from collections.abc import Callable
from typing import Final

from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.config.changes import needs_start
from gateway.config.model import Config
from gateway.doors import named
from gateway.front.admin import AdminDoor
from gateway.observe.logs import configure
from gateway.observe.sums import Sums
from gateway.protocol.errors import ConfigError, PluginError
from gateway.workers.doorman import Doorman, bind
from gateway.workers.hearing import hear
from gateway.workers.messages import DRAIN, KILL, LEAVE
from gateway.workers.operators import Operators
from gateway.workers.process import WorkerProcess
from gateway.workers.slot import Slot

RENEW_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 20.0
_log: Final = logging.getLogger("gateway.workers")


def supervise(
    config: Config,
    number: int,
    reload: Callable[[], Config] | None,
    announce: Callable[[int, int | None], None],
) -> None:
    """Serve a configuration by so many workers until a signal ends it; for the rest see `Supervisor`."""

    async def run() -> None:
        await Supervisor(config, number, SystemClock(), reload, announce).run()

    asyncio.run(run())


class Supervisor:
    """Serves one configuration by several workers.

    `reload` reads the configuration again at a SIGHUP and raises `ConfigError` where it is not good;
    `announce` is told the two ports once, when the first worker serves.
    """

    def __init__(
        self,
        config: Config,
        number: int,
        clock: Clock,
        reload: Callable[[], Config] | None,
        announce: Callable[[int, int | None], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._reload = reload
        self._announce = announce
        self._crew = Crew("supervisor")
        self._sums = Sums()
        self._level = 0
        self._announced = False
        self._admin_port: int | None = None
        self._silent: set[WorkerProcess] = set()
        self._settled = asyncio.Event()
        self._renewing = asyncio.Lock()
        self._renewal_waits = False
        self._pickled = pickle.dumps(config)
        self._slots = [
            Slot(each, clock, lambda: self._pickled, self._look, self._sums.bury)
            for each in range(1, number + 1)
        ]
        self._operators = Operators(self._slots, self._sums, lambda: self._level > 0)
        self._doorman: Doorman | None = None

    async def run(self) -> None:
        """Serve until a signal ends it and all workers have ended.

        Raises `OSError` where a port is taken, and `ConfigError` where no worker can start with this
        configuration.
        """
        listen, admin = self._config.listen, self._config.admin
        with named("listen", listen.host, listen.port):
            self._doorman = Doorman(bind(listen.host, listen.port), self._processes)
        operators = AdminDoor(self._operators.metrics, self._operators.readiness)
        try:
            if admin is not None:
                with named("admin", admin.host, admin.port):
                    self._admin_port = await operators.start(admin.host, admin.port)
            self._hear_signals()
            await self._keep()
        finally:
            self._doorman.close()
            await self._crew.close()
            await operators.close()
        hopeless = self._slots[0].hopeless
        if not self._announced and hopeless is not None:
            raise ConfigError(hopeless)
        _log.info("stopped")

    async def _keep(self) -> None:
        running = [self._crew.keep(slot.run, f"worker {slot.number}") for slot in self._slots]
        self._crew.keep(self._watch, "watch")
        await self._settled.wait()
        if not self._level:
            self._stop(DRAIN)
        seconds = (self._config.drain + self._config.drain_delay) / 1000 + _GRACE_SECONDS
        _done, late = await asyncio.wait(running, timeout=seconds)
        if late:
            _log.error(
                "%d workers have not ended %g s after they were asked to; killed", len(late), seconds
            )
            self._stop(KILL)
            await asyncio.wait(late)

    def _processes(self) -> list[WorkerProcess]:
        return [slot.process for slot in self._slots if slot.process is not None]

    def _look(self) -> None:
        """Take note of a worker whose state has changed."""
        # Once somebody has served, what keeps a worker from starting may pass.
        if not self._announced and all(slot.hopeless for slot in self._slots):
            self._settled.set()
        processes = self._processes()
        if self._doorman is None:
            return
        self._doorman.look()
        if not self._announced and any(process.state == "serving" for process in processes):
            self._announced = True
            self._announce(self._doorman.port, self._admin_port)
        if self._level and not any(process.state in ("serving", "leaving") for process in processes):
            self._doorman.close()

    async def _watch(self) -> None:
        """Know what each worker has counted, and say which of them is silent."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self._operators.refresh()
            silent = {process for process in self._processes() if process.silent}
            for process in silent - self._silent:
                _log.warning(
                    "worker %d (process %s) is silent; others are preferred", process.number, process.pid
                )
            for process in self._silent - silent:
                if process.state != "ended":
                    _log.info("worker %d (process %s) is heard again", process.number, process.pid)
            self._silent = silent

    def _hear_signals(self) -> None:
        hear({signal.SIGTERM: LEAVE, signal.SIGINT: DRAIN}, self._stop)
        if (load := self._reload) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._renew_soon, load)

    def _renew_soon(self, load: Callable[[], Config]) -> None:
        """Read the configuration again; those who ask while one waits to be read are one."""
        if not self._renewal_waits:
            self._renewal_waits = True
            self._crew.spawn(self._renew(load), "renew")

    def _stop(self, level: int) -> None:
        """End all workers, with the patience of the level."""
        if not self._level:
            _log.info("stopping: %d workers end", len(self._processes()))
        self._level = min(max(level, self._level), KILL)
        self._settled.set()
        for slot in self._slots:
            slot.stop(self._level)

    async def _renew(self, load: Callable[[], Config]) -> None:
        """Read the configuration again, and pass it on where it is good."""
        async with self._renewing:
            self._renewal_waits = False
            try:
                config = await asyncio.to_thread(load)
                fixed = needs_start(self._config, config)
                if fixed:
                    raise ConfigError(f"cannot be changed without a restart: {', '.join(fixed)}")
            except (ConfigError, PluginError) as wrong:
                self._operators.count_refusal()
                _log.error("the new configuration is refused, the old one stays: %s", wrong)
                return
            self._config, self._pickled = config, pickle.dumps(config)
            configure(config.log.level, config.log.format)
            await asyncio.gather(*(self._renew_one(process) for process in self._processes()))

    async def _renew_one(self, process: WorkerProcess) -> None:
        """Hand the configuration to a worker; one that does not take it gives way to one that has it."""
        taken = await process.renew(self._pickled, RENEW_SECONDS)
        if not taken and process.state in ("starting", "serving"):
            _log.error("worker %d does not take the new configuration, and starts again", process.number)
            process.stop(DRAIN)
