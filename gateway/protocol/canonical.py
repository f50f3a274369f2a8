"""One spelling for JSON that means the same, and arrays taken apart without their tree being built.

What is compared or digested must not depend on key order or white space; what is passed on must keep
them, so that items stay raw.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.protocol import lone
from gateway.protocol.envelope import value

_items: Final = msgspec.json.Decoder(list[msgspec.Raw])


def canonical(raw: bytes | msgspec.Raw) -> bytes | None:
    """Return JSON compact and with sorted keys, `None` where it cannot be read as a whole.

    Numbers beyond what a double holds become null.
    """
    found = value(raw)
    if found is None:
        return b"null" if bytes(raw).strip() == b"null" else None
    try:
        return msgspec.json.encode(found, order="sorted")
    except RecursionError:
        return None
    except (UnicodeEncodeError, OverflowError, ValueError):
        return _with_escapes(found)


def items(raw: bytes | msgspec.Raw | None) -> list[bytes] | None:
    """Return the items of a JSON array as raw values, `None` for anything else."""
    if raw is None:
        return None
    try:
        return [bytes(part) for part in _items.decode(raw)]
    except RecursionError:
        return None
    except msgspec.DecodeError:
        return _items_leniently(bytes(raw))


def array(parts: Iterable[bytes]) -> bytes:
    """Return a JSON array of raw values."""
    return b"[" + b",".join(parts) + b"]"


def _with_escapes(found: object) -> bytes | None:
    """Spell what only escapes can say: lone surrogates."""
    try:
        return json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None


def _items_leniently(raw: bytes) -> list[bytes] | None:
    shielded = lone.shield(raw)
    if shielded is None:
        return None
    try:
        return [shielded.restore(bytes(part)) for part in _items.decode(shielded.data)]
    except (msgspec.DecodeError, RecursionError):
        return None
