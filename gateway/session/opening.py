"""`initialize`: the upstream's answer with the tasks capability, under a session id of the gateway's."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from gateway.protocol import sse
from gateway.protocol.envelope import members, peek
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, SESSION, Headers, to_client, to_upstream
from gateway.session.advertise import Opened, advertise
from gateway.session.book import SessionBook
from gateway.session.exchange import Answer, Outbound, Relay, Stream, Wire, json_answer
from gateway.session.plain import unavailable
from gateway.session.streams import begun
from gateway.session.token import Sealer, Session
from gateway.session.visit import Visit
from gateway.upstream.port import Reply

_TRY_OTHERS: Final = (400, 404, 405)
_FAILED: Final = 400
MAX_ANSWER: Final = 4 * 1024 * 1024


class Opening:
    """Opens sessions."""

    def __init__(self, sealer: Sealer, book: SessionBook) -> None:
        self._sealer = sealer
        self._book = book

    async def open(self, visit: Visit) -> Outbound:
        """Send `initialize` to the upstream; raise `Refusal` where that cannot be reached."""
        upstream = visit.served.upstream
        tag = secrets.token_hex(16)
        headers = to_upstream(visit.inbound.headers)
        raw = visit.request.raw
        began = time.monotonic()
        outcome = "lost"
        try:
            if upstream.prefers_links:
                if upstream.links is None:
                    raise UpstreamLost("it offers no way to open a session")
                _, first = await upstream.links.open(tag, raw, headers)
                outcome = "ok"
                crossed = None if "result" in members(first) else await self._cross(visit, tag, headers)
                return crossed or self._over_link(visit, tag, first)
            if upstream.http is None:
                raise UpstreamLost("it offers no way to open a session")
            reply = await upstream.http.forward("POST", headers, raw)
            outcome = "ok" if reply.status < _FAILED else "error"
            if reply.status in _TRY_OTHERS:
                return await self._fall_back(visit, tag, reply, headers)
            return await self._over_http(visit, tag, reply, headers)
        except UpstreamLost as lost:
            raise unavailable(lost) from lost
        finally:
            visit.served.called("initialize", outcome, time.monotonic() - began)

    async def _fall_back(self, visit: Visit, tag: str, reply: Reply, headers: Headers) -> Outbound:
        body = await reply.read(MAX_ANSWER)
        crossed = await self._cross(visit, tag, headers)
        if crossed is not None:
            return crossed
        upstream = visit.served.upstream
        found = None
        if upstream.links is not None:
            found = await upstream.fall_back(tag, visit.request.raw, headers)
        if found is None:
            return Answer(reply.status, body, to_client(reply.headers))
        return self._over_link(visit, tag, found[1])

    async def _cross(self, visit: Visit, tag: str, headers: Headers) -> Outbound | None:
        """Open a session with an upstream that knows no `initialize`; `None` where it is not such a one."""
        crossing = visit.served.crossing
        try:
            if await crossing.era(headers) != "stateless":
                return None
        except UpstreamLost:
            return None
        _, first = await crossing.links.open(tag, visit.request.raw, headers)
        return self._over_link(visit, tag, first, crossed=True)

    def _over_link(self, visit: Visit, tag: str, first: bytes, *, crossed: bool = False) -> Outbound:
        opened = advertise(first, visit)
        if opened is None:
            return json_answer(first)
        session = self._session(visit, tag, opened, link=True, upstream_id=None)
        session = msgspec.structs.replace(session, crossed=crossed)
        return json_answer(opened.message, headers=[(SESSION, self._sealer.seal(session))])

    async def _over_http(self, visit: Visit, tag: str, reply: Reply, headers: Headers) -> Outbound:
        upstream_id = reply.header(SESSION)
        kind = reply.header("content-type") or ""
        if reply.status != 200:
            return Relay(reply, to_client(reply.headers))
        if kind.startswith(EVENT_STREAM):
            return await self._over_events(visit, tag, reply)
        body = await reply.read(MAX_ANSWER)
        opened = advertise(body, visit)
        if opened is None:
            crossed = await self._cross(visit, tag, headers)
            return crossed or Answer(200, body, to_client(reply.headers))
        session = self._session(visit, tag, opened, link=False, upstream_id=upstream_id)
        kept = [*to_client(reply.headers), (SESSION, self._sealer.seal(session))]
        return Answer(200, opened.message, kept)

    async def _over_events(self, visit: Visit, tag: str, reply: Reply) -> Outbound:
        """Read up to the response, whose content decides the session id in the headers."""
        parser = sse.Parser(MAX_ANSWER)
        earlier: list[Wire] = []
        chunks = reply.chunks()
        async for chunk in chunks:
            events = _feed(parser, chunk)
            for event in events:
                opened = self._opened_by(event.data, visit)
                if opened is None:
                    earlier.append(Wire(event.data, event.id))
                    continue
                session = self._session(visit, tag, opened, False, reply.header(SESSION))
                earlier.append(Wire(opened.message, event.id))
                headers = [(SESSION, self._sealer.seal(session))]
                return Stream(await begun(_ended(earlier, reply)), [*_kept(reply), *headers])
        crossed = await self._cross(visit, tag, to_upstream(visit.inbound.headers))
        if crossed is not None:
            await reply.close()
            return crossed
        return Stream(await begun(_ended(earlier, reply)), _kept(reply))

    def _opened_by(self, data: bytes, visit: Visit) -> Opened | None:
        try:
            if peek(data).kind != "response":
                return None
        except Refusal:
            return None
        return advertise(data, visit)

    def _session(
        self, visit: Visit, tag: str, opened: Opened, link: bool, upstream_id: str | None
    ) -> Session:
        session = Session(
            tag=tag,
            upstream=visit.served.name,
            upstream_id=upstream_id,
            link=link,
            version=opened.version,
            own_tasks=opened.own_tasks,
            initialize=visit.request.raw if link else None,
            principal=visit.principal,
        )
        self._book.note(session)
        return session


def _kept(reply: Reply) -> Headers:
    return [(name, content) for name, content in to_client(reply.headers) if name != "content-type"]


def _feed(parser: sse.Parser, chunk: bytes) -> list[sse.Event]:
    try:
        return parser.feed(chunk)
    except ValueError as wrong:
        raise UpstreamLost(f"its event stream is broken ({wrong})") from None


async def _ended(wires: list[Wire], reply: Reply) -> AsyncGenerator[Wire | bytes, None]:
    try:
        yield b""
        for wire in wires:
            yield wire
    finally:
        await reply.close()
