"""What breaks: each fault of the schedule done to the world, healed, and recorded with its times."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from tests.chaos.history import EVERYTHING, Fault
from tests.chaos.parts import Part, listens
from tests.chaos.schedule import AWAY, HTTP, Planned
from tests.chaos.world import World

SLOW_S: Final = 0.1
# These are to be noticed by nobody.
GENTLE: Final = frozenset({"replica_term", "replicas_roll", "balancer_reload"})


class Breaker:
    """Breaks a world by a schedule; what it did is in `faults`."""

    def __init__(self, world: World, seed: int) -> None:
        self.faults: list[Fault] = []
        self._world = world
        self._dice = random.Random(f"breaker {seed}")
        self._locks: dict[str, asyncio.Lock] = {}
        self._ways: dict[str, Callable[[Planned], Awaitable[None]]] = {
            "replica_kill": self._replica_kill,
            "replica_stop_short": self._replica_stop,
            "replica_stop_long": self._replica_stop,
            "replica_term": self._replica_term,
            "replicas_roll": self._replicas_roll,
            "redis_cut": self._way_cut,
            "redis_partition": self._way_partition,
            "redis_slow": self._redis_slow,
            "redis_restart": self._redis_restart,
            "redis_pause": self._redis_pause,
            "redis_drop_all": self._redis_drop_all,
            "upstream_cut": self._way_cut,
            "upstream_partition": self._way_partition,
            "upstream_drop_all": self._upstream_drop_all,
            "upstream_kill": self._upstream_kill,
            "upstream_hang": self._upstream_hang,
            "child_kill": self._child,
            "child_hang": self._child,
            "balancer_reload": self._balancer_reload,
        }

    async def follow(self, schedule: list[Planned]) -> None:
        """Do all of a schedule, and return when the last has healed."""
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for planned in schedule:
                await asyncio.sleep(max(0.0, begun + planned.at - time.monotonic()))
                group.create_task(self._do(planned))

    async def _do(self, planned: Planned) -> None:
        async with AsyncExitStack() as stack:
            for lock in self._needs(planned):
                await stack.enter_async_context(self._locks.setdefault(lock, asyncio.Lock()))
            before = time.time()
            try:
                await self._ways[planned.name](planned)
            finally:
                touches = _touches(planned)
                self.faults.append(
                    Fault(
                        name=planned.name,
                        target=planned.target,
                        begun=before,
                        over=time.time(),
                        touches=touches,
                    )
                )

    def _needs(self, planned: Planned) -> list[str]:
        """Return what nobody else may break meanwhile."""
        if planned.name == "replicas_roll":
            return [replica.name for replica in self._world.replicas]
        if planned.name in AWAY:
            return [planned.target]
        if planned.name in ("redis_restart", "redis_pause", "redis_drop_all"):
            return ["redis"]
        return [f"{planned.name.partition('_')[0]} {planned.target}"]

    def _replica(self, planned: Planned) -> int:
        return int(planned.target.split()[0].removeprefix("replica"))

    async def _replica_kill(self, planned: Planned) -> None:
        replica = self._world.replicas[self._replica(planned)]
        await replica.kill()
        await asyncio.sleep(planned.seconds)
        replica.start()
        await replica.ready()

    async def _replica_stop(self, planned: Planned) -> None:
        replica = self._world.replicas[self._replica(planned)]
        await _hang(replica, planned.seconds)

    async def _replica_term(self, planned: Planned) -> None:
        await self._again(self._replica(planned), planned.seconds)

    async def _replicas_roll(self, planned: Planned) -> None:
        for number in range(1, len(self._world.replicas)):
            await self._again(number, planned.seconds)

    async def _again(self, number: int, seconds: float) -> None:
        replica = self._world.replicas[number]
        replica.send(signal.SIGTERM)
        await replica.ended(self._world.terms.timeout * 2 + 10)
        await asyncio.sleep(seconds)
        replica.start()
        await replica.ready()

    def _way(self, planned: Planned) -> tuple[int, str]:
        return self._replica(planned), (planned.target.split()[1:] or ["redis"])[0]

    async def _way_cut(self, planned: Planned) -> None:
        number, name = self._way(planned)
        self._world.replicas[number].ways[name].cut()

    async def _way_partition(self, planned: Planned) -> None:
        number, name = self._way(planned)
        way = self._world.replicas[number].ways[name]
        # Some networks swallow what is sent, some refuse it.
        silent = self._dice.random() < 0.5
        (way.pause if silent else way.shut)()
        await asyncio.sleep(planned.seconds)
        if silent:
            way.resume()
        else:
            way.open_again()

    async def _redis_slow(self, planned: Planned) -> None:
        ways = [replica.ways["redis"] for replica in self._world.replicas]
        for way in ways:
            way.delay = SLOW_S
        await asyncio.sleep(planned.seconds)
        for way in ways:
            way.delay = 0.0

    async def _redis_restart(self, planned: Planned) -> None:
        await self._world.redis.kill()
        await asyncio.sleep(planned.seconds)
        self._world.redis.start()
        await listens(self._world.redis, self._world.redis_port)
        await self._redis_loaded()

    async def _redis_loaded(self) -> None:
        for _ in range(1000):
            if (await self._world.redis_says("PING"))[0].startswith(b"+PONG"):
                return
            await asyncio.sleep(0.02)

    async def _redis_pause(self, planned: Planned) -> None:
        await self._world.redis_says("CLIENT", "PAUSE", str(int(planned.seconds * 1000)), "ALL")
        await asyncio.sleep(planned.seconds)

    async def _redis_drop_all(self, planned: Planned) -> None:
        with contextlib.suppress(OSError):
            await self._world.redis_says("CLIENT", "KILL", "TYPE", "normal")
            await self._world.redis_says("CLIENT", "KILL", "TYPE", "pubsub")

    async def _upstream_drop_all(self, planned: Planned) -> None:
        for replica in self._world.replicas:
            replica.ways[planned.target].cut()

    async def _upstream_kill(self, planned: Planned) -> None:
        part = self._world.upstreams[planned.target]
        await part.kill()
        await asyncio.sleep(planned.seconds)
        part.start()
        await listens(part, self._world.ports[planned.target])

    async def _upstream_hang(self, planned: Planned) -> None:
        await _hang(self._world.upstreams[planned.target], planned.seconds)

    async def _child(self, planned: Planned) -> None:
        children = self._world.children()
        if not children:
            return
        pid = self._dice.choice(children)
        with contextlib.suppress(ProcessLookupError):
            if planned.name == "child_kill":
                os.kill(pid, signal.SIGKILL)
                return
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(planned.seconds)
            os.kill(pid, signal.SIGCONT)

    async def _balancer_reload(self, planned: Planned) -> None:
        self._world.balancer.send(signal.SIGUSR2)
        await asyncio.sleep(0.3)
        await listens(self._world.balancer, self._world.balancer_port)


async def _hang(part: Part, seconds: float) -> None:
    part.send(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        part.send(signal.SIGCONT)


def _touches(planned: Planned) -> tuple[str, ...]:
    if planned.name in GENTLE:
        return ()
    if planned.name.startswith("child_"):
        return ("child",)
    if planned.name.startswith("upstream_"):
        return tuple(name for name in HTTP if planned.target.endswith(name))
    return (EVERYTHING,)
