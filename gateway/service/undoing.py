"""A creation that nobody waited for is taken back: the store may have carried it out all the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.errors import StoreAway
from gateway.store.port import Store
from gateway.tasks.model import TaskKey

_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0)


async def undo(
    store: Store, clock: Clock, replica: str, key: TaskKey, runs: Callable[[TaskKey], bool]
) -> None:
    """Remove a task if it is this replica's and does not run, once the store is back."""
    for seconds in _SECONDS:
        await clock.sleep(seconds)
        with suppress(StoreAway):
            task = await store.get(key)
            ours = task is not None and task.owner == replica and not task.ended
            if ours and not runs(key):
                await store.remove(key)
            return
