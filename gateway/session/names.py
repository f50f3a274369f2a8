"""Names of tasks that the gateway makes, and whose a task is that is asked for by its name.

Where the asker is known the scope is the asker's. Where nobody can be told apart a task belongs to
whoever knows its id (design section 1): 128 random bits, and behind them the place where it is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from gateway.session.token import derive
from gateway.session.visit import Visit
from gateway.tasks.call import ANYBODY, relayed_hint
from gateway.tasks.model import Scope

_OURS: Final = re.compile(r"[0-9a-f]{32}-([0-9a-f]{16})")
_PLACE: Final = re.compile(r"[0-9a-f]{16}")
NOBODY: Final = "0" * 16


class Names:
    """Makes ids, and finds the scope of one."""

    def __init__(self, secret: bytes) -> None:
        self._key = derive(secret, b"place of a session")

    def __repr__(self) -> str:
        return "<Names>"

    def new(self, visit: Visit) -> tuple[Scope, str]:
        """Return the scope and the id of a new task."""
        ident = secrets.token_hex(16)
        if visit.known and visit.scope is not None:
            return visit.scope, ident
        place = NOBODY if visit.session is None else self._place(visit.session.tag)
        return Scope(visit.served.name, ANYBODY + place), f"{ident}-{place}"

    def scope_of(self, visit: Visit, task_id: str) -> Scope | None:
        """Return the scope in which a visit may see a task of that id; `None` where it can see none."""
        found = None if visit.known else _OURS.fullmatch(task_id)
        if found is None:
            return visit.scope
        return Scope(visit.served.name, ANYBODY + found[1])

    def scope_of_relay(self, visit: Visit, relay: str) -> Scope | None:
        """Return the scope of the task whose server request a visit answers."""
        place = relayed_hint(relay)
        if not place or visit.known:
            return visit.scope
        return Scope(visit.served.name, ANYBODY + place) if _PLACE.fullmatch(place) else None

    def belongs_to_nobody(self, scope: Scope) -> bool:
        """Tell whether a scope is everybody's who came without session and credential."""
        return scope.tag == ANYBODY + NOBODY

    def _place(self, tag: str) -> str:
        return hmac.new(self._key, tag.encode(), hashlib.sha256).hexdigest()[:16]
