"""Keep-alives that run out, as far as this replica knows; only for telling, the store forgets by itself."""

from __future__ import annotations

import heapq
from typing import Final

from gateway.tasks.model import Task, TaskKey

CAPACITY: Final = 100_000


class Retention:
    """Tasks that ended here and when their keep-alive is over; bounded, the rest goes untold."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._due: list[tuple[int, str, TaskKey]] = []
        self._tasks: dict[TaskKey, Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def ended(self, task: Task) -> None:
        """Remember a task that has just ended."""
        over = task.expires_at
        if over is None or len(self._due) >= self._capacity:
            return
        heapq.heappush(self._due, (over, task.key.digest, task.key))
        self._tasks[task.key] = task

    def gone(self, key: TaskKey) -> None:
        """Forget a task that was deleted."""
        self._tasks.pop(key, None)

    def over(self, now_ms: int) -> list[Task]:
        """Return the tasks whose keep-alive is over by now, each once."""
        found: list[Task] = []
        while self._due and self._due[0][0] <= now_ms:
            _, _, key = heapq.heappop(self._due)
            task = self._tasks.pop(key, None)
            if task is not None:
                found.append(task)
        return found
