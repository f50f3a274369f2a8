"""A request of the stateless era with all that it says of its client."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.bridge.results import to_stateless
from gateway.crossing.port import Caller
from gateway.dialects.port import Dialect
from gateway.protocol.codes import (
    INTERNAL_ERROR,
    LIMIT_REACHED,
    METHOD_NOT_FOUND,
    SESSION_NOT_FOUND,
    UPSTREAM_UNAVAILABLE,
    http_status,
)
from gateway.protocol.envelope import dump, members, peek, response, value
from gateway.protocol.errors import Refusal
from gateway.protocol.headers import JSON, Headers
from gateway.protocol.stateless import TASKS_EXTENSION, RequestMeta, declares
from gateway.session.exchange import Answer
from gateway.session.visit import Visit
from gateway.tasks.inputs import CAPABILITIES

_NOT_ITS_CODES: Final = (LIMIT_REACHED, SESSION_NOT_FOUND, UPSTREAM_UNAVAILABLE)


class Asked(msgspec.Struct, frozen=True):
    """A request of the stateless era: its visit, what it says of its client, and that as a caller.

    `headers` are the client's for the upstream.
    """

    visit: Visit
    meta: RequestMeta
    caller: Caller
    headers: Headers

    @property
    def ident(self) -> bytes:
        """The request's id as raw JSON."""
        return self.visit.request.id or dump(None)

    @property
    def declared(self) -> bool:
        """Whether the client takes tasks, as it must say on each request."""
        return declares(self.meta.capabilities, TASKS_EXTENSION)

    @property
    def askable(self) -> frozenset[str]:
        """The methods of server requests that the client can answer."""
        declared = members(self.meta.capabilities)
        return frozenset(method for method, needed in CAPABILITIES.items() if needed in declared)

    @property
    def extension(self) -> Dialect:
        """The dialect of its era."""
        return self.visit.served.dialects["c"]

    async def passes_tasks(self) -> bool:
        """Tell whether the upstream has tasks of the client's dialect itself, which pass as they are."""
        served = self.visit.served
        if served.upstream.http is None or served.upstream.prefers_links:
            return False
        return await served.crossing.runs_tasks(self.headers)

    def respond(self, result: bytes, server_info: bytes | None) -> bytes:
        """Return the response with a result in the form of the era."""
        return response(self.ident, to_stateless(self.visit.request.method, result, server_info))


def in_its_codes(refusal: Refusal) -> Refusal:
    """Return a refusal in codes that the era lets servers use (2026-07-28 basic, "Error Codes")."""
    if refusal.code in _NOT_ITS_CODES:
        refusal.status = refusal.status or 200
        refusal.code = INTERNAL_ERROR
    elif refusal.code == METHOD_NOT_FOUND:
        refusal.status = 404
    return refusal


def answer_with(message: bytes) -> Answer:
    """Return a response as a JSON answer, under the HTTP status that the transport text has for it."""
    return Answer(_status_of(message), message, [("content-type", JSON)])


def _status_of(message: bytes) -> int:
    if b'"error"' not in message:
        return 200
    error = peek(message).error
    code = None if error is None else value(members(error).get("code"))
    if code == METHOD_NOT_FOUND:
        return 404
    return http_status(code) if isinstance(code, int) else 200
