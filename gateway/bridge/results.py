"""Results, errors and notifications carried from one era to the other; the rest byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from gateway.protocol.canonical import array, items
from gateway.protocol.codes import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    SESSION_NOT_FOUND,
    UNSUPPORTED_VERSION,
    UPSTREAM_UNAVAILABLE,
)
from gateway.protocol.envelope import dump, members, notification, response, text_of, value
from gateway.protocol.splice import Parts, drop_member, put_together, set_member, take_apart
from gateway.protocol.stateless import LOG_LEVELS, SERVER_INFO, SUBSCRIPTION_ID

# 2026-07-28 "Caching".
CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
_SCOPES: Final = frozenset({"public", "private"})
_ONLY_STATELESS: Final = ("resultType", "ttlMs", "cacheScope")
_RESOURCE_NOT_FOUND: Final = -32002
# 2026-07-28 basic, "Error Codes": what must not be emitted, or has another meaning there. Codes from
# -32020 down are the specification's own.
_RESERVED: Final = range(-32099, -32019)
_STATELESS_CODE: Final[Mapping[float, int]] = {
    **dict.fromkeys(_RESERVED, INTERNAL_ERROR),
    _RESOURCE_NOT_FOUND: INVALID_PARAMS,
    SESSION_NOT_FOUND: INTERNAL_ERROR,
    UPSTREAM_UNAVAILABLE: INTERNAL_ERROR,
}
# These say that the gateway did not speak as its upstream wants: no fault of the client's.
_HANDSHAKE_CODE: Final[Mapping[float, int]] = {
    HEADER_MISMATCH: INTERNAL_ERROR,
    UNSUPPORTED_VERSION: INTERNAL_ERROR,
}
_PROGRESS: Final = "notifications/progress"
_LOG: Final = "notifications/message"
_UPDATED: Final = "notifications/resources/updated"


def to_stateless(method: str, result: bytes, server_info: bytes | None) -> bytes:
    """Return a handshake-era result of a method as the stateless era has it.

    `resultType`, the caching hints where the method has them, and who answers, if it is known; tools
    lose `execution`, which is not there any more. What is no object becomes an empty one. Raises
    `Refusal` -32603 for a result that cannot be taken apart.
    """
    parts = take_apart(result)
    # The handshake era has one kind; a field of that name means nothing there.
    parts["resultType"] = dump("complete")
    if method in CACHEABLE:
        _hint(parts)
    if method == "tools/list" and "tools" in parts:
        parts["tools"] = _each(bytes(parts["tools"]), lambda tool: drop_member(tool, ("execution",)))
    if server_info is not None and SERVER_INFO not in members(_raw(parts, "_meta")):
        parts["_meta"] = set_member(_raw(parts, "_meta") or b"{}", (SERVER_INFO,), server_info)
    return put_together(parts)


def error_to_stateless(error: bytes) -> bytes:
    """Return an error object as the stateless era has it: codes that it gave up are replaced.

    So are those that it reserves for itself, but for a capability that is missing and named.
    """
    found = members(error)
    if value(found.get("code")) == MISSING_CAPABILITY:
        required = members(found.get("data")).get("requiredCapabilities")
        if required is not None and bytes(required)[:1] == b"{":
            return _recoded(error, {})
    return _recoded(error, _STATELESS_CODE)


def to_handshake(result: bytes) -> bytes:
    """Return a stateless result as the handshake era has it.

    Structured content that is no object and output schemas of anything but objects go, since 2025-11-25
    allows neither. Raises `Refusal` -32603 for a result that cannot be taken apart.
    """
    parts = take_apart(result)
    for name in _ONLY_STATELESS:
        parts.pop(name, None)
    if "structuredContent" in parts and bytes(parts["structuredContent"])[:1] != b"{":
        del parts["structuredContent"]
    if b"outputSchema" in result and "tools" in parts:
        parts["tools"] = _each(bytes(parts["tools"]), _without_loose_schema)
    return drop_member(put_together(parts), ("_meta", SERVER_INFO), prune=True)


def error_to_handshake(error: bytes) -> bytes:
    """Return an error object of a stateless upstream for a client of the handshake era."""
    return _recoded(error, _HANDSHAKE_CODE)


def kind_of(result: bytes) -> str:
    """Return a result's `resultType`, "complete" if absent; empty where it is no string, so invalid."""
    kind = members(result).get("resultType")
    return "complete" if kind is None else text_of(kind) or ""


