"""How many workers there are to be, and whether they can be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

from gateway.config.model import Config

_ALONE: Final = (
    "workers share nothing but the store, and memory:// is in one process; "
    "set store.url to redis://, or serve with one worker"
)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def number_of(config: Config, asked: int | None = None) -> int:
    """Return the number of workers: what the command line asked for, else what is configured."""
    return (config.workers if asked is None else asked) or usable_cores()


def worker_mistakes(
    config: Config, asked: int | None = None
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield why there cannot be so many workers, with the place in the configuration."""
    number = number_of(config, asked)
    if number > 1 and config.store.url.get_secret_value().startswith("memory:"):
        yield ("workers",), f"there are to be {number}; {_ALONE}"
