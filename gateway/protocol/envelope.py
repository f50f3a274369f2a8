"""The envelope of a JSON-RPC message: looked at without building the whole tree.

`peek` decodes the outer object alone; the values of its members stay the bytes that came.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate, count
from operator import sub
from typing import Any, Final, Literal

import msgspec

from gateway.protocol import lone
from gateway.protocol.codes import INVALID_REQUEST, PARSE_ERROR
from gateway.protocol.errors import Refusal

Kind = Literal["request", "notification", "response"]

MAX_DEPTH: Final = 256
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ABSENT: Final = msgspec.Raw()
_NAMES: Final = ("jsonrpc", "id", "method", "params", "result", "error")


class _Outer(msgspec.Struct):
    jsonrpc: msgspec.Raw = _ABSENT
    id: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class Envelope(msgspec.Struct, frozen=True):
    """One JSON-RPC message, seen from outside.

    `id` is the id as JSON bytes (`b"7"`, `b'"a"'`), `None` where there is none; `params`, `result`
    and `error` are raw JSON bytes or `None`; `raw` is the message as it came.
    """

    kind: Kind
    id: bytes | None
    method: str
    params: bytes | None
    result: bytes | None
    error: bytes | None
    raw: bytes


_outer: Final = msgspec.json.Decoder(_Outer)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text: Final = msgspec.json.Decoder(str)
_any: Final = msgspec.json.Decoder()


def peek(raw: bytes) -> Envelope:
    """Look at one message; raise `Refusal` -32700 or -32600 that says what is wrong with it.

    An array is refused: whether a batch is allowed depends on the version (see `is_batch`).
    """
    outer = _decode(raw)
    # No JSON value is empty: what is absent is.
    ident, said, params = bytes(outer.id) or None, bytes(outer.method), bytes(outer.params) or None
    if ident is not None:
        ident = _check_id(ident, allow_null=not said and len(outer.error) > 0)
    if bytes(outer.jsonrpc) != b'"2.0"':
        raise _invalid('"jsonrpc" must be "2.0"', ident)
    if not said:
        result, error = bytes(outer.result) or None, bytes(outer.error) or None
        if result is None and error is None:
            raise _invalid('there is neither "method" nor "result" nor "error"', ident)
        return Envelope("response", ident, "", None, result, error, raw)
    try:
        method = _text.decode(said)
    except msgspec.DecodeError:
        raise _invalid('"method" must be a string', ident) from None
    if params is not None and params[:1] not in (b"{", b"["):
        raise _invalid('"params" must be an object', ident)
    kind: Kind = "notification" if ident is None else "request"
    return Envelope(kind, ident, method, params, None, None, raw)


def is_batch(raw: bytes) -> bool:
    """Tell whether the body is a JSON array (JSON-RPC 2.0 section 6)."""
    return raw.lstrip(b" \t\r\n")[:1] == b"["


def check_depth(raw: bytes) -> None:
    """Raise `Refusal` -32700 for a message that is nested deeper than `MAX_DEPTH`."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    # Each opening bracket counts 2 and each closing one 0: the sum less the place is the depth.
    steps = _STRING.sub(b"", raw).translate(_STEPS, _NO_BRACKETS)
    if max(map(sub, accumulate(steps), count(1)), default=0) > MAX_DEPTH:
        raise Refusal(PARSE_ERROR, f"Parse error: the message is nested deeper than {MAX_DEPTH}")


