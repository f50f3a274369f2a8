"""Tasks that a replica leaves to the others as it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.protocol.errors import StoreAway
from gateway.service.running import Running
from gateway.store.port import Bus, Claim, Command, Store
from gateway.tasks.model import Scope, TaskKey

_NO_KEY: Final = TaskKey(Scope("", ""), "")


async def hand_over(store: Store, bus: Bus, replica: str, running: Sequence[Running]) -> None:
    """End the leases of tasks that were left, and tell others; best effort, leases end by themselves."""
    left = [one for one in running if one.handed_over]
    if left:
        with suppress(StoreAway):
            # What was taken up, or held on to, a moment ago is held beyond its lease.
            await asyncio.gather(*(store.hold(one.task.key, Claim(replica, one.epoch), 0) for one in left))
            await store.renew([one.task.key for one in left], replica, 0)
            await bus.send_all(Command("orphans", _NO_KEY, sender=replica))
