"""Clients' answers on their way to the upstream that asked, whichever replica runs the call (I6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from gateway.aio.spawn import Crew
from gateway.protocol.errors import GatewayError, IllegalMove, StoreAway, UpstreamLost
from gateway.service.hand import Tools
from gateway.service.running import Running
from gateway.store.port import Bus, Claim, Command
from gateway.tasks import call
from gateway.tasks.model import Pending, Scope, Task, TaskKey

_log: Final = logging.getLogger("gateway.service")


class Answers:
    """Takes answers out of the store and to the calls that wait; `running` are those of this replica."""

    def __init__(
        self, replica: str, tools: Tools, bus: Bus, running: Mapping[TaskKey, Running], crew: Crew
    ) -> None:
        self._replica = replica
        self._tools = tools
        self._bus = bus
        self._running = running
        self._crew = crew

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
        found = await self._tools.store.take_pending(key, relay_id)
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
        """Send an answer to the replica that runs the task; where nobody hears it, it was not taken."""
        command = Command("answer", task.key, message, relay_id=pending.relay_id)
        try:
            heard = await self._bus.send(task.owner, command)
        except StoreAway:
            heard = False
        if not heard:
            with suppress(IllegalMove):
                await self._tools.store.ask(task.key, Claim(task.owner, task.epoch), pending)
            raise StoreAway("the replica that runs the task cannot be reached")
