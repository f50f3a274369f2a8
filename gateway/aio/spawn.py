"""Tasks of the event loop that have an owner: it keeps them, logs their death, and ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

_log = logging.getLogger("gateway.aio")
_ROUNDS = 20
_ROUND_SECONDS = 1.0
_AGAIN_SECONDS = 1.0


class Crew:
    """Owns background tasks: a strong reference to each, a log line for each failure, an end to all."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Crew {self._name}: {len(self._tasks)} running>"

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `work`; its failure is logged, never lost."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def keep(self, make: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[Any]:
        """Start work that must not end by failing: it is begun again a second after its failure."""
        return self.spawn(self._keep(make, name), name)

    async def _keep(self, make: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            try:
                await make()
            except Exception:  # noqa: BLE001 logged with its trace, and begun again
                _log.exception("%s: %s failed and begins again", self._name, name)
            else:
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def drain(self, seconds: float) -> bool:
        """Wait up to `seconds` for all tasks to end by themselves; tell whether they did."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        return not self._tasks

    async def close(self) -> None:
        """Cancel what still runs and wait for it; what swallows a cancellation is cancelled again."""
        me = asyncio.current_task()
        for _ in range(_ROUNDS):
            tasks = {task for task in self._tasks if task is not me}
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_ROUND_SECONDS)
        _log.error("%s: %d tasks do not end", self._name, len(self._tasks))

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)
