"""The door for plugins: construct without side effects, validate, start, use, stop."""

from __future__ import annotations

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


class Plugin:
    """What every plugin derives from.

    Life: `__init__` keeps the options and has no side effects; `validate` raises `PluginError`
    that names the wrong option; `start` opens what it needs; events come until `stop`, which
    finishes or gives up within the time it is given.
    """

    name: ClassVar[str] = ""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def validate(self) -> None:
        """Raise `PluginError` where an option is missing or wrong."""

    async def start(self) -> None:
        """Open what the plugin needs."""

    async def task_ended(self, event: TaskEnded) -> None:
        """Hear that a task has ended. Must return at once: slow work belongs into a queue of its own."""

    async def stop(self, seconds: float) -> None:
        """Finish what is queued within `seconds`, then let go of everything."""
