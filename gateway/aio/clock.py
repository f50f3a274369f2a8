"""Time as something that is handed in, so that tests can set it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, wall-clock milliseconds, and waiting."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds of this clock."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds."""
        await asyncio.sleep(seconds)
