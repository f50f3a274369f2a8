"""Tells a session's own stream of what becomes of its tasks, wherever that stream is (2025-11-25 tasks)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.service.feed import News
from gateway.service.listeners import Listeners
from gateway.tasks.model import DialectName, Outcome, Task

# The dialects whose clients are told on the session's stream; the others read the log, or subscribe.
_TOLD: Final[frozenset[DialectName]] = frozenset({"b"})
Announce = Callable[[Task, Outcome | None], None]


class Announcer:
    """Takes each change of status to the stream of the session that asked."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def __repr__(self) -> str:
        return f"<Announcer to {self._listeners!r}>"

    def moved(self, task: Task, outcome: Outcome | None = None) -> None:
        """A task has another status now."""
        del outcome
        if task.dialect in _TOLD and task.session:
            self._listeners.tell(task.session, News("status", task))

    def passed_on(self, task: Task, message: bytes) -> None:
        """The upstream said something for the client of a task that has no stream of its own."""
        if task.dialect in _TOLD and task.session:
            self._listeners.tell(task.session, News("message", task, message))
