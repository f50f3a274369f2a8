"""Which way a message takes: a table on the peeked envelope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.dialects.choose import asker, reader
from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.envelope import Envelope, check_depth, is_batch, members, peek, text_of
from gateway.protocol.eras import HANDSHAKE, STATELESS, TASKS_IN_CORE, allows_batch
from gateway.protocol.errors import Refusal, StoreAway
from gateway.protocol.headers import SESSION, VERSION
from gateway.protocol.stateless import opens_stateless
from gateway.service.service import TaskService
from gateway.session.about import Desk
from gateway.session.batch import take_batch
from gateway.session.book import SessionBook, session_unknown
from gateway.session.calling import Calling
from gateway.session.exchange import Answer, Inbound, Outbound, Relay
from gateway.session.hearing import Hearing
from gateway.session.listening import Listening
from gateway.session.names import Names
from gateway.session.opening import Opening
from gateway.session.plain import forward, pass_on
from gateway.session.principal import Principals
from gateway.session.stateless import Stateless
from gateway.session.token import Sealer, Session
from gateway.session.tools import list_tools, lists_tools
from gateway.session.visit import Served, Visit, find_channel, is_known, links_of
from gateway.tasks.call import is_relay_id

_VERSION: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TOO_MANY: Final = 429


class Rooms(msgspec.Struct, frozen=True):
    """What the router sends messages to."""

    sealer: Sealer
    principals: Principals
    book: SessionBook
    opening: Opening
    names: Names
    calling: Calling
    hearing: Hearing
    desk: Desk
    stateless: Stateless
    listening: Listening
    service: TaskService


class Router:
    """Takes each request of each client the right way; raises `Refusal` for what has none."""

    def __init__(self, rooms: Rooms, served: Mapping[str, Served]) -> None:
        self._rooms = rooms
        self._served = served

    async def post(self, inbound: Inbound) -> Outbound:
        """Take one message."""
        served = self._served[inbound.upstream]
        body = inbound.body
        if is_batch(body):
            inbound.method = "batch"
            return await self._batch(served, inbound)
        inbound.method = "unreadable"
        check_depth(body)
        envelope = peek(body)
        inbound.method, inbound.request_id = envelope.method or "response", envelope.id
        in_session = inbound.header(SESSION) is not None
        if opens_stateless(envelope, inbound.header(VERSION), in_session=in_session):
            return await self._rooms.stateless.take(self._stateless_visit(served, inbound, envelope))
        visit = await self._visit(served, inbound)
        visit.envelope = envelope
        return await self._route(visit, envelope)

    async def take(self, visit: Visit, envelope: Envelope) -> Outbound:
        """Take one message of a client whose visit is known already (a pipe)."""
        visit.envelope = envelope
        return await self._route(visit, envelope)

    async def take_stateless(self, visit: Visit, envelope: Envelope) -> Outbound:
        """Take one request of the stateless era that came on a pipe."""
        visit.envelope = envelope
        return await self._rooms.stateless.take(visit)

    async def get(self, inbound: Inbound) -> Outbound:
        """Open the session's stream, or resume one."""
        inbound.method = "stream"
        visit = await self._visit(self._served[inbound.upstream], inbound)
        return await self._rooms.listening.open(visit)

    async def delete(self, inbound: Inbound) -> Outbound:
        """End the client's session; the upstream's ends with its last running task."""
        inbound.method = "delete"
        visit = await self._visit(self._served[inbound.upstream], inbound)
        session, service = visit.session, self._rooms.service
        if session is None:
            return await forward(visit)
        if session.link or session.upstream_id is None or await self._runs(visit, session):
            elsewhere = not service.runs_here(session.tag) and not session.link
            await self._end(session)
            if not elsewhere:
                await service.end_session(session.tag, lambda: self._close(visit))
            return Answer(204)
        outbound = await forward(visit)
        if isinstance(outbound, Relay) and outbound.reply.status < 300:
            await self._end(session)
        return outbound

    async def _runs(self, visit: Visit, session: Session) -> bool:
        scopes = {visit.scope, self._rooms.names.new(visit)[0]}
        return any([await self._rooms.service.runs_for(scope, session.tag) for scope in scopes])

    async def _end(self, session: Session) -> None:
        self._rooms.service.listeners.end(session.tag)
        await self._rooms.book.end(session)
        await self._rooms.service.tell_session_ended(session.tag)

    async def _visit(self, served: Served, inbound: Inbound) -> Visit:
        token = inbound.header(SESSION)
        principals = self._rooms.principals
        principal = principals.principal_of(inbound)
        session = None
        if token is not None:
            session = self._rooms.sealer.open(token)
            if session is None or session.upstream != served.name:
                raise session_unknown()
            if not principals.may_use(session, principal):
                raise session_unknown()
            await self._rooms.book.touch(session)
        tag = session.tag if session is not None else None
        scope = principals.scope_of(served.name, served.scope_mode, principal, tag)
        known = is_known(served, principal)
        return Visit(served, inbound, session, scope, principal=principal, known=known)

    def _stateless_visit(self, served: Served, inbound: Inbound, envelope: Envelope) -> Visit:
        """Return the visit of a request that carries all there is to know: its era has no sessions."""
        principals = self._rooms.principals
        principal = principals.principal_of(inbound)
        scope = principals.scope_of(served.name, served.scope_mode, principal, None)
        known = is_known(served, principal)
        return Visit(served, inbound, None, scope, envelope, principal=principal, known=known)

    async def _route(self, visit: Visit, envelope: Envelope) -> Outbound:
        if envelope.kind == "response":
            if is_relay_id(envelope.id):
                return await self._rooms.desk.take_answer(visit, envelope)
            elsewhere = await self._rooms.hearing.answer(visit, envelope)
            return Answer(202) if elsewhere else await pass_on(visit)
        if envelope.method == "initialize" and envelope.kind == "request" and visit.pipe is None:
            self._rooms.book.admit()
            visit.session = None
            return await self._rooms.opening.open(visit)
        check_version(visit)
        if envelope.kind == "notification":
            return await self._notification(visit, envelope)
        if visit.version < TASKS_IN_CORE:
            return await self._request(visit, envelope)
        try:
            return await self._request(visit, envelope)
        except Refusal as refusal:
            # Clients of the official Python package end the whole session at any status but 404.
            if refusal.status == _TOO_MANY and not self._speaks_a(visit, envelope):
                refusal.status = 200
            raise

    async def _request(self, visit: Visit, envelope: Envelope) -> Outbound:
        found = reader(visit.served.dialects, visit.version, envelope)
        if found is not None:
            return await self._rooms.desk.answer(visit, *found)
        if lists_tools(visit):
            return await list_tools(visit)
        if envelope.method == "tools/call" or envelope.method in visit.served.taskable:
            return await self._rooms.calling.take(visit)
        return await pass_on(visit)

    def _speaks_a(self, visit: Visit, envelope: Envelope) -> bool:
        dialect = asker(visit.served.dialects, visit.version, envelope)
        return dialect is not None and dialect.name == "a"

    async def _notification(self, visit: Visit, envelope: Envelope) -> Outbound:
        if envelope.method == "notifications/cancelled" and visit.session is not None:
            waited_for = bytes(members(envelope.params).get("requestId") or b"")
            if self._rooms.desk.stop_waiting(visit, waited_for):
                return Answer(202)
            if await self._rooms.hearing.cancel(visit, envelope):
                return Answer(202)
        # Without a session request ids of different clients are not told apart.
        asker = visit.scope if visit.session is not None else None
        if envelope.method == "notifications/cancelled" and asker is not None:
            params = members(envelope.params)
            request_id = bytes(params.get("requestId") or b"")
            reason = text_of(params.get("reason")) or ""
            try:
                found = await self._rooms.service.cancel_request(asker, visit.tag, request_id, reason)
            except StoreAway:
                found = False
            if found:
                return Answer(202)
        return await pass_on(visit)

    async def _batch(self, served: Served, inbound: Inbound) -> Outbound:
        visit = await self._visit(served, inbound)
        version = visit.session.version if visit.session is not None else inbound.header(VERSION)
        if not allows_batch(version):
            raise Refusal(INVALID_REQUEST, f"Invalid Request: batches are not part of protocol {version}")
        check_depth(inbound.body)
        if visit.session is not None and visit.session.link:
            return await take_batch(visit, self._route)
        return await forward(visit)

    async def _close(self, visit: Visit) -> None:
        links = None if visit.session is None else links_of(visit.served, visit.session)
        if visit.session is not None and visit.session.link and links is not None:
            await links.drop(visit.session.tag)
            return
        if visit.session is not None and visit.session.upstream_id is not None:
            channel = await find_channel(visit)
            if channel is not None:
                await channel.close()


def check_version(visit: Visit) -> None:
    """Raise `Refusal` for a version header that is no version (2025-11-25 transports)."""
    version = visit.inbound.header(VERSION)
    if version is None or version in HANDSHAKE or version in STATELESS:
        return
    # A version newer than the gateway is the upstream's to judge, unless the session has another.
    if not _VERSION.fullmatch(version) or (visit.session is not None and version != visit.version):
        raise Refusal(
            INVALID_REQUEST, f"Bad Request: Unsupported protocol version: {version[:40]!r}", status=400
        )
