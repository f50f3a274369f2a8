"""Which era an upstream speaks: asked once, remembered, asked again where the answer proves wrong.

2026-07-28 versioning and transports, "Backward Compatibility": `server/discover` answered by its
result or a modern error is the stateless era; anything else is the handshake era.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final

from gateway.aio.spawn import Crew
from gateway.bridge.discover import is_discovery, is_modern_error
from gateway.bridge.requests import to_stateless
from gateway.crossing.answers import read_answer
from gateway.crossing.keys import handshake_headers, posting
from gateway.crossing.port import Era
from gateway.protocol.canonical import items
from gateway.protocol.codes import UNSUPPORTED_VERSION
from gateway.protocol.envelope import members, peek, request, text_of, value
from gateway.protocol.eras import STATELESS
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import CHALLENGE, Headers
from gateway.protocol.stateless import TASKS_EXTENSION, request_headers
from gateway.upstream.auto import CommandUpstream
from gateway.upstream.port import HttpUpstream, LinkUpstream, Upstream

_log = logging.getLogger("gateway.crossing")

_IDENT: Final = b'"gateway-discover"'
_SECONDS: Final = 5.0
_CREDENTIALS: Final = (401, 403, 407)
_TELLING_NOTHING: Final = (401, 403, 407, 408, 425, 429, 502, 503, 504)


class EraProbe:
    """Asks one upstream, for all callers at once. `seconds` bounds the wait for an answer.

    With an era that is `fixed` the answer does not matter, but for the extensions that it tells of.
    """

    def __init__(
        self, upstream: Upstream, *, info: bytes, seconds: float = _SECONDS, fixed: Era | None = None
    ) -> None:
        self._upstream = upstream
        self._seconds = seconds
        bare = request(_IDENT, "server/discover", None)
        self._message = to_stateless(bare, STATELESS[-1], b"{}", info, None)
        self._fixed: Era | None = fixed
        self._known: Era | None = "handshake" if fixed == "handshake" else None
        self.runs_tasks = False
        self._asking: asyncio.Task[Era | GatewayError] | None = None
        self._crew = Crew("era")

    def __repr__(self) -> str:
        return f"<EraProbe {self._upstream.name} {self._known or 'unknown'}>"

    async def era(self, headers: Headers) -> Era:
        """Return the era; raise `UpstreamLost` where the upstream cannot be asked, which is not kept.

        Also `Refusal`, where it is a child process and there are as many as there may be.
        """
        while self._known is None:
            asking, mine = self._asking, self._asking is None
            if asking is None:
                asking = self._asking = self._crew.spawn(self._ask(headers), "ask")
                asking.add_done_callback(lambda _: self._answered())
            outcome = await asyncio.shield(asking)
            if not isinstance(outcome, GatewayError):
                return outcome
            # What another's credentials were answered says nothing of these.
            if mine or not _is_personal(outcome):
                raise outcome
        return self._known

    def forget(self) -> None:
        """Ask again the next time: another server stands there, it seems."""
        if self._known is not None and self._known != self._fixed:
            _log.info("upstream %s does not speak the %s era any more", self._upstream.name, self._known)
            self._known = None

    async def close(self) -> None:
        """End what is being asked."""
        await self._crew.close()

    def _answered(self) -> None:
        self._asking = None

    async def _ask(self, headers: Headers) -> Era | GatewayError:
        upstream = self._upstream
        era: Era = "handshake"
        try:
            if isinstance(upstream, CommandUpstream):
                era = await self._over_child(upstream.links, headers)
            elif upstream.http is not None and not upstream.prefers_links:
                era = await self._over_http(upstream.http, headers)
        except GatewayError as wrong:
            return wrong
        if self._fixed is not None:
            era = self._fixed
        _log.info("upstream %s speaks the %s era", upstream.name, era)
        self._known = era
        return era

    def _read(self, answer: bytes) -> Era:
        self.runs_tasks = _runs_tasks(answer)
        return era_of(answer)

    async def _over_child(self, links: LinkUpstream, headers: Headers) -> Era:
        """Ask a child that is started for the question alone."""
        tag = secrets.token_hex(16)
        try:
            async with asyncio.timeout(self._seconds):
                _, answer = await links.open(tag, self._message, headers)
        except TimeoutError:
            return "handshake"
        except UpstreamLost as lost:
            if not lost.sent:
                raise
            # It took the question and ended: no answer of the stateless era.
            return "handshake"
        await links.drop(tag)
        return self._read(answer)

    async def _over_http(self, http: HttpUpstream, headers: Headers) -> Era:
        mirrored = [*handshake_headers(headers, None), *request_headers(peek(self._message))]
        try:
            async with asyncio.timeout(self._seconds):
                reply = await http.forward("POST", posting(mirrored), self._message)
                try:
                    if reply.status in _TELLING_NOTHING or 300 <= reply.status < 400:
                        raise UpstreamLost(
                            f"the upstream answered {reply.status} to server/discover",
                            status=reply.status,
                            challenge=reply.header(CHALLENGE),
                        )
                    return self._read(await read_answer(reply, _IDENT))
                finally:
                    await reply.close()
        except TimeoutError:
            return "handshake"
        except UpstreamLost as lost:
            if lost.status is None or lost.status in _TELLING_NOTHING or 300 <= lost.status < 400:
                raise
            return "handshake"


def _is_personal(wrong: GatewayError) -> bool:
    return isinstance(wrong, UpstreamLost) and wrong.status in _CREDENTIALS


def _runs_tasks(answer: bytes) -> bool:
    """Tell whether a discovery says that the upstream has the tasks extension."""
    result = members(members(answer).get("result"))
    return TASKS_EXTENSION in members(members(result.get("capabilities")).get("extensions"))


def era_of(answer: bytes) -> Era:
    """Return the era that an answer to `server/discover` shows."""
    try:
        one = peek(answer)
    except Refusal:
        return "handshake"
    if one.result is not None:
        stateless = is_discovery(one.result) and _listed(one.result, "supportedVersions")
    elif value(members(one.error).get("code")) == UNSUPPORTED_VERSION:
        stateless = _listed(bytes(members(one.error).get("data", b"{}")), "supported")
    else:
        stateless = is_modern_error(one)
    return "stateless" if stateless else "handshake"


def _listed(raw: bytes, name: str) -> bool:
    """Tell whether a version that the gateway speaks statelessly is among those listed."""
    return any(text_of(one) in STATELESS for one in items(members(raw).get(name)) or ())
