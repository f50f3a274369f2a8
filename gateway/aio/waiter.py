"""The wait of one consumer for the next thing: woken by whoever has it, at the cost of one future."""

from __future__ import annotations

import asyncio


class Waiter:
    """Wakes the one that waits; who is woken looks for itself what there is."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Waiter {'waits' if self._future is not None else 'idle'}>"

    async def wait(self) -> None:
        """Return when it is woken next."""
        self._future = asyncio.get_running_loop().create_future()
        try:
            await self._future
        finally:
            self._future = None

    def wake(self) -> None:
        """Wake the one that waits, if one does."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
