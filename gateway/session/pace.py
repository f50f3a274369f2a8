"""Who polls faster than was suggested: counted, not punished."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.aio.clock import Clock
from gateway.service.witness import Witness
from gateway.tasks.model import Task, TaskKey

_POLLERS: Final = 10_000


class Pace:
    """Remembers when each task was last asked for."""

    def __init__(self, witness: Witness, clock: Clock) -> None:
        self._witness = witness
        self._clock = clock
        self._polled: OrderedDict[TaskKey, float] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Pace of {len(self._polled)} tasks>"

    def note(self, task: Task) -> None:
        """Somebody asks for the status of a task."""
        now = self._clock.monotonic()
        before = self._polled.pop(task.key, None)
        if before is not None and task.poll_interval and (now - before) * 2000 < task.poll_interval:
            self._witness.polled_too_fast(task.key.scope.upstream)
        self._polled[task.key] = now
        if len(self._polled) > _POLLERS:
            self._polled.popitem(last=False)
