"""Edits `initialize` answers, so that clients learn of tasks, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.dialects.port import Dialect
from gateway.protocol.envelope import members, text_of


class Opened(msgspec.Struct, frozen=True):
    """An `initialize` answer as the client gets it, and what it says."""

    message: bytes
    version: str
    own_tasks: bool


def advertise(message: bytes, dialect: Dialect, methods: Sequence[str]) -> Opened | None:
    """Say in an `initialize` response which methods may be tasks; `None` where it carries no result."""
    result = members(message).get("result")
    if result is None:
        return None
    version = text_of(members(result).get("protocolVersion")) or ""
    return Opened(dialect.advertise(message, methods), version, dialect.knows_tasks(message))
