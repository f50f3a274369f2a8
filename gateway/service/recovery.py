"""Tasks whose replica was lost: taken up here, where they can be, else ended with words (I3, I5).

A task goes on in one of three ways: its call is *resumed* where the upstream still has what it said, made
*again* where its policy lets it be, or, where it surely was never made, *begun*. All else is lost: the
outcome is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.protocol.errors import GatewayError, StoreAway
from gateway.service.hand import TAKEN
from gateway.service.line import Turn
from gateway.service.order import Order
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.store.port import Claim, Left, Store
from gateway.tasks import call
from gateway.tasks.model import Task

_log: Final = logging.getLogger("gateway.service")
# A call that brings down whoever makes it must not go round for ever.
MOST_STARTS: Final = 5
_MOST_OWNERS: Final = 50
# Each may bring a whole request from the store.
_AT_ONCE: Final = 32


class Recovery:
    """Takes up what other replicas left. Without a `rebuild` everything is lost."""

    def __init__(self, service: TaskService, store: Store, witness: Witness) -> None:
        self._service = service
        self._store = store
        self._witness = witness
        self._few = asyncio.Semaphore(_AT_ONCE)

    def __repr__(self) -> str:
        return "<Recovery>"

    async def take_up(self, task: Task) -> None:
        """Go on with a task that has just been claimed, or end it."""
        try:
            async with self._few:
                await self._take_up(task)
        except StoreAway as away:
            # Its lease ends again, and somebody claims it again.
            _log.warning("%r could not be taken up: %s", task.key.task_id, away)

    async def _take_up(self, task: Task) -> None:
        if self._service.draining:
            # Who is about to stop leaves it to others.
            await self._store.renew([task.key], task.owner, 0)
            return
        claim = Claim(task.owner, task.epoch)
        left = await self._store.left(task.key, claim)
        if left is None:
            return
        order = await self._order(task, left)
        if isinstance(order, Order):
            await self._go_on(task, claim, order)
        else:
            await self._end(task, order)

    async def _go_on(self, task: Task, claim: Claim, order: Order) -> None:
        service = self._service
        began = service.clock.monotonic()
        held = await self._store.hold(task.key, claim, service.lease_ms)
        if held is None:
            return
        older = next((one for one in service.running if one.task.key == task.key), None)
        if older is not None:
            older.stop(TAKEN, recorded=True)
        goes_on = order.taken is not None
        turn = service.turns.hold(order) if goes_on else await service.turns.queue(order, anyway=True)
        self._witness.taken_up(held)
        if not goes_on:
            self._witness.taken_over(held, "begun")
        running = service.enter(held, order, turn if isinstance(turn, Turn) else None, began)
        service.readers.found(running)
        if await self._store.session_ended(task.session):
            await service.end_session(task.session, order.channel.close)

    async def _order(self, task: Task, left: Left) -> Order | str:
        if self._service.rebuild is None or not left.course:
            return ""
        if task.epoch > _MOST_OWNERS or left.starts >= MOST_STARTS:
            return "it was taken over too often"
        if task.started_at is None and not left.request:
            # It may have been sent all the same: a store that is away does not keep a call from starting.
            return ""
        try:
            return await self._service.rebuild(task, left)
        except StoreAway:
            raise
        except GatewayError as wrong:
            return f"its call cannot be found again: {wrong}"

    async def _end(self, task: Task, why: str) -> None:
        outcome = call.orphaned(why)
        ended = await self._store.finish(task.key, Claim(task.owner, task.epoch), outcome)
        if ended is not None:
            self._service.announcer.moved(ended, outcome)
            self._witness.left_behind(ended)
            self._witness.finished(ended, "lost")
