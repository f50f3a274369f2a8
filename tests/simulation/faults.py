"""What befalls the replicas of the simulation."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from tests.simulation.world import LEASE_MS, Replica, World

_LEASE: Final = LEASE_MS / 1000
KINDS: Final = ("kill", "stop", "pause", "partition", "cut", "upstream away", "upstream cut")


class Faults:
    """Lets something happen now and then, and all be well at the end; `told` is what happened when."""

    def __init__(self, world: World, random: Random, kinds: tuple[str, ...] = KINDS) -> None:
        self._world = world
        self._random = random
        self._kinds = kinds
        self.told: list[tuple[float, str]] = []

    async def happen(self, number: int, within: float) -> None:
        """Let so many faults happen within so many seconds."""
        times = sorted(self._random.uniform(0, within) for _ in range(number))
        async with asyncio.TaskGroup() as group:
            for at in times:
                group.create_task(self._one(at))

    async def _one(self, at: float) -> None:
        await asyncio.sleep(at)
        well = [one for one in self._world.replicas if not (one.paused or one.way.away)]
        # Somebody must be left to be asked.
        if len(well) < 2:
            return
        replica, kind = self._random.choice(well), self._random.choice(self._kinds)
        self.told.append((self._world.loop.time(), f"{kind} {replica.name}"))
        await self._do(kind, replica)

    async def _do(self, kind: str, replica: Replica) -> None:
        seconds = self._random.choice((0.2, 0.9, 1.5, 4)) * _LEASE * self._random.uniform(0.5, 1.5)
        match kind:
            case "kill" | "stop":
                self._world.remove(replica)
                await (replica.kill() if kind == "kill" else replica.stop())
                await asyncio.sleep(self._random.expovariate(1.0))
                await self._world.add()
            case "pause":
                replica.pause()
                await asyncio.sleep(seconds)
                replica.resume()
            case "partition":
                replica.way.close(dead=False)
                await asyncio.sleep(seconds)
                replica.way.open()
            case "cut":
                replica.way.cut()
            case "upstream away":
                replica.upstream_way.close(dead=False)
                await asyncio.sleep(seconds)
                replica.upstream_way.open()
            case _:
                replica.upstream_way.cut()
