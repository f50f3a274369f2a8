"""Tasks that a replica leaves to the others as it stops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.protocol.errors import StoreAway
from gateway.service.running import Running
from gateway.store.port import Bus, Command, Store
from gateway.tasks.model import Scope, TaskKey

_NO_KEY: Final = TaskKey(Scope("", ""), "")


async def hand_over(store: Store, bus: Bus, replica: str, running: Sequence[Running]) -> None:
    """End the leases of tasks that were left, and tell others; best effort, leases end by themselves."""
    keys = [one.task.key for one in running if one.handed_over]
    if keys:
        with suppress(StoreAway):
            await store.renew(keys, replica, 0)
            await bus.send_all(Command("orphans", _NO_KEY, sender=replica))
