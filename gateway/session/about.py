"""Requests about tasks: get, result, list, delete; and answers and cancels that concern one."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.dialects.port import About, Dialect
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from gateway.protocol.envelope import Envelope, peek, response, text_of
from gateway.protocol.errors import Refusal, StoreAway
from gateway.protocol.splice import drop_member
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.session.begin import check_rate
from gateway.session.exchange import Answer, Outbound, json_answer
from gateway.session.plain import pass_on
from gateway.session.streams import Dialects
from gateway.session.visit import Visit
from gateway.store.port import RateLimits
from gateway.tasks.model import Scope, Task, TaskKey

PAGE: Final = 50
_POLLERS: Final = 10_000
_BEHIND: Final = "upstream"


class Desk:
    """Answers what clients ask about tasks."""

    def __init__(
        self, service: TaskService, rates: RateLimits, dialects: Dialects, witness: Witness, clock: Clock
    ) -> None:
        self._service = service
        self._rates = rates
        self._dialects = dialects
        self._witness = witness
        self._clock = clock
        self._polled: OrderedDict[TaskKey, float] = OrderedDict()

    async def answer(self, visit: Visit, dialect: Dialect, about: About) -> Outbound:
        """Answer a request about tasks; ids unknown here go to an upstream that has tasks of its own."""
        scope = visit.scope
        if scope is None:
            return await self._not_ours(visit, dialect, about)
        await check_rate(self._rates, "get" if about.kind == "delete" else about.kind, scope)
        try:
            own = visit.session is not None and visit.session.own_tasks
            if own and about.kind == "list" and _is_behind(scope, about.cursor):
                return await pass_on(without_cursor(visit))
            result = await self._result(scope, dialect, about, own=own)
        except StoreAway as away:
            words = (
                f"Task store unavailable: {visit.request.method} cannot be answered now, try again later"
            )
            raise Refusal(INTERNAL_ERROR, words, {"retryAfter": 5}, retry_after=5) from away
        if result is None:
            return await self._not_ours(visit, dialect, about)
        return json_answer(response(visit.request.id, result))

    async def take_answer(self, visit: Visit, answer: Envelope) -> Outbound:
        """Take a client's response to a relayed server request; one that nobody waits for is dropped."""
        relay_id = text_of(answer.id)
        if visit.scope is not None and relay_id is not None:
            try:
                await self._service.answer(visit.scope, relay_id, answer.raw)
            except StoreAway as away:
                words = "Task store unavailable: the answer was not taken, send it again"
                raise Refusal(INTERNAL_ERROR, words, status=503, retry_after=5) from away
        return Answer(202)

    async def _result(self, scope: Scope, dialect: Dialect, about: About, *, own: bool) -> bytes | None:
        match about.kind:
            case "list":
                return await self._page(scope, dialect, about.cursor, behind=own)
            case "delete":
                removed = await self._service.remove(TaskKey(scope, about.task_id))
                return dialect.removed(about.task_id) if removed else None
            case "get":
                task = await self._service.get(TaskKey(scope, about.task_id))
                if task is None:
                    return None
                self._watch_pace(task)
                return self._dialects[task.dialect].described(task)
            case "result":
                found = await self._service.outcome(TaskKey(scope, about.task_id))
                if found is None:
                    return None
                return self._dialects[found[0].dialect].result(*found)

    async def _page(
        self, scope: Scope, dialect: Dialect, cursor: str | None, *, behind: bool
    ) -> bytes | None:
        """Return a page; `behind` says that the upstream has tasks of its own, which are listed after ours.

        `None` leaves the whole list to such an upstream.
        """
        after = None
        if cursor is not None:
            after = _open_cursor(scope, cursor)
            if after is None and behind:
                return None
            if after is None:
                raise dialect.bad_cursor()
        try:
            tasks, place = await self._service.page(scope, after, PAGE)
        except Refusal as refusal:
            raise dialect.bad_cursor() from refusal
        if behind and place is None:
            if not tasks and cursor is None:
                return None
            place = _BEHIND
        return dialect.listed(tasks, None if place is None else _cursor(scope, place))

    async def _not_ours(self, visit: Visit, dialect: Dialect, about: About) -> Outbound:
        if visit.session is not None and visit.session.own_tasks:
            return await pass_on(visit)
        if visit.scope is None and about.kind == "list":
            words = "Failed to list tasks: there is neither a session nor a credential to know the asker by"
            raise Refusal(INVALID_PARAMS, words)
        raise dialect.not_found(about)

    def _watch_pace(self, task: Task) -> None:
        now = self._clock.monotonic()
        before = self._polled.pop(task.key, None)
        if before is not None and task.poll_interval and (now - before) * 2000 < task.poll_interval:
            self._witness.polled_too_fast(task.key.scope.upstream)
        self._polled[task.key] = now
        if len(self._polled) > _POLLERS:
            self._polled.popitem(last=False)


def _cursor(scope: Scope, place: str) -> str:
    return base64.urlsafe_b64encode(f"{scope.tag}|{place}".encode()).decode().rstrip("=")


def _open_cursor(scope: Scope, cursor: str) -> str | None:
    """Return the place of a cursor; one that was made for another scope is as bad as garbage."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        text = ""
    tag, _, place = text.partition("|")
    return place if tag == scope.tag and place.isascii() and place.isalnum() else None


def _is_behind(scope: Scope, cursor: str | None) -> bool:
    return cursor is not None and _open_cursor(scope, cursor) == _BEHIND


def without_cursor(visit: Visit) -> Visit:
    """Return a visit that asks for the first page."""
    raw = drop_member(visit.request.raw, ("params", "cursor"))
    inbound = msgspec.structs.replace(visit.inbound, body=raw)
    return msgspec.structs.replace(visit, inbound=inbound, envelope=peek(raw))
