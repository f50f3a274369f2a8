"""The door for plugins: construct without side effects, validate, start, use, stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from gateway.tasks.model import Status


class TaskEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A task has reached a terminal status. Times in milliseconds since the epoch by the store's clock.

    Carries neither arguments nor results.
    """

    upstream: str
    task_id: str
    scope: str
    session: str
    dialect: str
    method: str
    tool: str | None
    status: Status
    is_error: bool
    error: str | None
    created_at: int
    ended_at: int


def _uncounted(_outcome: str) -> None:
    """Count nothing: a plugin outside the house."""


class Plugin:
    """What every plugin derives from.

    Life: `__init__` keeps the options and has no side effects; `validate` raises `PluginError`
    that names the wrong option; `start` opens what it needs; `run` does the plugin's own long work
    in a task that the house owns; events come until `stop`, which finishes or gives up within the
    time it is given. `count` is the house's counter of what became of an event: call it with a word
    from a small fixed set.
    """

    name: ClassVar[str] = ""
    count: Callable[[str], None] = staticmethod(_uncounted)

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def validate(self) -> None:
        """Raise `PluginError` where an option is missing or wrong."""

    async def start(self) -> None:
        """Open what the plugin needs."""

    async def run(self) -> None:
        """Do what takes longer than an event, from `start` until `stop`; cancelled when `stop` is over."""

    async def task_ended(self, event: TaskEnded) -> None:
        """Hear that a task has ended. Must return at once: slow work belongs into a queue of its own."""

    async def stop(self, seconds: float) -> None:
        """Finish what is queued within `seconds`, then let go of everything."""
