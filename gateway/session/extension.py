"""Requests about tasks of the extension: get, update, cancel (SEP-2663)."""

from __future__ import annotations

from contextlib import suppress

from gateway.bridge.results import to_stateless
from gateway.dialects.port import About
from gateway.protocol.codes import METHOD_NOT_FOUND
from gateway.protocol.envelope import response
from gateway.protocol.errors import IllegalMove, Refusal
from gateway.protocol.stateless import TASKS_EXTENSION, missing_extension
from gateway.service.service import TaskService
from gateway.session.asked import Asked, answer_with
from gateway.session.begin import check_rate
from gateway.session.exchange import Outbound
from gateway.session.infos import Infos
from gateway.session.names import Names
from gateway.session.pace import Pace
from gateway.session.plain import forward
from gateway.store.port import RateLimits
from gateway.tasks.inputs import answers_of
from gateway.tasks.model import TaskKey


class Extension:
    """Answers what clients of the stateless era ask about tasks."""

    def __init__(
        self, service: TaskService, rates: RateLimits, names: Names, pace: Pace, infos: Infos
    ) -> None:
        self._service = service
        self._rates = rates
        self._names = names
        self._pace = pace
        self._infos = infos

    async def get(self, asked: Asked) -> Outbound:
        """Answer with the task, and its result, error or open questions inline."""
        about = self._read(asked)
        key = await self._key(asked, about)
        found = None if key is None else await self._service.outcome(key)
        if found is None:
            return await self._not_ours(asked, about)
        self._pace.note(found[0])
        return self._answer(asked, asked.extension.described(*found))

    async def update(self, asked: Asked) -> Outbound:
        """Take answers to open questions; keys that nothing waits for are ignored."""
        about = self._read(asked)
        key = await self._key(asked, about)
        task = None if key is None else await self._service.get(key)
        if key is None or task is None:
            return await self._not_ours(asked, about)
        for relay, message in answers_of(task, about.answers).items():
            await self._service.answer(key.scope, relay, message)
        return self._answer(asked, asked.extension.updated())

    async def cancel(self, asked: Asked) -> Outbound:
        """Cancel a task; one that has ended stays as it is, and the answer is the same."""
        about = self._read(asked)
        key = await self._key(asked, about)
        task = None if key is None else await self._service.get(key)
        if key is None or task is None:
            return await self._not_ours(asked, about)
        with suppress(IllegalMove):
            await self._service.cancel(key, "")
        return self._answer(asked, asked.extension.cancelled(task))

    def _read(self, asked: Asked) -> About:
        if not asked.declared:
            raise missing_extension(TASKS_EXTENSION)
        about = asked.extension.read_about(asked.visit.request)
        if about is None:
            raise Refusal(METHOD_NOT_FOUND, f"Method not found: {asked.visit.request.method}", status=404)
        return about

    async def _key(self, asked: Asked, about: About) -> TaskKey | None:
        scope = self._names.scope_of(asked.visit, about.task_id)
        if scope is None:
            return None
        await check_rate(self._rates, "get", scope)
        return TaskKey(scope, about.task_id)

    async def _not_ours(self, asked: Asked, about: About) -> Outbound:
        if await asked.passes_tasks():
            return await forward(asked.visit)
        raise asked.extension.not_found(about)

    def _answer(self, asked: Asked, result: bytes) -> Outbound:
        served = asked.visit.served
        stamped = to_stateless(asked.visit.request.method, result, self._infos.known(served.name))
        return answer_with(response(asked.ident, stamped))