def notification_for(message: bytes, *, token: bytes | None, log_level: str | None) -> bytes | None:
    """Return an upstream's notification as it may be sent on a request's own stream, else `None`.

    Progress under the raw token that the client gave; log messages at or above the level it wants;
    nothing else (2026-07-28 "Receiving Messages", "Log Message Notifications").
    """
    outer = members(message)
    method, params = text_of(outer.get("method")), outer.get("params")
    if "id" in outer or params is None or bytes(params)[:1] != b"{":
        return None
    if method == _PROGRESS and token is not None:
        return set_member(message, ("params", "progressToken"), token)
    if method == _LOG and log_level in LOG_LEVELS:
        level = text_of(members(params).get("level"))
        if level in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(log_level):
            return message
    return None


def change_for(
    message: bytes,
    *,
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: Collection[str],
    subscription_id: bytes,
) -> bytes | None:
    """Return an upstream's notification of a change as a subscription gets it, `None` if not wanted.

    `subscription_id` is the raw id of the `subscriptions/listen` request. An update below a wanted
    URI counts, as it might be "a sub-resource of the one that the client actually subscribed to".
    """
    outer = members(message)
    if "id" in outer:
        return None
    method = text_of(outer.get("method"))
    listed = {"tools": tools, "prompts": prompts, "resources": resources}
    wanted = any(on and method == f"notifications/{kind}/list_changed" for kind, on in listed.items())
    if method == _UPDATED:
        uri = text_of(members(outer.get("params")).get("uri"))
        wanted = uri is not None and (uri in uris or any(_is_below(uri, one) for one in uris))
    return set_member(message, ("params", "_meta", SUBSCRIPTION_ID), subscription_id) if wanted else None


def acknowledged(notifications: bytes | Mapping[str, Any], subscription_id: bytes) -> bytes:
    """Return the first message of a subscription: the filter that is honoured, and the raw id."""
    kept = notifications if isinstance(notifications, bytes) else dump(dict(notifications))
    params: Parts = {"_meta": put_together({SUBSCRIPTION_ID: subscription_id}), "notifications": kept}
    return notification("notifications/subscriptions/acknowledged", put_together(params))


def subscription_end(ident: bytes) -> bytes:
    """Return the response that ends a subscription well (2026-07-28 "Graceful Closure")."""
    meta = put_together({SUBSCRIPTION_ID: ident})
    return response(ident, put_together({"resultType": dump("complete"), "_meta": meta}))


def subscription_cancelled(ident: bytes) -> bytes:
    """Return what follows that response on a pipe, where no stream ends (2026-07-28 "Cancellation").

    `ident` is the raw id; it is the one use that servers may make of this notification.
    """
    return notification("notifications/cancelled", put_together({"requestId": ident}))


def _hint(parts: Parts) -> None:
    ttl: Any = value(_raw(parts, "ttlMs"))
    if not isinstance(ttl, int) or isinstance(ttl, bool) or ttl < 0:
        parts["ttlMs"] = dump(0)
    if text_of(_raw(parts, "cacheScope")) not in _SCOPES:
        parts["cacheScope"] = dump("private")


def _recoded(error: bytes, table: Mapping[float, int]) -> bytes:
    parts = take_apart(error)
    code: Any = value(_raw(parts, "code"))
    broken = isinstance(code, float) and not code.is_integer()
    if not isinstance(code, int | float) or isinstance(code, bool) or broken:
        parts["code"] = dump(INTERNAL_ERROR)
    elif code in table:
        parts["code"] = dump(table[code])
    if text_of(_raw(parts, "message")) is None:
        parts["message"] = dump("Internal error")
    return put_together(parts)


def _each(raw: bytes, edit: Callable[[bytes], bytes]) -> bytes:
    found = items(raw)
    if found is None:
        return raw
    edited = [edit(one) if one[:1] == b"{" else one for one in found]
    return raw if edited == found else array(edited)


def _without_loose_schema(tool: bytes) -> bytes:
    schema = members(tool).get("outputSchema")
    if schema is None or text_of(members(schema).get("type")) == "object":
        return tool
    return drop_member(tool, ("outputSchema",))


def _is_below(uri: str, wanted: str) -> bool:
    return (
        wanted != ""
        and uri.startswith(wanted)
        and (wanted[-1] == "/" or uri[len(wanted) :].startswith(("/", "?", "#")))
    )


def _raw(parts: Parts, name: str) -> bytes | None:
    return bytes(parts[name]) if name in parts else None
