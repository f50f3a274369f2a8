"""What concerns a whole session, whichever replicas have a part of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gateway.protocol.errors import StoreAway
from gateway.store.port import Bus, Command, CommandKind, Store
from gateway.tasks.model import Scope, TaskKey

_PAGE: Final = 200
_NO_KEY: Final = TaskKey(Scope("", ""), "")


async def runs_anywhere(store: Store, scope: Scope | None, session: str) -> bool:
    """Tell whether any task of a session runs; true where the store cannot say."""
    place: str | None = None
    while scope is not None:
        try:
            tasks, place = await store.page(scope, place, _PAGE)
        except StoreAway:
            # Nobody knows; a session that stays open harms less than one that is cut off.
            return True
        if any(task.session == session and not task.ended for task in tasks):
            return True
        if place is None:
            return False
    return False


async def tell_all(bus: Bus, kind: CommandKind, replica: str, session: str, message: bytes = b"") -> None:
    """Tell all replicas of something that concerns a session; best effort."""
    with suppress(StoreAway):
        await bus.send_all(Command(kind, _NO_KEY, message, session, replica))
