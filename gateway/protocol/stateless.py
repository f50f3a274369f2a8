"""Requests of the stateless era: what they say of themselves in `_meta` and in headers (2026-07-28).

Each request carries its protocol version and the client's capabilities; nothing is known from before.
On HTTP, check the headers first (`check_headers`), then read the metadata (`read_meta`): a version
that differs between the two is a mismatch, whether or not it is a supported one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from gateway.protocol import mirror
from gateway.protocol.canonical import canonical
from gateway.protocol.codes import INVALID_PARAMS, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from gateway.protocol.envelope import Envelope, members, meta_of, text_of
from gateway.protocol.eras import STATELESS, is_stateless
from gateway.protocol.errors import Refusal
from gateway.protocol.headers import VERSION, Headers
from gateway.protocol.mirror import Header

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
# RFC 5424 section 6.2.1, least severe first.
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_ONLY_THERE: Final = frozenset({"server/discover", "subscriptions/listen", "tasks/update"})
_VERSION: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_OBJECTS: Final = ("roots", "sampling", "elicitation", "experimental", "extensions")
_TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(_TASK_METHODS, "taskId"),
}
_MIRRORS: Final = frozenset({VERSION, "mcp-method", "mcp-name"})
_PARAM: Final = "mcp-param-"
_MAX_ECHO: Final = 100
# A client says the same of itself on each request; what is longer is not remembered.
_SHORT: Final = 2048


class RequestMeta(msgspec.Struct, frozen=True):
    """What a request says of its client.

    `capabilities` and `info` are canonical JSON (compact, sorted keys); `token` is the raw progress
    token; `log_level` the least level of log messages that the client wants, `None` for none at all.
    """

    version: str
    capabilities: bytes
    info: bytes | None = None
    log_level: str | None = None
    token: bytes | None = None


def opens_stateless(envelope: Envelope, version_header: str | None, *, in_session: bool = False) -> bool:
    """Tell whether a message is of the stateless era on an endpoint that serves both.

    It is by its metadata, by its version header, or by a method that exists in no other era;
    `initialize` and responses never are (2026-07-28 versioning, "Backward Compatibility"). A request
    `in_session` is not told by its method: the session has the semantics of its handshake.
    """
    if envelope.kind == "response" or envelope.method == "initialize":
        return False
    header = (version_header or "").strip(" \t")
    if _VERSION.fullmatch(header) and is_stateless(header):
        return True
    only_there = envelope.method in _ONLY_THERE and not in_session
    return only_there or PROTOCOL_VERSION in meta_of(envelope.params)


def read_meta(
    envelope: Envelope, supported: Sequence[str], params: Mapping[str, msgspec.Raw] | None = None
) -> RequestMeta:
    """Return what the request's `_meta` says; `supported` are all versions of the endpoint, both eras'.

    `params` are the members of the request's, where they are known already.

    Raises `Refusal`, all with HTTP 400 (2026-07-28 basic, "`_meta`"): -32022 for a version that is not
    served statelessly, -32602 for what is missing or malformed.
    """
    found = meta_of(envelope.params) if params is None else members(params.get("_meta"))
    if PROTOCOL_VERSION not in found:
        raise _bad(f'_meta must have "{PROTOCOL_VERSION}"')
    version = text_of(found[PROTOCOL_VERSION])
    if version is None:
        raise _bad(f'"{PROTOCOL_VERSION}" must be a string')
    if not is_stateless(version) or version not in supported:
        known: dict[str, Any] = {"supported": list(supported), "requested": version[:_MAX_ECHO]}
        raise Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", known, status=400)
    if CLIENT_CAPABILITIES not in found:
        raise _bad(f'_meta must have "{CLIENT_CAPABILITIES}"')
    capabilities = bytes(found[CLIENT_CAPABILITIES])
    capabilities = (
        _short_capabilities(capabilities) if len(capabilities) <= _SHORT else _capabilities(capabilities)
    )
    return RequestMeta(version, capabilities, _info(found), _log_level(found), _token(found))


def check_single(headers: Headers) -> None:
    """Raise `Refusal` -32020, HTTP 400, where a header that mirrors the body comes more than once.

    Who routes by headers may read another one than we do (2026-07-28 "Server Validation"; RFC 9110
    section 5.3). Names are in lower case.
    """
    seen: set[str] = set()
    for name, _ in headers:
        if name in _MIRRORS or name.startswith(_PARAM):
            if name in seen:
                raise mirror.mismatch(f"the {mirror.shown(name)} header comes more than once")
            seen.add(name)


def check_headers(
    envelope: Envelope, header: Header, params: Mapping[str, msgspec.Raw] | None = None
) -> None:
    """Compare the headers with the body; `header` is asked for names in lower case.

    `params` are the members of the body's, where they are known already.

    Raises `Refusal` -32020, HTTP 400 (2026-07-28 "Server Validation"). A notification may leave
    headers out, which the text does not define for it, and `tasks/*` the name, which real clients do.
    """
    params = members(envelope.params) if params is None else params
    version = text_of(members(params.get("_meta")).get(PROTOCOL_VERSION))
    needed = envelope.kind == "request"
    _check("MCP-Protocol-Version", mirror.plain("MCP-Protocol-Version", header), version, needed=needed)
    _check("Mcp-Method", mirror.plain("Mcp-Method", header), envelope.method, needed=needed)
    source = _NAMED_BY.get(envelope.method)
    if source is None:
        return
    sent, name = mirror.decoded("Mcp-Name", header), text_of(params.get(source))
    if name is None:
        if sent is not None:
            raise mirror.mismatch(f"there is an Mcp-Name header, and the body has no params.{source}")
        return
    _check("Mcp-Name", sent, name, needed=needed and envelope.method not in _TASK_METHODS)


def check_param_headers(arguments: bytes | None, input_schema: bytes, header: Header) -> None:
    """Compare `Mcp-Param-*` headers with the raw arguments of a call of a tool with this raw schema.

    Raises `Refusal` -32020, HTTP 400 (2026-07-28 "Server Behavior for Custom Headers").
    """
    for path, name in mirror.annotated(input_schema):
        raw = mirror.argument(arguments, path)
        sent = mirror.decoded(name, header)
        where = mirror.shown(".".join(path))
        if raw is None:
            if sent is not None:
                raise mirror.mismatch(f"there is a {name} header, and no argument {where}")
        elif sent is None:
            raise mirror.mismatch(f"the {name} header is missing; it mirrors the argument {where}")
        elif not mirror.alike(raw, sent):
            raise mirror.differs(name, sent, mirror.spelt(raw))


def declares(capabilities: bytes, extension: str) -> bool:
    """Tell whether capabilities (raw JSON of either side) declare an extension."""
    found = members(members(capabilities).get("extensions")).get(extension)
    return found is not None and bytes(found)[:1] == b"{"


def missing_extension(extension: str) -> Refusal:
    """Return the refusal -32021, HTTP 400, of a request that needs an extension its client lacks."""
    return missing_capability({"extensions": {extension: {}}})


def missing_capability(required: dict[str, Any]) -> Refusal:
    """Return the refusal -32021, HTTP 400, of a request that needs these client capabilities."""
    words = "Missing required client capability"
    return Refusal(MISSING_CAPABILITY, words, {"requiredCapabilities": required}, status=400)


def name_header(value: str) -> str:
    """Return a name, URI or task id as the value of `Mcp-Name` (2026-07-28 "Value Encoding")."""
    return mirror.encoded(value)


def request_headers(envelope: Envelope) -> Headers:
    """Return the headers that mirror a stateless request which the gateway sends, names in lower case."""
    params = members(envelope.params)
    version = text_of(members(params.get("_meta")).get(PROTOCOL_VERSION)) or STATELESS[-1]
    # A client's odd method must not become a second header.
    found = [(VERSION, mirror.encoded(version)), ("mcp-method", mirror.encoded(envelope.method))]
    name = text_of(params.get(_NAMED_BY.get(envelope.method, "")))
    return found if name is None else [*found, ("mcp-name", name_header(name))]


def param_headers(arguments: bytes | None, input_schema: bytes) -> Headers:
    """Return the `Mcp-Param-*` headers of a call that the gateway sends, names in lower case."""
    found = [(name, mirror.argument(arguments, path)) for path, name in mirror.annotated(input_schema)]
    return [(name.lower(), mirror.encoded(mirror.spelt(raw))) for name, raw in found if raw is not None]


def _check(name: str, sent: str | None, expected: str | None, *, needed: bool) -> None:
    if sent is None:
        if needed:
            raise mirror.mismatch(f"the {name} header is missing")
    elif expected is not None and sent != expected:
        raise mirror.differs(name, sent, expected)


def _info(found: Mapping[str, msgspec.Raw]) -> bytes | None:
    raw = found.get(CLIENT_INFO)
    if raw is None:
        return None
    return _short_named(bytes(raw)) if len(raw) <= _SHORT else _named(bytes(raw))


def _named(raw: bytes) -> bytes:
    info = _object(raw, CLIENT_INFO)
    inner = members(info)
    if text_of(inner.get("name")) is None or text_of(inner.get("version")) is None:
        raise _bad(f'"{CLIENT_INFO}" must have "name" and "version", both strings')
    return info


@lru_cache(maxsize=256)
def _short_named(raw: bytes) -> bytes:
    return _named(raw)


def _capabilities(raw: bytes) -> bytes:
    capabilities = _object(raw, CLIENT_CAPABILITIES)
    inner = members(capabilities)
    for name in _OBJECTS:
        if name in inner and bytes(inner[name])[:1] != b"{":
            raise _bad(f'"{CLIENT_CAPABILITIES}": "{name}" must be an object')
    return capabilities


@lru_cache(maxsize=256)
def _short_capabilities(raw: bytes) -> bytes:
    return _capabilities(raw)


def _log_level(found: Mapping[str, msgspec.Raw]) -> str | None:
    raw = found.get(LOG_LEVEL)
    level = text_of(raw)
    if raw is not None and level not in LOG_LEVELS:
        raise _bad(f'"{LOG_LEVEL}" must be one of {", ".join(LOG_LEVELS)}')
    return level


def _token(found: Mapping[str, msgspec.Raw]) -> bytes | None:
    raw = found.get("progressToken")
    if raw is None:
        return None
    token = bytes(raw)
    if token[:1] != b'"' and not token.removeprefix(b"-").isdigit():
        raise _bad('"progressToken" must be a string or an integer')
    return token


def _object(raw: bytes, name: str) -> bytes:
    found = canonical(raw)
    if found is None or found[:1] != b"{":
        raise _bad(f'"{name}" must be an object')
    return found


def _bad(what: str) -> Refusal:
    return Refusal(INVALID_PARAMS, f"Invalid params: {what}", status=400)