def split_batch(raw: bytes) -> list[bytes]:
    """Return the messages of a batch as raw JSON; raise `Refusal` where it is not a JSON array."""
    try:
        parts = [bytes(part) for part in msgspec.json.decode(raw, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, RecursionError):
        raise Refusal(PARSE_ERROR, "Parse error: the body is not JSON") from None
    if not parts:
        raise _invalid("the batch is empty", None)
    return parts


def members(raw: bytes | msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object as raw values in their order; empty for anything else."""
    if raw is None:
        return {}
    try:
        return _members.decode(raw)
    except RecursionError:
        return {}
    except msgspec.DecodeError:
        return _members_leniently(bytes(raw))


def _members_leniently(raw: bytes) -> dict[str, msgspec.Raw]:
    shielded = lone.shield(raw)
    if shielded is None:
        return {}
    try:
        found = _members.decode(shielded.data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {
        shielded.restore_text(name): msgspec.Raw(shielded.restore(bytes(part)))
        for name, part in found.items()
    }


def meta_of(params: bytes | None) -> dict[str, msgspec.Raw]:
    """Return the members of `params._meta`, empty where there is none."""
    if params is None or (b"_meta" not in params and b"\\u" not in params):
        return {}
    found = members(params).get("_meta")
    return {} if found is None else members(bytes(found))


def value(raw: bytes | msgspec.Raw | None) -> Any:
    """Return a raw JSON value as Python data, `None` where it cannot be read."""
    if raw is None:
        return None
    try:
        return _any.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(bytes(raw))
        except (ValueError, RecursionError):
            return None


def text_of(raw: bytes | msgspec.Raw | None) -> str | None:
    """Return a raw JSON string as text, `None` where it is anything else.

    Lone surrogates become U+FFFD, so that the text can be encoded again.
    """
    found = value(raw)
    return lone.replace(found) if isinstance(found, str) else None


def dump(data: Any) -> bytes:
    """Return Python data as compact JSON bytes."""
    return msgspec.json.encode(data)


def request(ident: bytes, method: str, params: bytes | None) -> bytes:
    """Build a JSON-RPC request from raw parts."""
    tail = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","id":%b,"method":%b%b}' % (ident, dump(method), tail)


def notification(method: str, params: bytes) -> bytes:
    """Build a JSON-RPC notification from raw parts."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (dump(method), params)


def response(ident: bytes | None, result: bytes) -> bytes:
    """Build a JSON-RPC response from a raw result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (ident or b"null", result)


def error_response(ident: bytes | None, error: bytes) -> bytes:
    """Build a JSON-RPC error response from a raw error object."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (ident or b"null", error)


def refusal_response(ident: bytes | None, refusal: Refusal) -> bytes:
    """Build the error response that a refusal is on the wire."""
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return error_response(ident if ident is not None else refusal.request_id, dump(error))


def _decode(raw: bytes) -> _Outer:
    if not raw.strip():
        raise Refusal(PARSE_ERROR, "Parse error: the body is empty")
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as wrong:
            at = wrong.start
            raise Refusal(PARSE_ERROR, f"Parse error: invalid UTF-8 at byte {at}") from None
    try:
        return _outer.decode(raw)
    except RecursionError:
        raise Refusal(PARSE_ERROR, "Parse error: the message is nested too deeply") from None
    except msgspec.ValidationError:
        raise _invalid("the message must be an object", None) from None
    except msgspec.DecodeError as wrong:
        return _decode_leniently(raw, wrong)


def _decode_leniently(raw: bytes, wrong: msgspec.DecodeError) -> _Outer:
    """Decode what msgspec refuses and JSON allows: lone surrogate escapes (RFC 8259 section 8.2)."""
    shielded = lone.shield(raw)
    try:
        if shielded is None:
            raise wrong
        outer = _outer.decode(shielded.data)
    except (msgspec.DecodeError, RecursionError):
        raise Refusal(PARSE_ERROR, f"Parse error: the body is not JSON ({wrong})") from None
    parts = {name: getattr(outer, name) for name in _NAMES}
    return _Outer(
        **{name: msgspec.Raw(shielded.restore(bytes(part))) for name, part in parts.items() if len(part)}
    )


def _check_id(ident: bytes, *, allow_null: bool) -> bytes | None:
    if ident[:1] == b'"' or ident.isdigit() or ident.removeprefix(b"-").isdigit():
        return ident
    if ident == b"null":
        if allow_null:
            return None
        raise _invalid('"id" must not be null', None)
    raise _invalid('"id" must be a string or an integer', None)


def _invalid(what: str, ident: bytes | None) -> Refusal:
    return Refusal(INVALID_REQUEST, f"Invalid Request: {what}", request_id=ident)
