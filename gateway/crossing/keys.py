"""Which calls may share a session with the upstream, and which headers go there.

A session belongs to one caller: its principal, its capabilities and its credentials. Credentials are
kept as a hash alone.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from gateway.bridge.requests import handshake_capabilities
from gateway.crossing.port import Caller
from gateway.protocol.envelope import members
from gateway.protocol.headers import JSON, LAST_EVENT_ID, SESSION, VERSION, Headers

_MARK: Final = b"\0"
# Who is asking may stand in many headers; a header that merely differs costs a session of its own.
_CREDENTIAL: Final = re.compile(
    r"auth|cookie|token|secret|credential|api-?key|access-?key|subscription-?key|tenant|user|account"
    r"|identity|principal"
)
_NO_CREDENTIAL: Final = re.compile(r"user-agent|csrf|xsrf|^sec-|^mcp-|idempotency")
_STATELESS_ONLY: Final = frozenset({"mcp-method", "mcp-name", SESSION, VERSION, LAST_EVENT_ID})
_PARAM: Final = "mcp-param-"
_ASKING: Final = ("elicitation", "sampling", "roots")


def session_key(caller: Caller, headers: Headers) -> bytes:
    """Return the name of the sessions that a call may use; nothing can be read out of it."""
    digest = hashlib.sha256()
    principal = b"" if caller.principal is None else b"p" + caller.principal.encode()
    for part in (principal, handshake_capabilities(caller.capabilities), *_credentials(headers)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def handshake_headers(headers: Headers, version: str | None) -> Headers:
    """Return a stateless request's headers as those of a request in a handshake session.

    `version` is the negotiated one, `None` before there is one: `initialize` goes without.
    """
    kept = [
        (name, content)
        for name, content in headers
        if name.lower() not in _STATELESS_ONLY and not name.lower().startswith(_PARAM)
    ]
    if version is not None:
        kept.append((VERSION, version))
    return kept


def posting(headers: Headers) -> Headers:
    """Return headers for a POST that is sent by hand, not through a channel."""
    kept = [pair for pair in headers if pair[0].lower() not in ("accept", "content-type")]
    return [*kept, ("content-type", JSON), ("accept", f"{JSON}, text/event-stream")]


def may_be_asked(caller: Caller) -> bool:
    """Tell whether the caller's client can answer requests of a server."""
    found = members(caller.capabilities)
    return any(name in found for name in _ASKING)


def _credentials(headers: Headers) -> list[bytes]:
    found = [
        name.lower().encode() + _MARK + content.encode("utf-8", "surrogateescape")
        for name, content in headers
        if _CREDENTIAL.search(name.lower()) and not _NO_CREDENTIAL.search(name.lower())
    ]
    return sorted(found)
