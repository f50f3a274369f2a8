"""Cursors of task lists: opaque, and good for the scope they were made for alone."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from gateway.tasks.model import Scope

BEHIND: Final = "upstream"


def cursor_of(scope: Scope, place: str) -> str:
    """Return the cursor of a place in a scope's list."""
    return base64.urlsafe_b64encode(f"{scope.tag}|{place}".encode()).decode().rstrip("=")


def open_cursor(scope: Scope, cursor: str) -> str | None:
    """Return the place of a cursor; one that was made for another scope is as bad as garbage."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        text = ""
    tag, _, place = text.partition("|")
    return place if tag == scope.tag and place.isascii() and place.isalnum() else None
