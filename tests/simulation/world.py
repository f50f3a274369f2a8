"""Replicas of the simulation: whole task services on one embedded server, which may die at each await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, Final, TypeVar

from fakeredis import FakeServer

from gateway.observe.logs import TaskLog
from gateway.observe.metrics import Metrics
from gateway.service.leases import Leases
from gateway.service.order import ServiceLimits
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.store.bus import RedisBus
from gateway.store.clock import StoreClock
from gateway.store.port import Bounds
from gateway.store.redis import RedisStore
from tests.simulation.loop import VirtualClock, VirtualLoop
from tests.simulation.network import Way, link_over
from tests.simulation.orders import rebuild_over
from tests.simulation.upstream import NumberedChannel, SimChannel, SimUpstream

T = TypeVar("T")
LEASE_MS: Final = 3_000
_STORE_SECONDS: Final = 1.0
_ROUNDS: Final = 50
_here: ContextVar[Replica | None] = ContextVar("replica", default=None)


class Gone(Exception):
    """The replica that was asked is dead, or did not answer in time."""


class ReplicaClock(VirtualClock):
    """A clock that stands still with its replica."""

    def __init__(self, loop: VirtualLoop, way: Way, ahead: int) -> None:
        super().__init__(loop, ahead)
        self._way = way

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
        await self._way.held()


class Replica:
    """One task service with all that it needs; `works` are the tasks of the loop that are its own."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.works: dict[asyncio.Task[Any], None] = {}
        random = world.random
        self.way = Way(Random(random.random()), losses=world.losses)
        self.upstream_way = Way(Random(random.random()), losses=world.losses)
        self.clock = ReplicaClock(world.loop, self.way, random.randrange(-300_000, 300_000))
        self.store = RedisStore(link_over(world.server, self.way, _STORE_SECONDS), clock=self.clock)
        self.bus = RedisBus(self.store.link, name, clock=self.clock)
        self.witness = Witness(Metrics("0", ["sim"], [], []), TaskLog(), lambda _: None)
        limits = ServiceLimits(
            bounds=Bounds(10_000, 10_000),
            result_bytes=10_000,
            stream_queue_bytes=100_000,
            pending_requests=16,
            lease_ms=LEASE_MS,
        )
        self.service = TaskService(name, self.store, self.bus, self.witness, self.clock, limits)
        self.service.hands_over = True
        self.service.rebuild = rebuild_over(self.channel)
        self.leases = Leases(
            self.service, self.store, self.witness, StoreClock(self.store.link, self.clock), LEASE_MS
        )
        self.upstreams = world.upstreams
        self.paused = False

    def __repr__(self) -> str:
        state = "dead" if self.dead else "paused" if self.paused else "away" if self.way.away else "well"
        return f"<Replica {self.name} {state}>"

    @property
    def dead(self) -> bool:
        """Whether it has been killed or has stopped."""
        return self.way.dead

    def channel(self, upstream: str) -> SimChannel:
        """Return a channel to an upstream."""
        server = self.upstreams[upstream]
        kind = NumberedChannel if server.numbers else SimChannel
        return kind(server, self.upstream_way)

    @contextmanager
    def inside(self) -> Generator[None, None, None]:
        """Let what is begun in the block be work of this replica."""
        before = _here.set(self)
        try:
            yield
        finally:
            _here.reset(before)

    async def open(self) -> None:
        """Begin."""
        with self.inside():
            for work in (self.leases.run(), self.service.obey()):
                asyncio.get_running_loop().create_task(work)
        # A replica claims nothing that another may have: what is in its place has to be heard first.
        await asyncio.sleep(0)

    async def ask(self, work: Coroutine[Any, Any, T], seconds: float = 8.0) -> T:
        """Have it do something; raise `Gone` where it dies over it, or does not answer in time."""
        if self.dead:
            work.close()
            raise Gone(self.name)
        with self.inside():
            doing = asyncio.get_running_loop().create_task(work)
        await asyncio.wait([doing], timeout=seconds)
        if not doing.done():
            # The client leaves; a front would cancel, or not, as the era has it: here it leaves it be.
            raise Gone(f"{self.name} does not answer")
        if doing.cancelled():
            raise Gone(self.name)
        await asyncio.sleep(0)
        return doing.result()

    async def kill(self) -> None:
        """End it at once: nothing that it does after this can be seen by anybody."""
        self.way.close(dead=True)
        self.upstream_way.close(dead=True)
        self.way.resume()
        self.upstream_way.resume()
        for _ in range(_ROUNDS):
            if not self.works:
                return
            for work in tuple(self.works):
                work.cancel()
            await asyncio.wait(tuple(self.works), timeout=1.0)
        raise AssertionError(f"{self} does not die: {self.works}")

    async def stop(self) -> None:
        """End it as an operator does."""
        with self.inside():
            stopping = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.wait([stopping])
        if not stopping.cancelled():
            stopping.result()
        await self.kill()

    async def _stop(self) -> None:
        self.service.leave()
        await self.service.drain(1.0)
        await self.service.close()

    def pause(self) -> None:
        """Let it stand still."""
        self.paused = True
        self.way.pause()
        self.upstream_way.pause()

    def resume(self) -> None:
        """Let it go on."""
        self.paused = False
        self.way.resume()
        self.upstream_way.resume()


class World:
    """The server, the upstreams, and the replicas that live now."""

    def __init__(self, loop: VirtualLoop, random: Random, losses: float) -> None:
        self.loop = loop
        self.random = random
        self.losses = losses
        self.server = FakeServer()
        self.replicas: list[Replica] = []
        self.upstreams = {
            "numbered": SimUpstream(Way(Random(random.random())), numbers=True),
            "plain": SimUpstream(Way(Random(random.random())), numbers=False),
        }
        self._made = 0
        loop.set_task_factory(_owned)

    async def add(self) -> Replica:
        """Start one more replica."""
        self._made += 1
        replica = Replica(f"r{self._made}", self)
        self.replicas.append(replica)
        await replica.open()
        return replica

    def remove(self, replica: Replica) -> None:
        """Take a dead replica off the list."""
        self.replicas.remove(replica)

    def any(self) -> Replica:
        """Return any replica."""
        return self.random.choice(self.replicas)

    def left(self) -> list[bytes]:
        """Return what is in the server now."""
        return [key for database in self.server.dbs.values() for key in database]


@asynccontextmanager
async def world_of(loop: VirtualLoop, random: Random, losses: float, number: int) -> AsyncGenerator[World]:
    """Make a world with so many replicas, and end it."""
    world = World(loop, random, losses)
    try:
        for _ in range(number):
            await world.add()
        yield world
    finally:
        for replica in world.replicas:
            await replica.kill()
        for upstream in world.upstreams.values():
            await upstream.close()


def _owned(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], **more: Any
) -> asyncio.Task[Any]:
    """Make a task of the loop that belongs to the replica in whose work it was begun."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
    owner = _here.get()
    if owner is not None:
        owner.works[task] = None
        task.add_done_callback(lambda done: owner.works.pop(done, None))
    return task
