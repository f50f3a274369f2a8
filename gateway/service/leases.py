"""Leases: renewed for what runs here, taken over from replicas that died."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.protocol.errors import StoreAway
from gateway.service.recovery import Recovery
from gateway.service.running import Running
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.store.port import Claim, SharedClock, Store

_log: Final = logging.getLogger("gateway.service")
_BATCH: Final = 100
# How much later than others a replica may find its way back to a store that was away.
_RETURN_SECONDS: Final = 2.0


class Leases:
    """The loop that keeps this replica's claims alive and takes up the tasks of dead replicas (I5).

    It takes nothing over before it has been in contact with the store for a whole lease and a bit: after
    an outage for all, owners that live must have had the time to say so.
    """

    def __init__(
        self, service: TaskService, store: Store, witness: Witness, clock: SharedClock, lease_ms: int
    ) -> None:
        self._service = service
        self._store = store
        self._witness = witness
        self._clock = clock
        self._lease_ms = lease_ms
        self._recovery = Recovery(service, store, witness)
        self._claiming = asyncio.Lock()
        self._contact: float | None = None
        self._seen = clock.monotonic()
        service.on_orphans = self.claim

    def __repr__(self) -> str:
        state = "no contact" if self._contact is None else f"in contact since {self._contact:.0f}"
        return f"<Leases {state}>"

    async def run(self) -> None:
        """Renew and recover, for ever, three times per lease."""
        away_before = False
        while True:
            try:
                await self.tick()
            except StoreAway as away:
                level = logging.DEBUG if away_before else logging.WARNING
                _log.log(level, "leases could not be renewed: %s", away)
                away_before = True
            else:
                if away_before:
                    _log.warning("leases are renewed again")
                away_before = False
            await self._clock.sleep(self._lease_ms / 3000)

    async def tick(self) -> None:
        """Renew all leases of this replica once, then take up what dead replicas left."""
        self._witness.tell_expired(self._clock.now_ms())
        began = self._clock.monotonic()
        try:
            await self._clock.look()
            await self._store.sweep()
            await self._renew(began)
        except StoreAway:
            self._contact = None
            raise
        self._note_contact(began)
        await self.claim()

    async def claim(self) -> None:
        """Take up what dead replicas left, or living ones let go of."""
        async with self._claiming:
            while self._may_claim():
                lost = await self._store.claim_lost(self._service.replica, self._lease_ms, _BATCH)
                for task in lost:
                    self._service.expect(task, self._recovery.take_up(task))
                if len(lost) < _BATCH:
                    return

    def _may_claim(self) -> bool:
        if self._contact is None or self._service.draining:
            return False
        return self._clock.monotonic() - self._contact >= self._lease_ms / 1000 + _RETURN_SECONDS

    def _note_contact(self, began: float) -> None:
        """A gap in the contact begins it anew: this process was stopped, or the store hung."""
        now = self._clock.monotonic()
        lease = self._lease_ms / 1000
        if self._contact is None:
            self._contact = began
        if now - began > lease / 2 or began - self._seen > lease + _RETURN_SECONDS:
            self._contact = now
        self._seen = now

    async def _renew(self, began: float) -> None:
        here = self._service.running
        keys = list(dict.fromkeys((*(running.task.key for running in here), *self._service.coming)))
        if not keys:
            await self._store.ping()
            return
        await self._store.renew(keys, self._service.replica, self._lease_ms)
        for running in here:
            # Where the lease had ended by then, another may be about to take the task.
            if running.tenure.holds:
                running.tenure.renew(began)
        await asyncio.gather(*(self._look_after(running) for running in here))

    async def _look_after(self, running: Running) -> None:
        """Stop the call if its task is gone, has ended elsewhere, or belongs to another replica now."""
        if not running.tenure.holds:
            await self._take_hold(running)
        await running.compare(await self._store.get(running.task.key))

    async def _take_hold(self, running: Running) -> None:
        began = self._clock.monotonic()
        claim = Claim(self._service.replica, running.epoch)
        held = await self._store.hold(running.task.key, claim, self._lease_ms)
        if held is not None:
            running.tenure.renew(began)
