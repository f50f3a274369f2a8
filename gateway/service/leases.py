"""Leases: renewed for what runs here, taken over from replicas that died."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.errors import StoreAway
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.store.port import Claim, Store
from gateway.tasks import call
from gateway.tasks.model import Task

_log: Final = logging.getLogger("gateway.service")
_BATCH: Final = 100


class Leases:
    """The loop that keeps this replica's claims alive and ends the tasks of dead replicas (I5)."""

    def __init__(
        self, service: TaskService, store: Store, witness: Witness, clock: Clock, lease_ms: int
    ) -> None:
        self._service = service
        self._store = store
        self._witness = witness
        self._clock = clock
        self._lease_ms = lease_ms

    async def run(self) -> None:
        """Renew and recover, for ever, three times per lease."""
        while True:
            try:
                await self.tick()
            except StoreAway as away:
                _log.warning("leases could not be renewed: %s", away)
            await self._clock.sleep(self._lease_ms / 3000)

    async def tick(self) -> None:
        """Renew all leases of this replica once, then end what dead replicas left."""
        self._witness.tell_expired(self._clock.now_ms())
        await self._store.sweep()
        keys = [running.task.key for running in self._service.running]
        if keys:
            await self._store.renew(keys, self._service.replica, self._lease_ms)
            await self._look_after()
        while True:
            lost = await self._store.claim_lost(self._service.replica, self._lease_ms, _BATCH)
            for task in lost:
                await self._end(task)
            if len(lost) < _BATCH:
                return

    async def _look_after(self) -> None:
        """Stop the calls whose tasks are gone, have ended elsewhere, or belong to another replica now."""
        here = self._service.running
        found = await asyncio.gather(*(self._store.get(running.task.key) for running in here))
        for running, task in zip(here, found, strict=True):
            await running.compare(task)

    async def _end(self, task: Task) -> None:
        claim = Claim(task.owner, task.epoch)
        ended = await self._store.finish(task.key, claim, call.orphaned())
        if ended is not None:
            self._service.announcer.moved(ended, call.orphaned())
            self._witness.finished(ended, "lost")
