"""JSON ids and tokens as keys: two spellings of one string are one id, `1` and `"1"` are two."""

from __future__ import annotations

from gateway.protocol.envelope import Envelope, dump, is_batch, peek, split_batch, text_of
from gateway.protocol.errors import Refusal


def key(ident: bytes | None) -> bytes | None:
    """Return an id in the one spelling that it is compared by."""
    if ident is None or b"\\" not in ident:
        return ident
    text = text_of(ident)
    try:
        return ident if text is None else dump(text)
    except UnicodeEncodeError:
        return ident


def messages(raw: bytes) -> tuple[list[Envelope], int]:
    """Return the messages in a line, an event or a body, and how many parts were none.

    An array is a batch (JSON-RPC 2.0 section 6), which upstreams of before 2025-06-18 may send.
    """
    if not is_batch(raw):
        try:
            return [peek(raw)], 0
        except Refusal:
            return [], 1
    try:
        parts = split_batch(raw)
    except Refusal:
        return [], 1
    found: list[Envelope] = []
    for part in parts:
        try:
            found.append(peek(part))
        except Refusal:
            continue
    return found, len(parts) - len(found)
