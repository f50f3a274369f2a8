"""An event loop whose time is only counted: when nobody can go on it is as late as the next timer wants."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar
from unittest.mock import patch

T = TypeVar("T")
# A day of the year 2026, in seconds since the epoch.
START: Final = 1_790_000_000.0
STEPS: Final = 2_000_000


class Stuck(AssertionError):
    """Nothing can go on, and no timer runs: somebody waits for ever. Or too much goes on for ever."""


class _NoFiles(selectors.BaseSelector):
    """A selector without files: to wait is to let time pass."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = 0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take a file and never look at it: the loop has one to be woken by other threads."""
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Let go of a file."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let `timeout` seconds pass; raise `Stuck` where there is nothing to wait for."""
        self.steps += 1
        if timeout is None:
            raise Stuck("nothing can go on, and no timer runs")
        if self.steps > STEPS:
            raise Stuck(f"it goes on and on: {STEPS} steps")
        self.seconds += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return what is registered."""
        return self._keys

    def close(self) -> None:
        """Let go of everything."""
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time` counts from 0, `wall` from a fixed day."""

    def __init__(self) -> None:
        self._files = _NoFiles()
        super().__init__(self._files)

    @property
    def steps(self) -> int:
        """How often the loop went round."""
        return self._files.steps

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self._files.seconds

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return START + self._files.seconds


class VirtualClock:
    """The `Clock` of a virtual loop; `ahead` is how wrong its wall clock goes, in milliseconds."""

    def __init__(self, loop: VirtualLoop, ahead: int = 0) -> None:
        self._loop = loop
        self._ahead = ahead

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._loop.time()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self._loop.wall() * 1000) + self._ahead

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def run(loop: VirtualLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run to the end under virtual time, which the embedded server's clock shows too."""
    with (
        patch.object(time, "time", loop.wall),
        patch.object(time, "time_ns", lambda: int(loop.wall() * 1e9)),
        patch.object(time, "monotonic", loop.time),
    ):
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(work)
        finally:
            asyncio.set_event_loop(None)
            loop.close()
