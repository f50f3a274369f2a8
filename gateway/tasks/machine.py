"""The moves a task may make: one table, and the guard in the store's scripts is made from it."""

from __future__ import annotations

from typing import Final

from gateway.protocol.errors import IllegalMove
from gateway.tasks.model import Status

TERMINAL: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled", "unknown"})

_NONE: Final[frozenset[Status]] = frozenset()
_FROM_SUBMITTED: Final[frozenset[Status]] = frozenset({"working", "input_required", *TERMINAL})
_FROM_WORKING: Final[frozenset[Status]] = frozenset({"input_required", *TERMINAL})
_FROM_INPUT: Final[frozenset[Status]] = frozenset({"working", *TERMINAL})

# SEP-1686 section 4.3: terminal states never change.
MOVES: Final[dict[Status, frozenset[Status]]] = {
    "submitted": _FROM_SUBMITTED,
    "working": _FROM_WORKING,
    "input_required": _FROM_INPUT,
    "completed": _NONE,
    "failed": _NONE,
    "cancelled": _NONE,
    "unknown": _NONE,
}


def check_move(status: Status, target: Status) -> None:
    """Raise `IllegalMove` where the table does not have the move."""
    if target not in MOVES[status]:
        raise IllegalMove(status, target)
