"""Clients' answers on their way to the upstream that asked, whichever replica runs the call (I6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from gateway.aio.spawn import Crew
from gateway.protocol.errors import GatewayError, StoreAway, UpstreamLost
from gateway.service.hand import Tools
from gateway.service.running import Running
from gateway.store.port import Bus, Command
from gateway.tasks import call
from gateway.tasks.model import Pending, Scope, Task, TaskKey

_log: Final = logging.getLogger("gateway.service")
# Within two leases a replica is back, or another has its tasks.
_TRIES: Final = 7


class Answers:
    """Takes answers out of the store and to the calls that wait; `running` are those of this replica.

    `crew` is waited for when the replica stops, `tidying` is not.
    """

    def __init__(
        self,
        replica: str,
        tools: Tools,
        bus: Bus,
        running: Mapping[TaskKey, Running],
        crew: Crew,
        tidying: Crew,
    ) -> None:
        self._replica = replica
        self._tools = tools
        self._bus = bus
        self._running = running
        self._crew = crew
        self._tidying = tidying

    def __repr__(self) -> str:
        return f"<Answers to {len(self._running)} calls>"

    async def answer(self, scope: Scope, relay_id: str, message: bytes) -> bool:
        """Pass a client's answer on to the upstream; tell whether anybody still waited for it.

        Once begun it is brought there, though its client leaves: half of it would be lost.
        """
        work = self._crew.spawn(self._bring(scope, relay_id, message), "answer")
        found = await asyncio.shield(work)
        if isinstance(found, GatewayError):
            raise found
        return found

    async def _bring(self, scope: Scope, relay_id: str, message: bytes) -> bool | GatewayError:
        try:
            return await self._take_answer(scope, relay_id, message)
        except GatewayError as wrong:
            return wrong

    async def _take_answer(self, scope: Scope, relay_id: str, message: bytes) -> bool:
        key = TaskKey.from_digest(scope, call.relayed_digest(relay_id))
        found = await self._tools.store.take_pending(key, relay_id, message)
        if found is None:
            return await self._answer_again(scope, relay_id, message)
        task, pending = found
        self._tools.announcer.moved(task)
        self._tools.witness.answered(task, pending.method)
        message = call.readdressed(message, pending.upstream_id)
        running = self._running.get(task.key)
        if running is None:
            if task.owner != self._replica:
                await self._answer_afar(task, pending, message)
            return task.owner != self._replica
        running.moved(task)
        if not task.pending:
            running.answered()
        try:
            await running.asking.answer(message, relay_id)
        except UpstreamLost as lost:
            _log.warning("an answer did not reach the upstream: %s", lost)
            running.unheard(lost)
        return True

    async def _answer_again(self, scope: Scope, relay_id: str, message: bytes) -> bool:
        """Take an answer whose first sending the store carried out too late to say so.

        The question still waits in memory then. Where it does not, nobody waits for the answer.
        """
        for running in self._running.values():
            pending = running.asking.waiting(relay_id) if running.task.key.scope == scope else None
            if pending is not None:
                sent = call.readdressed(message, pending.upstream_id)
                await running.asking.answer(sent, relay_id, untaken=True)
                return True
        return False

    async def _answer_afar(self, task: Task, pending: Pending, message: bytes) -> None:
        """Send an answer to the replica that runs the task.

        Where nobody hears it, it is with the task in the store: whoever takes that up brings it to the
        upstream, and a replica that only does not listen for a while is told again.
        """
        command = Command("answer", task.key, message, relay_id=pending.relay_id)
        if not await self._sent(task.owner, command):
            self._tidying.spawn(self._bring_later(task, command), "bring later")

    async def _sent(self, owner: str, command: Command) -> bool:
        try:
            return await self._bus.send(owner, command)
        except StoreAway:
            return False

    async def _bring_later(self, task: Task, command: Command) -> None:
        claim = (task.owner, task.epoch)
        for _ in range(_TRIES):
            await self._tools.clock.sleep(self._tools.limits.lease_ms / 3000)
            with suppress(StoreAway):
                found = await self._tools.store.get(task.key)
                if found is None or found.ended or (found.owner, found.epoch) != claim:
                    return
                if await self._sent(task.owner, command):
                    return
