"""Clients of the simulation: each makes one task and does with it what clients do, through any replica."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from random import Random
from typing import Final

import msgspec

from gateway.protocol.errors import IllegalMove, Refusal, StoreAway
from gateway.service.running import Running
from gateway.store.port import Exists
from gateway.tasks.model import Outcome, Status, Task
from tests.simulation.orders import Plan, order_of
from tests.simulation.world import Gone, Replica, World

BOUND: Final = 150.0
_TRIES: Final = 6
_TROUBLE: Final = (Gone, StoreAway, Refusal)


class Seen(msgspec.Struct):
    """What one client knows of its task; `known` says that it was told that the task is there.

    `statuses` are those seen by each of its streams, in order.
    """

    plan: Plan
    known: bool = False
    refused: bool = False
    maybe: bool = False
    made: int = 0
    statuses: dict[str, list[Status]] = {}
    outcome: Outcome | None = None
    cancelled: bool = False
    removed: bool = False
    lost_sight: bool = False
    ended_at: float | None = None
    answered: set[str] = msgspec.field(default_factory=set[str])


class Client:
    """Makes a task, perhaps twice at once; looks at it, answers what it asks, waits for its end."""

    def __init__(self, world: World, plan: Plan, random: Random) -> None:
        self._world = world
        self._random = random
        self._waits = 0
        self.seen = Seen(plan)

    def __repr__(self) -> str:
        return f"<Client {self.seen}>"

    async def live(self) -> None:
        """Do it all."""
        await asyncio.sleep(self._random.uniform(0, 15))
        await self._make()
        if not (self.seen.known or self.seen.maybe):
            return
        jobs = [self._watch()]
        if self._random.random() < 0.4:
            jobs.append(self._wait())
        if self._random.random() < 0.15:
            jobs.append(self._cancel())
        if self._random.random() < 0.05:
            jobs.append(self._remove())
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)

    async def _make(self) -> None:
        """Ask for the task, perhaps two replicas at the same time; again after trouble."""
        twice = 2 if self._random.random() < 0.2 else 1
        for _ in range(_TRIES):
            async with asyncio.TaskGroup() as group:
                for _ in range(twice):
                    group.create_task(self._make_at())
            if self.seen.known or (self.seen.refused and not self.seen.maybe):
                return
            await asyncio.sleep(self._random.uniform(0.1, 2))

    async def _make_at(self) -> None:
        replica, plan = self._world.any(), self.seen.plan
        try:
            found = await replica.ask(replica.service.begin(order_of(plan, replica.channel(plan.upstream))))
        except StoreAway:
            # The creation is taken back where it was carried out all the same; until then it may be there.
            self.seen.maybe = True
        except Gone:
            self.seen.maybe = True
        except Refusal:
            self.seen.refused = True
        else:
            if isinstance(found, Running):
                self.seen.made += 1
                self.seen.known = True
            elif isinstance(found, Exists):
                self.seen.known = self.seen.known or not self.seen.maybe
            else:
                self.seen.refused = True

    async def _watch(self) -> None:
        """Poll until the end; answer what is asked."""
        until = self._world.loop.time() + BOUND
        misses = 0
        while self._world.loop.time() < until and self.seen.ended_at is None:
            await asyncio.sleep(self._random.expovariate(1.5))
            replica = self._world.any()
            try:
                task = await replica.ask(replica.service.get(self.seen.plan.key))
            except _TROUBLE:
                continue
            if task is None:
                misses += 1
                self.seen.lost_sight = True
                if self.seen.removed or not self.seen.known or misses > 2:
                    return
                continue
            self._note("poll", task)
            if task.ended:
                await self._fetch()
                return
            for pending in task.pending:
                if self._random.random() < 0.8:
                    await self._answer(pending.relay_id)

    def _note(self, who: str, task: Task) -> None:
        self.seen.statuses.setdefault(who, []).append(task.status)
        if task.ended and self.seen.ended_at is None:
            self.seen.ended_at = self._world.loop.time()

    async def _fetch(self) -> None:
        for _ in range(_TRIES):
            replica = self._world.any()
            try:
                found = await replica.ask(replica.service.outcome(self.seen.plan.key))
            except _TROUBLE:
                await asyncio.sleep(0.3)
                continue
            if found is not None:
                self.seen.outcome = found[1]
            return

    async def _answer(self, relay: str) -> None:
        replica = self._world.any()
        result = {"action": "accept", "content": {"relay": relay}}
        message = json.dumps({"jsonrpc": "2.0", "id": relay, "result": result}).encode()
        try:
            if await replica.ask(replica.service.answer(self.seen.plan.scope, relay, message)):
                self.seen.answered.add(relay)
        except _TROUBLE:
            return

    async def _wait(self) -> None:
        """Wait for the end on a stream, on another replica where the first is gone."""
        until = self._world.loop.time() + BOUND
        while self._world.loop.time() < until:
            replica = self._world.any()
            try:
                if await replica.ask(self._wait_at(replica), seconds=BOUND):
                    return
            except _TROUBLE:
                await asyncio.sleep(0.5)

    async def _wait_at(self, replica: Replica) -> bool:
        self._waits += 1
        who = f"wait {self._waits}"
        states = replica.service.readers.wait(self.seen.plan.key, 5.0)
        async with aclosing(states) as coming:
            async for state in coming:
                if state is not None:
                    self._note(who, state[0])
                    if state[0].ended:
                        self.seen.outcome = state[1] or self.seen.outcome
                        return True
        return self.seen.removed or self.seen.lost_sight or not self.seen.known

    async def _cancel(self) -> None:
        await asyncio.sleep(self._random.expovariate(0.5))
        replica = self._world.any()
        try:
            self.seen.cancelled = True
            await replica.ask(replica.service.cancel(self.seen.plan.key, "no more"))
        except (*_TROUBLE, IllegalMove):
            return

    async def _remove(self) -> None:
        await asyncio.sleep(self._random.expovariate(0.3))
        replica = self._world.any()
        self.seen.removed = True
        try:
            await replica.ask(replica.service.remove(self.seen.plan.key))
        except _TROUBLE:
            return
