"""`server/discover` out of `initialize` and back, and which of the two an answer is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.protocol.canonical import items
from gateway.protocol.codes import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from gateway.protocol.envelope import Envelope, dump, members, text_of, value
from gateway.protocol.eras import HANDSHAKE
from gateway.protocol.splice import Parts, drop_member, put_together, set_member, take_apart
from gateway.protocol.stateless import SERVER_INFO, TASKS_EXTENSION

_MODERN: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
# What only one of the two results has.
_ONLY_INITIALIZED: Final = ("protocolVersion", "serverInfo")
_ONLY_DISCOVERED: Final = ("resultType", "supportedVersions", "ttlMs", "cacheScope")
_NAMELESS: Final = dump({"name": "unknown", "version": "unknown"})


def discovered(initialized: bytes, supported: Sequence[str], ttl_ms: int) -> bytes:
    """Return the `DiscoverResult` for an upstream's `InitializeResult`, both raw result objects.

    Capabilities stay but for tasks, in either form: those the gateway offers are its own. What an
    upstream can subscribe to or tell of changes comes through `subscriptions/listen`. `ttl_ms` is for
    how long a client may keep it, in milliseconds.
    """
    parts = take_apart(initialized)
    info = bytes(parts.get("serverInfo", b""))
    for name in _ONLY_INITIALIZED:
        parts.pop(name, None)
    parts["resultType"] = dump("complete")
    parts["supportedVersions"] = dump(list(supported))
    parts["capabilities"] = _capabilities(parts)
    parts["ttlMs"] = dump(max(0, ttl_ms))
    # A session of its own stands behind it, and what it says may depend on who asks.
    parts["cacheScope"] = dump("private")
    _keep_text(parts, "instructions")
    found = put_together(parts)
    return set_member(found, ("_meta", SERVER_INFO), info) if _is_info(info) else found


def initialized(discovered: bytes, version: str) -> bytes:
    """Return the `InitializeResult` for an upstream's `DiscoverResult`, both raw result objects.

    `version` is the one that the handshake client shall speak. An upstream that does not name itself
    is called unknown, since the handshake era asks for a name.
    """
    parts = take_apart(discovered)
    info = bytes(members(parts.get("_meta")).get(SERVER_INFO, b""))
    for name in _ONLY_DISCOVERED:
        parts.pop(name, None)
    parts["protocolVersion"] = dump(version)
    parts["capabilities"] = _capabilities(parts)
    parts["serverInfo"] = info if _is_info(info) else _NAMELESS
    _keep_text(parts, "instructions")
    return drop_member(put_together(parts), ("_meta", SERVER_INFO), prune=True)


def negotiated(asked: str | None) -> str:
    """Return the handshake version that answers the one asked for (2025-11-25 "Version Negotiation")."""
    return asked if asked in HANDSHAKE else HANDSHAKE[-1]


def is_discovery(result: bytes) -> bool:
    """Tell whether a raw result is a `DiscoverResult`: it lists versions and has capabilities."""
    found = members(result)
    versions = items(found.get("supportedVersions"))
    named = bool(versions) and all(text_of(one) is not None for one in versions or ())
    return named and bytes(found.get("capabilities", b""))[:1] == b"{"


def is_modern_error(envelope: Envelope) -> bool:
    """Tell whether an error shows a server of the stateless era (2026-07-28 "Backward Compatibility")."""
    code: Any = value(members(envelope.error).get("code"))
    return isinstance(code, int | float) and code in _MODERN


def _capabilities(parts: Parts) -> bytes:
    raw = bytes(parts.get("capabilities", b"{}"))
    kept = drop_member(raw if raw[:1] == b"{" else b"{}", ("tasks",))
    return drop_member(kept, ("extensions", TASKS_EXTENSION), prune=True)


def _keep_text(parts: Parts, name: str) -> None:
    if name in parts and text_of(bytes(parts[name])) is None:
        del parts[name]


def _is_info(raw: bytes) -> bool:
    found = members(raw) if raw[:1] == b"{" else {}
    return text_of(found.get("name")) is not None and text_of(found.get("version")) is not None
