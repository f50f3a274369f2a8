"""Which way a message takes: a table on the peeked envelope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.dialects.port import Dialect
from gateway.protocol.codes import INVALID_REQUEST, METHOD_NOT_FOUND
from gateway.protocol.envelope import Envelope, check_depth, is_batch, members, meta_of, peek, text_of
from gateway.protocol.eras import HANDSHAKE, STATELESS, allows_batch, is_stateless
from gateway.protocol.errors import Refusal, StoreAway
from gateway.protocol.headers import SESSION, VERSION
from gateway.service.service import TaskService
from gateway.session.about import Desk
from gateway.session.batch import take_batch
from gateway.session.begin import Beginning
from gateway.session.book import SessionBook, session_unknown
from gateway.session.exchange import Answer, Inbound, Outbound, Relay
from gateway.session.listening import Listening
from gateway.session.opening import Opening
from gateway.session.plain import forward, pass_on
from gateway.session.principal import Principals
from gateway.session.token import Sealer, Session
from gateway.session.visit import Served, Visit, find_channel
from gateway.tasks.call import is_relay_id
from gateway.tasks.policy import Policy

_VERSION: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_PROTOCOL_META: Final = "io.modelcontextprotocol/protocolVersion"


class Rooms(msgspec.Struct, frozen=True):
    """What the router sends messages to."""

    sealer: Sealer
    principals: Principals
    book: SessionBook
    opening: Opening
    beginning: Beginning
    desk: Desk
    listening: Listening
    service: TaskService


class Router:
    """Takes each request of each client the right way; raises `Refusal` for what has none."""

    def __init__(self, rooms: Rooms, served: Mapping[str, Served], dialect: Dialect) -> None:
        self._rooms = rooms
        self._served = served
        self.dialect = dialect

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
        visit = await self._visit(served, inbound)
        visit.envelope = envelope
        return await self._route(visit, envelope)

    async def take(self, visit: Visit, envelope: Envelope) -> Outbound:
        """Take one message of a client whose visit is known already (a pipe)."""
        visit.envelope = envelope
        return await self._route(visit, envelope)

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
        if session.link or session.upstream_id is None or await service.runs_for(visit.scope, session.tag):
            elsewhere = not service.runs_here(session.tag) and not session.link
            await self._end(session)
            if not elsewhere:
                await service.end_session(session.tag, lambda: self._close(visit))
            return Answer(204)
        outbound = await forward(visit)
        if isinstance(outbound, Relay) and outbound.reply.status < 300:
            await self._end(session)
        return outbound

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
        return Visit(served, inbound, session, scope, principal=principal)

    async def _route(self, visit: Visit, envelope: Envelope) -> Outbound:
        if envelope.kind == "response":
            relayed = is_relay_id(envelope.id)
            return await (self._rooms.desk.take_answer(visit, envelope) if relayed else pass_on(visit))
        if envelope.method == "initialize" and envelope.kind == "request" and visit.pipe is None:
            self._rooms.book.admit()
            visit.session = None
            return await self._rooms.opening.open(visit)
        check_version(visit)
        if _era(visit) == "stateless":
            return await pass_on(visit)
        if envelope.kind == "notification":
            return await self._notification(visit, envelope)
        about = self.dialect.read_about(envelope)
        if about is not None:
            return await self._rooms.desk.answer(visit, self.dialect, about)
        return await self._request(visit, envelope)

    async def _request(self, visit: Visit, envelope: Envelope) -> Outbound:
        if self.dialect.wants_task(envelope):
            policy = self._policy(visit, envelope)
            if policy.mode != "forbidden" and visit.scope is not None:
                return await self._rooms.beginning.begin(visit, self.dialect, policy, visit.scope)
        elif visit.served.plain_may_be_refused:
            policy = self._policy(visit, envelope)
            if policy.mode == "required" and policy.refuse_plain:
                raise Refusal(METHOD_NOT_FOUND, f"{_named(envelope)} must be called as a task")
        return await pass_on(visit)

    async def _notification(self, visit: Visit, envelope: Envelope) -> Outbound:
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

    def _policy(self, visit: Visit, envelope: Envelope) -> Policy:
        tool = text_of(members(envelope.params).get("name"))
        return visit.served.policies.find(envelope.method, tool)

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
        if visit.session is not None and visit.session.link and visit.served.upstream.links is not None:
            await visit.served.upstream.links.drop(visit.session.tag)
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
    if not _VERSION.fullmatch(version) or (visit.session is not None and visit.session.link):
        raise Refusal(
            INVALID_REQUEST, f"Bad Request: Unsupported protocol version: {version[:40]!r}", status=400
        )


def _era(visit: Visit) -> str:
    if visit.session is not None:
        return "handshake"
    version = visit.inbound.header(VERSION)
    if version is None:
        version = text_of(meta_of(visit.request.params).get(_PROTOCOL_META))
    return "stateless" if is_stateless(version) else "handshake"


def _named(envelope: Envelope) -> str:
    tool = text_of(members(envelope.params).get("name"))
    return f"Tool {tool}" if envelope.method == "tools/call" and tool else envelope.method
