"""Edit JSON and leave the rest byte for byte: values keep their spelling, members their order."""

from __future__ import annotations

import msgspec

from gateway.protocol.envelope import dump, members


def set_member(raw: bytes, path: tuple[str, ...], new: bytes) -> bytes:
    """Return the object `raw` with the member at `path` set; objects on the way are made as needed.

    A value on the way that is no object is replaced by one.
    """
    parts = dict[str, bytes | msgspec.Raw](members(raw))
    head, rest = path[0], path[1:]
    if rest:
        old = parts.get(head)
        new = set_member(b"{}" if old is None else bytes(old), rest, new)
    parts[head] = new
    return _join(parts)


def drop_member(raw: bytes, path: tuple[str, ...], *, prune: bool = False) -> bytes:
    """Return the object `raw` without the member at `path`.

    With `prune` an object on the way that the removal left empty goes too.
    """
    parts = dict[str, bytes | msgspec.Raw](members(raw))
    head, rest = path[0], path[1:]
    if head not in parts:
        return raw
    if not rest:
        del parts[head]
        return _join(parts)
    old = bytes(parts[head])
    new = drop_member(old, rest, prune=prune)
    if new is old:
        return raw
    if prune and not members(new):
        del parts[head]
    else:
        parts[head] = new
    return _join(parts)


def _join(parts: dict[str, bytes | msgspec.Raw]) -> bytes:
    return b"{" + b",".join(dump(k) + b":" + bytes(v) for k, v in parts.items()) + b"}"
