"""Which calls may share a session with the upstream, and which headers go there.

A session belongs to one caller: its principal, its capabilities and its credentials. Credentials are
kept as a hash alone.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from gateway.bridge.requests import handshake_capabilities
from gateway.crossing.port import Caller
from gateway.protocol.envelope import members
from gateway.protocol.headers import JSON, LAST_EVENT_ID, SESSION, VERSION, Headers

_MARK: Final = b"\0"
# What is longer is not remembered: it would be a store for clients.
_SHORT: Final = 64
_SMALL: Final = 2048
# Who is asking may stand in many headers; a header that merely differs costs a session of its own.
_CREDENTIAL: Final = re.compile(
    r"auth|cookie|token|secret|credential|api-?key|access-?key|subscription-?key|tenant|user|account"
    r"|identity|principal|e-?mail|jwt|assertion|saml|sso|login|passw|client-?cert|client-?id"
    r"|subject|session|customer|organi[sz]ation|\borg\b|workspace|member|person"
)
_NO_CREDENTIAL: Final = re.compile(r"user-agent|csrf|xsrf|^sec-|^mcp-|idempotency")
_STATELESS_ONLY: Final = frozenset({"mcp-method", "mcp-name", SESSION, VERSION, LAST_EVENT_ID})
_PARAM: Final = "mcp-param-"
_ASKING: Final = ("elicitation", "sampling", "roots")


def session_key(caller: Caller, headers: Headers) -> bytes:
    """Return the name of the sessions that a call may use; nothing can be read out of it."""
    digest = hashlib.sha256()
    principal = b"" if caller.principal is None else b"p" + caller.principal.encode()
    for part in (principal, _shared(caller.capabilities), *_credentials(headers)):
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
    known = caller.capabilities
    return _short_askable(known) if len(known) <= _SMALL else _askable(known)


def _askable(capabilities: bytes) -> bool:
    found = members(capabilities)
    return any(name in found for name in _ASKING)


@lru_cache(maxsize=256)
def _short_askable(capabilities: bytes) -> bool:
    return _askable(capabilities)


def _credentials(headers: Headers) -> list[bytes]:
    found = [
        name.lower().encode() + _MARK + content.encode("utf-8", "surrogateescape")
        for name, content in headers
        if (_is_credential(name) if len(name) <= _SHORT else _looks_secret(name))
    ]
    return sorted(found)


@lru_cache(maxsize=1024)
def _is_credential(name: str) -> bool:
    return _looks_secret(name)


def _looks_secret(name: str) -> bool:
    lowered = name.lower()
    return _CREDENTIAL.search(lowered) is not None and _NO_CREDENTIAL.search(lowered) is None


def _shared(capabilities: bytes) -> bytes:
    """Return what of a client's capabilities the upstream hears of."""
    return (
        _short_shared(capabilities) if len(capabilities) <= _SMALL else handshake_capabilities(capabilities)
    )


@lru_cache(maxsize=256)
def _short_shared(capabilities: bytes) -> bytes:
    return handshake_capabilities(capabilities)
