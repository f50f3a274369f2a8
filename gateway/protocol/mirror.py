"""Body fields mirrored into HTTP headers: how values are spelt, read and compared (2026-07-28, SEP-2243).

Who routes by headers and who works by the body must not be told two different things.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final, cast

import msgspec

from gateway.protocol import lone
from gateway.protocol.codes import HEADER_MISMATCH
from gateway.protocol.envelope import members, text_of, value
from gateway.protocol.errors import Refusal

# Returns the value of a header whose name is given in lower case.
Header = Callable[[str], str | None]

_OPEN: Final = "=?base64?"
_CLOSE: Final = "?="
_OWS: Final = " \t"
# RFC 9110 sections 5.5 and 5.6.2.
_FIELD_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NUMBER: Final = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
_ANNOTATION: Final = "x-mcp-header"
_PRIMITIVE: Final = frozenset({"string", "integer", "boolean", "null"})
_MAX_DEPTH: Final = 32
_MAX_SHOWN: Final = 100


def mismatch(words: str) -> Refusal:
    """Return the refusal -32020, HTTP 400 (2026-07-28 "Server Validation")."""
    return Refusal(HEADER_MISMATCH, f"Header mismatch: {words}", status=400)


def differs(name: str, sent: str, expected: str) -> Refusal:
    """Return the refusal of a header whose value is not the body's; both are shown, cut and escaped."""
    return mismatch(f"{name} header value {shown(sent)} does not match body value {shown(expected)}")


def shown(text: str) -> str:
    """Return text in quotes, short and without control characters."""
    quoted = repr(text[:_MAX_SHOWN])
    return quoted if len(quoted) <= _MAX_SHOWN + 2 else quoted[:_MAX_SHOWN] + "…'"


def plain(name: str, header: Header) -> str | None:
    """Return a header's value without white space around it; refuse characters that may not be in one."""
    sent = header(name.lower())
    if sent is None:
        return None
    if not _FIELD_VALUE.fullmatch(sent):
        raise mismatch(f"the {name} header contains invalid characters")
    return sent.strip(_OWS)


def decoded(name: str, header: Header) -> str | None:
    """Return a header's value, decoded where it has the Base64 form ("Value Encoding")."""
    sent = plain(name, header)
    if sent is None or not _is_encoded(sent):
        return sent
    try:
        inner = sent[len(_OPEN) : -len(_CLOSE)].encode()
        return binascii.a2b_base64(inner, strict_mode=True).decode()
    except ValueError:
        raise mismatch(f"the {name} header is not Base64 of UTF-8") from None


def encoded(text: str) -> str:
    """Return text as a header value: as it is where that is safe, else in the Base64 form."""
    safe = _FIELD_VALUE.fullmatch(text) and text == text.strip(_OWS) and not _is_encoded(text)
    return text if safe else _OPEN + base64.b64encode(lone.replace(text).encode()).decode() + _CLOSE


def annotated(input_schema: bytes) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and header name of each parameter that a tool wants mirrored ("Schema Extension").

    An annotation that breaks the rules is no annotation: clients do not offer such a tool at all.
    """
    if _ANNOTATION.encode() not in input_schema and b"\\u" not in input_schema:
        return
    seen: set[str] = set()
    waiting: deque[tuple[tuple[str, ...], Any]] = deque([((), value(input_schema))])
    while waiting:
        path, node = waiting.popleft()
        properties = _dict(node).get("properties")
        for name, inner in _dict(properties).items():
            below = (*path, name)
            suffix = _suffix(_dict(inner))
            if suffix is not None and suffix.lower() not in seen:
                seen.add(suffix.lower())
                yield below, f"Mcp-Param-{suffix}"
            if len(below) < _MAX_DEPTH:
                waiting.append((below, inner))


def argument(arguments: bytes | None, path: tuple[str, ...]) -> bytes | None:
    """Return the raw value at a path, `None` where there is none or none that a header can carry."""
    found: bytes | msgspec.Raw | None = arguments
    for name in path:
        found = members(found).get(name)
    raw = None if found is None else bytes(found)
    return None if raw is None or raw == b"null" or raw[:1] in (b"{", b"[") else raw


def spelt(raw: bytes) -> str:
    """Return a primitive JSON value in the spelling of a header, before it is encoded."""
    if raw[:1] == b'"':
        return text_of(raw) or ""
    return raw.decode("utf-8", "replace")


def alike(raw: bytes, sent: str) -> bool:
    """Tell whether a header says the same as a primitive JSON value; numbers compare by value."""
    text = spelt(raw)
    if text == sent or raw[:1] in b'"tf':
        return text == sent
    if _NUMBER.fullmatch(text) and _NUMBER.fullmatch(sent):
        return Decimal(text) == Decimal(sent)
    return False


def _is_encoded(text: str) -> bool:
    whole = len(_OPEN) + len(_CLOSE)
    return len(text) >= whole and text.startswith(_OPEN) and text.endswith(_CLOSE)


def _suffix(node: dict[str, Any]) -> str | None:
    name = node.get(_ANNOTATION)
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return None
    kind = node.get("type")
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    good = bool(kinds) and all(isinstance(one, str) and one in _PRIMITIVE for one in kinds)
    return name if good else None


def _dict(node: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", node) if isinstance(node, dict) else {}
