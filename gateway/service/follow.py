"""A reader of a task's log from an offset: reconnecting is reading on (design section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from gateway.protocol.envelope import members, text_of
from gateway.protocol.errors import StoreAway
from gateway.service.feed import News
from gateway.store.port import Bus, Store
from gateway.tasks.call import is_relay_id
from gateway.tasks.model import Task, TaskKey

_PAGE: Final = 200
_LOOK_AGAIN_SECONDS: Final = 15.0
_STORE_SECONDS: Final = 2.0


async def follow(
    store: Store, bus: Bus, key: TaskKey, after: str | None
) -> AsyncGenerator[News | None, None]:
    """Yield what happened to a task after an offset, then what happens, the final response last.

    `None` says that nothing happened for a while. Ends at once where the task is not there. Server
    requests that have been answered are left out.
    """
    async with bus.watch(key) as bell:
        while True:
            wait = _LOOK_AGAIN_SECONDS
            try:
                found = await store.outcome(key)
                if found is None:
                    return
                task, outcome = found
                while entries := await store.read_log(key, after, _PAGE):
                    for entry in entries:
                        after = entry.offset
                        if _still_matters(task, entry.message):
                            yield News("message", task, entry.message, entry.offset)
                if task.ended:
                    if outcome is not None:
                        yield News("final", task, offset="end", outcome=outcome)
                    return
            except StoreAway:
                # The stream stays: its client would only come back for the same.
                wait = _STORE_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await bell.wait()
            except TimeoutError:
                yield None


def _still_matters(task: Task, message: bytes) -> bool:
    found = members(message)
    ident = bytes(found["id"]) if "id" in found else None
    if not is_relay_id(ident):
        return True
    return text_of(ident) in {pending.relay_id for pending in task.pending}
