"""Requests about tasks of the handshake era, and answers that concern one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, cast

import msgspec

from gateway.dialects.choose import described_by, reader
from gateway.dialects.port import About, Dialect
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from gateway.protocol.envelope import Envelope, dump, peek, refusal_response, response, text_of
from gateway.protocol.errors import IllegalMove, Refusal, StoreAway
from gateway.protocol.splice import drop_member, put_together, take_apart
from gateway.service.hub import State
from gateway.service.service import TaskService
from gateway.service.waits import Wait
from gateway.session.begin import check_rate, store_away
from gateway.session.cursors import BEHIND, cursor_of, open_cursor
from gateway.session.exchange import (
    KEEP_ALIVE,
    KEEP_ALIVE_SECONDS,
    Answer,
    Outbound,
    Stream,
    Wire,
    json_answer,
)
from gateway.session.names import Names
from gateway.session.pace import Pace
from gateway.session.plain import pass_on
from gateway.session.resuming import priming, read_wait
from gateway.session.streams import begun
from gateway.session.visit import Visit
from gateway.store.port import RateKind, RateLimits
from gateway.tasks.model import Outcome, Scope, Task, TaskKey

PAGE: Final = 50
_RATES: Final[dict[str, RateKind]] = {"result": "result", "list": "list"}


class Desk:
    """Answers what clients ask about tasks."""

    def __init__(self, service: TaskService, rates: RateLimits, names: Names, pace: Pace) -> None:
        self._service = service
        self._rates = rates
        self._names = names
        self._pace = pace

    async def answer(self, visit: Visit, dialect: Dialect, about: About) -> Outbound:
        """Answer a request about tasks; ids unknown here go to an upstream that has tasks of its own."""
        scope = self._scope(visit, about)
        if scope is None:
            return await self._not_ours(visit, dialect, about)
        await check_rate(self._rates, _RATES.get(about.kind, "get"), scope)
        try:
            own = visit.session is not None and visit.session.own_tasks
            if own and about.kind == "list" and _is_behind(scope, about.cursor):
                return await pass_on(without_cursor(visit))
            outbound = await self._answer(visit, scope, dialect, about)
        except StoreAway as away:
            raise store_away(f"{visit.request.method} cannot be answered now") from away
        return outbound or await self._not_ours(visit, dialect, about)

    async def resume(self, visit: Visit, ident: str) -> Stream:
        """Go on with a stream that waited for a result; raise `Refusal` where the event id names none."""
        envelope = read_wait(ident)
        found = reader(visit.served.dialects, visit.version, envelope)
        if found is None or found[1].kind != "result":
            raise Refusal(INVALID_PARAMS, "Last-Event-ID is not an event id of this server", status=400)
        visit.envelope = envelope
        try:
            outbound = await self.answer(visit, *found)
        except Refusal as refusal:
            return Stream(_once(refusal_response(envelope.id, refusal)))
        return Stream(_once(outbound.body)) if isinstance(outbound, Answer) else cast(Stream, outbound)

    async def take_answer(self, visit: Visit, answer: Envelope) -> Outbound:
        """Take a client's response to a relayed server request; one that nobody waits for is dropped."""
        relay_id = text_of(answer.id)
        scope = None if relay_id is None else self._names.scope_of_relay(visit, relay_id)
        if scope is not None and relay_id is not None:
            try:
                await self._service.answer(scope, relay_id, answer.raw)
            except StoreAway as away:
                words = "Task store unavailable: the answer was not taken, send it again"
                raise Refusal(INTERNAL_ERROR, words, status=503, retry_after=5) from away
        return Answer(202)

    def stop_waiting(self, visit: Visit, request_id: bytes) -> bool:
        """End a request for a result that its client has cancelled; tell whether it waited here."""
        return self._service.waits.stop(visit.tag, request_id)

    def _scope(self, visit: Visit, about: About) -> Scope | None:
        if about.kind == "list":
            return visit.scope if visit.known or visit.session is not None else None
        return self._names.scope_of(visit, about.task_id)

    async def _answer(self, visit: Visit, scope: Scope, dialect: Dialect, about: About) -> Outbound | None:
        """Return the answer, `None` where there is no such task."""
        key = TaskKey(scope, about.task_id)
        match about.kind:
            case "list":
                return self._respond(visit, await self._page(visit, scope, dialect, about.cursor))
            case "delete":
                removed = await self._service.remove(key)
                return self._respond(visit, dialect.removed(about.task_id) if removed else None)
            case "cancel":
                return self._respond(visit, await self._cancel(dialect, key))
            case "get":
                return self._respond(visit, await self._get(visit, dialect, key))
            case "result":
                return await self._result(visit, dialect, key)
            case "update":
                return None

    def _respond(self, visit: Visit, result: bytes | None) -> Outbound | None:
        return None if result is None else json_answer(response(visit.request.id, result))

    async def _get(self, visit: Visit, dialect: Dialect, key: TaskKey) -> bytes | None:
        task = await self._service.get(key)
        if task is None:
            return None
        self._pace.note(task)
        speaks = described_by(visit.served.dialects, task, dialect)
        shown = speaks.described(task, None)
        if speaks is dialect or task.session == visit.tag:
            return shown
        # Another session's, perhaps of a client that was upgraded since: in the words of both dialects.
        return put_together({**take_apart(shown), **take_apart(dialect.described(task, None))})

    async def _cancel(self, dialect: Dialect, key: TaskKey) -> bytes | None:
        try:
            task = await self._service.cancel(key, "")
        except IllegalMove:
            ended = await self._service.get(key)
            if ended is None:
                return None
            raise dialect.ended(ended) from None
        return None if task is None else dialect.cancelled(task)

    async def _result(self, visit: Visit, dialect: Dialect, key: TaskKey) -> Outbound | None:
        """Answer at once where the task has ended; else wait for its end where the dialect has that."""
        ident = visit.request.id or dump(None)
        asks = visit.inbound.accepts_events
        wait = self._service.waits.begin(visit.tag, ident, key, asks=asks)
        begins = False
        try:
            found = await self._service.outcome(key)
            if found is None:
                return None
            speaks = described_by(visit.served.dialects, found[0], dialect)
            if found[0].ended or not speaks.manner.waits:
                return json_answer(speaks.result(ident, *found))
            begins = True
        finally:
            if not begins:
                self._service.waits.end(wait)
        waiting = await begun(self._wait(visit, speaks, wait))
        if asks:
            return Stream(waiting)
        async with aclosing(waiting):
            async for item in waiting:
                if isinstance(item, Wire) and item.last:
                    return json_answer(item.message)
        return json_answer(refusal_response(ident, Refusal(INTERNAL_ERROR, "Request cancelled")))

    async def _wait(self, visit: Visit, speaks: Dialect, wait: Wait) -> AsyncGenerator[Wire | bytes, None]:
        """Yield what the task wants of its client, and at the end its result (2025-11-25 tasks 5.4)."""
        ident = visit.request.id or dump(None)
        asks = visit.inbound.accepts_events
        last: State | None = None
        try:
            yield b""
            first = priming(visit.request) if asks else None
            wait.resumable = first is not None
            yield first or KEEP_ALIVE
            states = self._service.readers.wait(wait.key, KEEP_ALIVE_SECONDS, wait.bell, asks=asks)
            async with aclosing(states):
                async for state in states:
                    if state is None:
                        yield KEEP_ALIVE
                    last = state or last
                    if last is None:
                        continue
                    if last[0].ended:
                        yield Wire(_result(speaks, ident, *last), last=True)
                        return
                    for news in await self._service.waits.questions(wait, last[0]) if asks else ():
                        yield Wire(speaks.relayed(last[0].key.task_id, news.message))
            if not wait.bell.stopped:
                gone = speaks.not_found(About("result", wait.key.task_id))
                yield Wire(refusal_response(ident, gone), last=True)
        finally:
            self._service.waits.end(wait)

    async def _page(self, visit: Visit, scope: Scope, dialect: Dialect, cursor: str | None) -> bytes | None:
        """Return a page; an upstream's own tasks are listed after ours.

        `None` leaves the whole list to such an upstream.
        """
        behind = visit.session is not None and visit.session.own_tasks
        after = None
        if cursor is not None:
            after = open_cursor(scope, cursor)
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
            place = BEHIND
        return _lister(visit, dialect, tasks).listed(
            tasks, None if place is None else cursor_of(scope, place)
        )

    async def _not_ours(self, visit: Visit, dialect: Dialect, about: About) -> Outbound:
        # A stream that is taken up again waited for a task of ours.
        if visit.session is not None and visit.session.own_tasks and visit.inbound.verb != "GET":
            return await pass_on(visit)
        if about.kind == "list":
            words = "Failed to list tasks: there is neither a session nor a credential to know the asker by"
            raise Refusal(INVALID_PARAMS, words)
        raise dialect.not_found(about)


async def _once(message: bytes) -> AsyncGenerator[Wire | bytes, None]:
    yield Wire(message, last=True)


def _result(speaks: Dialect, ident: bytes, task: Task, outcome: Outcome | None) -> bytes:
    try:
        return speaks.result(ident, task, outcome)
    except Refusal as refusal:
        return refusal_response(ident, refusal)


def _lister(visit: Visit, dialect: Dialect, tasks: list[Task]) -> Dialect:
    """Return the dialect of a list: the one that this session itself has asked for tasks in."""
    asked_in_a = any(task.dialect == "a" and task.session == visit.tag for task in tasks)
    return visit.served.dialects["a"] if asked_in_a else dialect


def _is_behind(scope: Scope, cursor: str | None) -> bool:
    return cursor is not None and open_cursor(scope, cursor) == BEHIND


def without_cursor(visit: Visit) -> Visit:
    """Return a visit that asks for the first page."""
    raw = drop_member(visit.request.raw, ("params", "cursor"))
    inbound = msgspec.structs.replace(visit.inbound, body=raw)
    return msgspec.structs.replace(visit, inbound=inbound, envelope=peek(raw))
