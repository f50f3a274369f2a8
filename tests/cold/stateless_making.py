"""Makes stateless requests, and JSON of any kind for the rooms that read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from gateway.protocol.envelope import Envelope, peek

VERSION: Final = "2026-07-28"
PREFIX: Final = "io.modelcontextprotocol/"
SUPPORTED: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", VERSION)
META: Final[dict[str, Any]] = {
    f"{PREFIX}protocolVersion": VERSION,
    f"{PREFIX}clientInfo": {"name": "c", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
}
# Where readers break: nested beyond the decoder, half a surrogate pair, keys twice, numbers too big.
BROKEN: Final = (
    b"null",
    b"[]",
    b"[1]",
    b"7",
    b'"text"',
    b"{}",
    b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b"[" * 5000 + b"]" * 5000,
    b'{"\\ud800":"\\udfff","a":"\\ud800"}',
    b'{"a":1,"a":2}',
    b'{"a":' + b"1" * 5000 + b',"b":1e999}',
)
LEAVES: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["\ud800", "complete", "url", "-32002"])
)
JSON: Final = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def raw(data: Any) -> bytes:
    return json.dumps(data).encode()


def request(method: str, params: Any = None, ident: Any = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": ident, "method": method}
    return raw(message if params is None else {**message, "params": params})


def asked(method: str, params: dict[str, Any] | None = None, meta: Any = META) -> Envelope:
    """A stateless request; without `_meta` where `meta` is `None`."""
    inner = dict(params or {})
    if meta is not None:
        inner["_meta"] = meta
    return peek(request(method, inner))


def headers(**named: str) -> Callable[[str], str | None]:
    """Headers by name, with `_` for `-`."""
    found = {name.replace("_", "-").lower(): value for name, value in named.items()}
    return found.get
