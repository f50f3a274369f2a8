"""Edits `initialize` answers, so that clients learn of tasks, and nothing else."""

from __future__ import annotations

import msgspec

from gateway.protocol.envelope import dump, members, text_of
from gateway.protocol.splice import set_member


class Opened(msgspec.Struct, frozen=True):
    """An `initialize` answer as the client gets it, and what it says."""

    message: bytes
    version: str
    own_tasks: bool


def advertise(message: bytes, capability: dict[str, dict[str, bool]]) -> Opened | None:
    """Add the tasks capability to an `initialize` response (SEP-1686 section 2).

    What the upstream says of its own tasks stays. `None` where the message carries no result.
    """
    result = members(message).get("result")
    if result is None:
        return None
    found = members(result)
    own = members(found.get("capabilities")).get("tasks")
    for category, names in capability.items():
        message = set_member(message, ("result", "capabilities", "tasks", category), dump(names))
    return Opened(message, text_of(found.get("protocolVersion")) or "", own is not None)
