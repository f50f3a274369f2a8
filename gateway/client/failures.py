"""What an HTTP answer or a broken connection means, in words for a person; cold."""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from gateway.protocol.codes import LIMIT_REACHED, METHOD_NOT_FOUND
from gateway.protocol.envelope import value
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost

_WORDS: Final[dict[int, str]] = {
    401: "{where} wants credentials (401): give --bearer-env NAME or --header 'Authorization: …'",
    403: "{where} refuses this (403): the credentials may be wrong or lack a right",
    405: "{where} takes no POST (405): it is not a Streamable HTTP endpoint of MCP",
    406: "{where} cannot answer in JSON or as an event stream (406): it is not an MCP endpoint",
    415: "{where} takes no JSON (415): it is not an MCP endpoint",
}
_SESSION_GONE: Final = (
    "{where} does not know this session (404): "
    "it has ended or expired, and what was bound to it is out of reach"
)
_NOTHING_HERE: Final = "there is no MCP endpoint at {where} (404)"
_TOO_MANY: Final = "too many requests (429)"


class _RpcError(msgspec.Struct):
    code: int
    message: str
    data: object = None


class _Body(msgspec.Struct):
    error: _RpcError


def where(url: str) -> str:
    """Return the URL for a message: without user, password, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def refusal_of(error: bytes | None, *, status: int | None = None) -> Refusal | None:
    """Return a raw JSON-RPC error object as a `Refusal`, `None` where it is not one."""
    found = value(error)
    try:
        rpc = msgspec.convert(found, _RpcError)
    except msgspec.ValidationError:
        return None
    # JSON-RPC lets `data` be any value, and a script should get the one that came.
    return Refusal(rpc.code, rpc.message, cast("dict[str, Any] | None", rpc.data), status=status)


def failure_of(
    status: int, headers: Mapping[str, str], body: bytes, *, url: str, session: bool, now_ms: int
) -> GatewayError:
    """Return what an HTTP status other than 2xx means.

    A JSON-RPC error in the body is a `Refusal`, except where HTTP itself says that there is no way
    in (401, 403, a 404 for the session): that, and everything else, is `UpstreamLost`.
    `session` tells whether the request carried a session id.
    """
    rpc = _in_body(body, status)
    place = where(url)
    if status == 429:
        code, message, data = LIMIT_REACHED, _TOO_MANY, None
        if rpc is not None:
            code, message, data = rpc.code, rpc.message, rpc.data
        wait = seconds_of(headers.get("Retry-After"), now_ms)
        return Refusal(code, message, data, status=429, retry_after=wait)
    if status in (401, 403):
        return UpstreamLost(_WORDS[status].format(where=place), status=status)
    if status == 404 and (rpc is None or rpc.code != METHOD_NOT_FOUND):
        words = _SESSION_GONE if session else _NOTHING_HERE
        return UpstreamLost(words.format(where=place), status=404)
    if rpc is not None:
        return rpc
    if 300 <= status < 400:
        target = headers.get("Location", "another place")
        return UpstreamLost(f"{place} redirects to {target}: use that URL", status=status)
    words = _WORDS.get(status, f"{{where}} answered with HTTP status {status}")
    return UpstreamLost(words.format(where=place), status=status)


def seconds_of(retry_after: str | None, now_ms: int) -> float | None:
    """Return a `Retry-After` in seconds (RFC 9110 section 10.2.3), `None` where it says nothing."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, at.timestamp() - now_ms / 1000)


def _in_body(body: bytes, status: int) -> Refusal | None:
    try:
        error = msgspec.json.decode(body, type=_Body).error
    except (msgspec.DecodeError, RecursionError):
        return None
    return refusal_of(msgspec.json.encode(error), status=status)
