"""Requests carried from one era to the other: metadata put on and taken off, the rest byte for byte."""

from __future__ import annotations

from typing import Final

from gateway import __version__
from gateway.protocol.canonical import canonical
from gateway.protocol.envelope import dump, members, request, text_of
from gateway.protocol.splice import Parts, drop_member, put_together, take_apart
from gateway.protocol.stateless import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    TASKS_EXTENSION,
)

OWN_INFO: Final = dump({"name": "mcp-task-gateway", "version": __version__})
_STAMPS: Final = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)
# What a retry brings (2026-07-28 "Multi Round-Trip Requests"); the handshake era knows no retries.
_RETRIED: Final = ("inputResponses", "requestState")
# The request that 2025-11-25 lets a client make a task of.
_AUGMENTED: Final = "tools/call"


def to_handshake(message: bytes) -> bytes:
    """Return a stateless request as the handshake era has it: without per-request metadata.

    Everything else in `_meta` stays (progress token, trace context, vendors' keys). `params.task` of a
    tool call means nothing in the stateless era (SEP-2663) and goes, for it would mean something
    there. Raises `Refusal` -32603 for a message that cannot be taken apart.
    """
    outer = take_apart(message)
    params = bytes(outer.get("params", b""))
    if params[:1] != b"{":
        return message
    inner = take_apart(params)
    before = len(inner)
    gone = (*_RETRIED, "task") if text_of(outer.get("method")) == _AUGMENTED else _RETRIED
    for name in gone:
        inner.pop(name, None)
    changed = len(inner) != before
    meta = inner.get("_meta", b"")
    if bytes(meta)[:1] == b"{":
        changed = _unstamp(inner, bytes(meta)) or changed
    if not changed:
        return message
    outer["params"] = put_together(inner)
    return put_together(outer)


def to_stateless(
    message: bytes, version: str, capabilities: bytes, info: bytes | None, log_level: str | None
) -> bytes:
    """Return a handshake-era request as the stateless era has it, stamped with who asks.

    `params.task` goes: a stateless server decides by itself what becomes a task (SEP-2663). Raises
    `Refusal` -32603 for a message that cannot be taken apart.
    """
    outer = take_apart(message)
    inner = take_apart(bytes(outer.get("params", b"{}")))
    inner.pop("task", None)
    meta = take_apart(bytes(inner.get("_meta", b"{}")))
    for name in _STAMPS:
        meta.pop(name, None)
    meta[PROTOCOL_VERSION] = dump(version)
    meta[CLIENT_CAPABILITIES] = capabilities
    if info is not None:
        meta[CLIENT_INFO] = info
    if log_level is not None:
        meta[LOG_LEVEL] = dump(log_level)
    inner["_meta"] = put_together(meta)
    outer["params"] = put_together(inner)
    return put_together(outer)


def initialize_request(
    ident: bytes,
    capabilities: bytes,
    info: bytes | None,
    version: str = "2025-11-25",
    *,
    default_info: bytes = OWN_INFO,
) -> bytes:
    """Return the `initialize` request of a session that is held for a stateless client.

    `ident` is the request id, `capabilities` the client's object, `info` its name and version, all raw
    JSON; `default_info` stands for a client that did not name itself.
    """
    params: Parts = {
        "protocolVersion": dump(version),
        "capabilities": handshake_capabilities(capabilities),
        "clientInfo": default_info if info is None else info,
    }
    return request(ident, "initialize", put_together(params))


def handshake_capabilities(capabilities: bytes) -> bytes:
    """Return a stateless client's capabilities as those of a handshake client.

    All are kept, extensions too, since servers of 2025-11-25 read them there, but for three that
    nobody could keep: tasks, in either form (what becomes a task is settled between client and
    gateway, and the upstream asks nothing of the client as one), and news of changed roots, for which
    the stateless era has no message.
    """
    parts = take_apart(capabilities)
    parts.pop("tasks", None)
    kept = put_together(parts)
    kept = drop_member(kept, ("extensions", TASKS_EXTENSION), prune=True)
    return drop_member(kept, ("roots", "listChanged"))


def salient(message: bytes) -> bytes:
    """Return what makes two requests the same: method and parameters in one spelling, for a digest.

    Left out is what differs between a request and its retry: `_meta`, `inputResponses` and
    `requestState` (2026-07-28 "Multi Round-Trip Requests", server requirement 5).
    """
    outer = members(message)
    params = bytes(outer.get("params", b"null"))
    if params[:1] == b"{":
        found = members(params)
        left = sorted(name for name in found if name != "_meta" and name not in _RETRIED)
        # What cannot be read as a whole still has its own bytes.
        spelt: Parts = {name: canonical(found[name]) or found[name] for name in left}
        params = put_together(spelt) if found else params
    method = bytes(outer.get("method", b"null"))
    return put_together({"method": canonical(method) or method, "params": canonical(params) or params})


def _unstamp(inner: Parts, raw: bytes) -> bool:
    meta = take_apart(raw)
    before = len(meta)
    for name in _STAMPS:
        meta.pop(name, None)
    if len(meta) == before:
        return False
    if meta:
        inner["_meta"] = put_together(meta)
    else:
        del inner["_meta"]
    return True
