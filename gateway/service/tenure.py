"""How long this replica may act for a task: what may belong to another by now is left alone (design I3)."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.aio.clock import Clock
from gateway.service.gone import TaskGone

# Clocks of two machines do not run at quite the same speed.
_SAFE: Final = 0.95


class Tenure:
    """The lease of one task by this replica's own clock, counted from before it was asked for.

    While it `holds` no other replica can have the task. A process that was stopped, or cut off from the
    store, finds that it does not, and sends nothing to anybody until the store has said whose the
    task is.
    """

    def __init__(self, clock: Clock, began: float, lease_ms: int) -> None:
        self._clock = clock
        self._lease = lease_ms / 1000
        self._until = began + _SAFE * self._lease
        self._changed = asyncio.Event()
        self._over = False

    def __repr__(self) -> str:
        state = "over" if self._over else "held" if self.holds else "not sure"
        return f"<Tenure {state}>"

    @property
    def holds(self) -> bool:
        """Whether the task is surely this replica's."""
        return not self._over and self._clock.monotonic() < self._until

    def renew(self, began: float) -> None:
        """Take note that the lease was renewed by what was asked for at `began` (monotonic seconds)."""
        self._until = began + _SAFE * self._lease
        self._changed.set()

    def end(self) -> None:
        """Take note that this replica has nothing more to say for the task."""
        self._over = True
        self._changed.set()

    async def sure(self) -> None:
        """Return once the task is surely this replica's; raise `TaskGone` where it is not any more."""
        while not self.holds:
            if self._over:
                raise TaskGone
            self._changed.clear()
            await self._changed.wait()
