"""Edit JSON and leave the rest byte for byte: values keep their spelling, members their order."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import dump, members
from gateway.protocol.errors import Refusal

_encode: Final = msgspec.json.Encoder().encode
Parts = dict[str, bytes | msgspec.Raw]


def set_member(raw: bytes, path: tuple[str, ...], new: bytes) -> bytes:
    """Return the object `raw` with the member at `path` set; objects on the way are made as needed.

    A value on the way that is no object is replaced by one. Raises `Refusal` for an object that
    cannot be taken apart (nested too deeply), rather than lose what it holds.
    """
    parts = take_apart(raw)
    head, rest = path[0], path[1:]
    if rest:
        old = parts.get(head)
        new = set_member(b"{}" if old is None else bytes(old), rest, new)
    parts[head] = new
    return put_together(parts)


def drop_member(raw: bytes, path: tuple[str, ...], *, prune: bool = False) -> bytes:
    """Return the object `raw` without the member at `path`.

    With `prune` an object on the way that the removal left empty goes too.
    """
    parts = take_apart(raw)
    head, rest = path[0], path[1:]
    if head not in parts:
        return raw
    if not rest:
        del parts[head]
        return put_together(parts)
    old = bytes(parts[head])
    new = drop_member(old, rest, prune=prune)
    if new is old:
        return raw
    if prune and not members(new):
        del parts[head]
    else:
        parts[head] = new
    return put_together(parts)


def take_apart(raw: bytes) -> Parts:
    """Return the members of an object in their order; raise `Refusal` where it is nested too deeply."""
    found = Parts(members(raw))
    if not found and raw[:1] == b"{" and raw[1:].lstrip(b" \t\r\n")[:1] != b"}":
        raise Refusal(INTERNAL_ERROR, "The message is nested too deeply to be edited")
    return found


def put_together(parts: Parts) -> bytes:
    """Return an object of these members."""
    raw = msgspec.Raw
    try:
        return _encode({name: part if type(part) is raw else raw(part) for name, part in parts.items()})
    except UnicodeEncodeError:
        return b"{" + b",".join([b"%b:%b" % (_spelt(name), part) for name, part in parts.items()]) + b"}"


def _spelt(name: str) -> bytes:
    try:
        return dump(name)
    except UnicodeEncodeError:
        # A lone surrogate: only an escape can say it.
        return json.dumps(name).encode()
