"""Which dialect a request speaks, and which one a task is described in."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.dialects.port import About, Dialect
from gateway.protocol.envelope import Envelope
from gateway.protocol.eras import TASKS_IN_CORE
from gateway.tasks.model import DialectName, Task

Dialects = Mapping[DialectName, Dialect]


def reader(
    dialects: Dialects, session_version: str | None, envelope: Envelope
) -> tuple[Dialect, About] | None:
    """Return what a request of a handshake session asks about tasks, and the dialect that reads it.

    From 2025-11-25 on that is dialect B, which `tasks/delete` is not of; `None` where the request is
    not about tasks. Raises `Refusal` -32602 in that dialect's words where it is malformed.
    """
    for dialect in _handshake(dialects, session_version):
        about = dialect.read_about(envelope)
        if about is not None:
            return dialect, about
    return None


def asker(dialects: Dialects, version: str | None, request: Envelope) -> Dialect | None:
    """Return the dialect that a request of a handshake session asks for a task in, however badly.

    Dialect A's key is good in every version (SEP-1686 section 3.1) and goes first; `None` where the
    request asks for none.
    """
    for dialect in reversed(_handshake(dialects, version)):
        if dialect.wants_task(request):
            return dialect
    return None


def described_by(dialects: Dialects, task: Task, asker: Dialect) -> Dialect:
    """Return the dialect in which a task is described to one who asked in dialect `asker`.

    Within the handshake era that is the one the task was made in; tasks of the stateless era are
    described in the asker's, and so are all tasks to one of the stateless era.
    """
    if asker.name == "c" or task.dialect not in ("a", "b"):
        return asker
    return dialects[task.dialect]


def _handshake(dialects: Dialects, version: str | None) -> tuple[Dialect, ...]:
    return (dialects["b"], dialects["a"]) if (version or "") >= TASKS_IN_CORE else (dialects["a"],)
