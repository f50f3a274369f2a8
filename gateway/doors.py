"""The doors of a house: opened, shown to be closing, drained, closed."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

from gateway.app import House
from gateway.config.changes import changed_upstreams, needs_start
from gateway.config.model import Config
from gateway.front.admin import Admin, Probe, Probes
from gateway.front.guard import LOOPBACK, Guard
from gateway.front.http import HttpDoor, HttpLimits, paths_of
from gateway.front.site import Site
from gateway.observe.logs import configure
from gateway.protocol.errors import ConfigError, PluginError
from gateway.slices import abandoned_seconds

_log: Final = logging.getLogger("gateway")
_LAST_SECONDS: Final = 0.2


class HttpFront:
    """The house with its HTTP doors open."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._doors = AsyncExitStack()
        self._site: Site | None = None
        self._door: HttpDoor | None = None
        self.port = 0
        self.serving = False
        self.leaving = False
        self._noticed = False
        self.admin_port: int | None = None
        self._probed: dict[str, Probe] = {}

    async def open(self, *, listen: bool = True) -> None:
        """Listen, or wait for what `adopt` brings; raise `OSError` where a port is taken."""
        house, config = self.house, self.house.config
        door = self._door = HttpDoor(
            house.router,
            paths_of(list(config.upstreams)),
            _guard(config),
            house.metrics,
            house.crew,
            _limits(config),
        )
        site = self._site = Site(door)
        self._doors.push_async_callback(site.close)
        if listen:
            with named("listen", config.listen.host, config.listen.port):
                self.port = await site.open(config.listen.host, config.listen.port)
        else:
            await site.open_unheard()
        self.serving = True

    async def adopt(self, connection: socket.socket) -> None:
        """Serve a connection that somebody else has accepted; it is owned from now on."""
        if self._site is None:
            connection.close()
        else:
            await self._site.adopt(connection)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return 0 if self._site is None else self._site.connections

    async def open_admin(self) -> None:
        """Open the operator's door, before the house has started; raise `OSError` for a taken port."""
        config = self.house.config
        if config.admin is not None:
            admin = self.admin()
            with named("admin", config.admin.host, config.admin.port):
                self.admin_port = await admin.start(config.admin.host, config.admin.port)
            self._doors.push_async_callback(admin.close)

    def admin(self) -> Admin:
        """Return what tells operators of this house."""
        house = self.house
        self._probe_upstreams()
        probes = Probes(
            store=house.store.ping,
            upstreams=self._probed,
            draining=lambda: self.leaving or house.service.draining,
            serving=lambda: self.serving,
        )
        return Admin(house.metrics.render, probes, house.clock)

    def reload(self, load: Callable[[], Config]) -> bool:
        """Read the configuration anew and serve by it from the next request on; tell whether it was taken.

        What cannot be taken as a whole changes nothing: the log says why.
        """
        old, metrics = self.house.config, self.house.metrics
        try:
            config = load()
            fixed = needs_start(old, config)
            if fixed:
                raise ConfigError(f"cannot be changed without a restart: {', '.join(fixed)}")
            self.house.reconfigure(config)
        except (ConfigError, PluginError) as wrong:
            metrics.reloads.labels("refused").inc()
            _log.error("the new configuration is refused, the old one stays: %s", wrong)
            return False
        configure(config.log.level, config.log.format)
        self._probe_upstreams()
        if self._door is not None:
            self._door.reconfigure(paths_of(list(config.upstreams)), _guard(config), _limits(config))
        metrics.reloads.labels("taken").inc()
        added, changed, removed = (", ".join(names) or "none" for names in changed_upstreams(old, config))
        words = "the new configuration is served; upstreams added: %s; changed: %s; removed: %s"
        _log.info(words, added, changed, removed)
        return True

    def _probe_upstreams(self) -> None:
        self._probed.clear()
        self._probed.update({name: served.upstream.check for name, served in self.house.served.items()})

    async def leave(self) -> None:
        """Serve on as before, not ready any more, until load balancers have had the time to notice."""
        self.leaving = True
        seconds = self.house.config.drain_delay / 1000
        # Who keeps tasks in this process has no other replica to send clients to.
        if self._site is None or self.house.store.link.in_process or not seconds:
            return
        self._site.leave()
        _log.info("leaving: load balancers have %g s to notice", seconds)
        await self.house.clock.sleep(seconds)
        self._noticed = True

    async def close(self) -> None:
        """Drain: take no new tasks; what runs may finish within the drain time.

        After `leave` nobody is let in any more. Else clients may have nowhere else to go: they are let
        in, and hear of their tasks, until all have ended.
        """
        house = self.house
        self.leaving = True
        running = len(house.service.running)
        seconds = house.config.drain / 1000
        _log.info("draining: %d tasks run, and have up to %g s; no new ones are taken", running, seconds)
        if self._site is not None and self._noticed:
            # All that clients want to know of their tasks they hear elsewhere.
            await self._site.shut()
            # Who was let in a moment ago is served yet.
            await house.clock.sleep(_LAST_SECONDS)
            house.end_streams()
        began = house.clock.monotonic()
        async with asyncio.TaskGroup() as both:
            drained = both.create_task(house.service.drain(seconds))
            if house.office is not None:
                both.create_task(house.office.drain(seconds))
        if not drained.result():
            _log.warning("the drain time is over; tasks that still run are handed over, or end as failed")
        # A subscription is a request that is being answered, too, and does not end by itself.
        house.end_streams()
        left = max(0.0, began + seconds - house.clock.monotonic())
        if self._door is not None and not await self._door.settled(left):
            _log.warning("the drain time is over; requests that are still being answered are cut off")
        if self._site is not None:
            await self._site.shut()
        house.end_streams()
        await house.service.close()
        await self.shut()

    async def shut(self) -> None:
        """Close the doors at once."""
        await self._doors.aclose()


@contextmanager
def named(section: str, host: str, port: int) -> Generator[None, None, None]:
    """Say which section of the configuration wants a port that cannot be had."""
    try:
        yield
    except OSError as wrong:
        words = f"{section}: port {port} of {host} cannot be opened: {wrong.strerror or wrong}"
        raise OSError(words) from wrong


def _limits(config: Config) -> HttpLimits:
    limits = config.limits
    return HttpLimits(limits.request_bytes, abandoned_seconds(config), limits.connections)


def _guard(config: Config) -> Guard:
    listen = config.listen
    hosts = None if listen.host not in LOOPBACK or "*" in listen.allowed_hosts else listen.allowed_hosts
    return Guard(listen.allowed_origins, hosts)
