"""Signals that say "end", and say it more urgently each time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Final

_ONE_SECONDS: Final = 0.05


def hear(levels: Mapping[signal.Signals, int], order: Callable[[int], None]) -> None:
    """Call `order` with the level of each signal that comes, one more where it would be no more urgent.

    Signals that come at the same moment are one: a process group is often sent what its leader gets.
    """
    loop = asyncio.get_running_loop()
    given = 0
    heard: set[int] = set()

    def tell() -> None:
        nonlocal given
        given = max(*heard, given + 1)
        heard.clear()
        order(given)

    def note(level: int) -> None:
        if not heard:
            loop.call_later(_ONE_SECONDS, tell)
        heard.add(level)

    for number, level in levels.items():
        loop.add_signal_handler(number, note, level)
