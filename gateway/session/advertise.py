"""Edits answers that open a session, so that clients learn of tasks, and nothing else."""

from __future__ import annotations

import msgspec

from gateway.protocol.envelope import members, text_of
from gateway.session.visit import Visit


class Opened(msgspec.Struct, frozen=True):
    """An `initialize` answer as the client gets it, and what it says."""

    message: bytes
    version: str
    own_tasks: bool


def advertise(message: bytes, visit: Visit) -> Opened | None:
    """Say in an `initialize` response what may be a task; `None` where it carries no result."""
    result = members(message).get("result")
    if result is None:
        return None
    version = text_of(members(result).get("protocolVersion")) or ""
    first, second = visit.served.dialects["a"], visit.served.dialects["b"]
    told = second.advertise(first.advertise(message, visit.offer), visit.offer)
    return Opened(told, version, first.knows_tasks(message))
