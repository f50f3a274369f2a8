"""The way between one replica and its store: slow, cut, or closed, as the seed has it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any, Final, TypeVar, cast

from fakeredis import FakeAsyncRedis, FakeServer
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as Cut

from gateway.store.lanes import Connection, Reply
from gateway.store.link import PoolLink

T = TypeVar("T")
_FAST: Final = 0.0003
_SLOW: Final = 0.02
_OFTEN: Final = 0.9


class Way:
    """What happens to all that one replica sends and hears: a pause holds it, a death ends it.

    `losses` is how often an exchange is cut, before or after the other side has taken it.
    """

    def __init__(self, random: Random, losses: float = 0.0) -> None:
        self.random = random
        self.losses = losses
        self.away = False
        self.dead = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._breaks: dict[asyncio.Event, None] = {}

    async def step(self) -> None:
        """Take a while; not before a pause is over."""
        await asyncio.sleep(
            self.random.expovariate(1 / (_FAST if self.random.random() < _OFTEN else _SLOW))
        )
        await self.held()

    async def held(self) -> None:
        """Wait for the end of a pause."""
        await self._flows.wait()

    @property
    def closed(self) -> bool:
        """Whether nothing passes."""
        return self.away or self.dead

    def slips(self) -> bool:
        """Tell whether this exchange is cut."""
        return self.random.random() < self.losses

    def pause(self) -> None:
        """Stand still, as a process does that was stopped."""
        self._flows.clear()

    def resume(self) -> None:
        """Go on."""
        self._flows.set()

    def cut(self) -> None:
        """Cut what is open."""
        for broken in tuple(self._breaks):
            broken.set()

    def close(self, *, dead: bool) -> None:
        """Let nothing pass: for a while, or for ever."""
        self.away, self.dead = True, self.dead or dead
        self.cut()

    def open(self) -> None:
        """Let all pass again."""
        self.away = False

    def enter(self) -> asyncio.Event:
        """Return what is set when a connection breaks."""
        broken = asyncio.Event()
        self._breaks[broken] = None
        return broken

    def leave(self, broken: asyncio.Event) -> None:
        """Forget a connection."""
        self._breaks.pop(broken, None)

    async def unless(self, broken: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
        """Do it; raise `Cut` where the connection breaks first."""
        loop = asyncio.get_running_loop()
        doing, breaking = loop.create_task(work), loop.create_task(broken.wait())
        try:
            await asyncio.wait([doing, breaking], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Cut("the connection was cut")
            return doing.result()
        finally:
            doing.cancel()
            breaking.cancel()


class TroubledConnection:
    """A connection of the embedded server with a way before it."""

    def __init__(self, inner: Connection, way: Way) -> None:
        self._inner = inner
        self._way = way
        self._broken = asyncio.Event()
        self._lost = False

    @property
    def is_connected(self) -> bool:
        """Whether it is open, as far as is known."""
        return self._inner.is_connected

    async def connect(self) -> None:
        """Connect; raise `Cut` where nothing passes."""
        await self._way.step()
        if self._way.closed:
            raise Cut("nobody answers")
        self._broken = self._way.enter()
        self._lost = False
        await self._inner.connect()

    async def disconnect(self, nowait: bool = False) -> None:
        """Close."""
        self._way.leave(self._broken)
        await self._inner.disconnect(nowait=nowait)

    async def can_read(self) -> bool:
        """Tell whether there is unread data, or the end."""
        return self._broken.is_set() or await self._inner.can_read()

    async def send_packed_command(self, command: Iterable[bytes], check_health: bool = True) -> None:
        """Send bytes; they may be lost, or their answers."""
        await self._way.step()
        self._check()
        slips = self._way.slips()
        if slips and self._way.random.random() < 0.5:
            self._broken.set()
            self._check()
        await self._inner.send_packed_command(command, check_health=check_health)
        self._lost = slips

    async def read_response(
        self, disable_decoding: bool = False, *, disconnect_on_error: bool = True
    ) -> Reply:
        """Read one answer."""
        if self._lost:
            self._broken.set()
        self._check()
        reading = self._inner.read_response(
            disable_decoding=disable_decoding, disconnect_on_error=disconnect_on_error
        )
        reply = await self._way.unless(self._broken, cast(Coroutine[Any, Any, Reply], reading))
        await self._way.step()
        self._check()
        return reply

    def _check(self) -> None:
        if self._broken.is_set() or self._way.closed:
            raise Cut("the connection was cut")


class _Pool:
    """Makes troubled connections to one embedded server."""

    def __init__(self, server: FakeServer, way: Way) -> None:
        self._pool = FakeAsyncRedis(server=server, protocol=2).connection_pool
        self._way = way

    def make_connection(self) -> TroubledConnection:
        """Return a new connection."""
        return TroubledConnection(cast(Connection, self._pool.make_connection()), self._way)

    async def disconnect(self) -> None:
        """Close what is open."""
        await self._pool.disconnect()


def link_over(server: FakeServer, way: Way, timeout: float) -> PoolLink:
    """Return one replica's link to the server that all share."""
    return PoolLink(cast(ConnectionPool, _Pool(server, way)), timeout=timeout, in_process=True)
