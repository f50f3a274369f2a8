"""Protocol versions and the two eras they belong to (design section 1)."""

from __future__ import annotations

from typing import Final

HANDSHAKE: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS: Final = ("2026-07-28",)
SUPPORTED: Final = (*reversed(STATELESS), *reversed(HANDSHAKE))
TASKS_IN_CORE: Final = "2025-11-25"
DEFAULT_HEADER: Final = "2025-03-26"
BATCHING: Final = ("2024-11-05", "2025-03-26")


def is_stateless(version: str | None) -> bool:
    """Tell whether a version belongs to the stateless era; versions are dates and compare as text."""
    return version is not None and version >= STATELESS[0]


def allows_batch(version: str | None) -> bool:
    """Tell whether JSON-RPC batches exist in a version (taken out with 2025-06-18)."""
    return (version or DEFAULT_HEADER) in BATCHING
