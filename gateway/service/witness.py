"""Everything that is told to operators about tasks: metrics, the audit log, plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from gateway.hooks.port import TaskEnded
from gateway.observe.logs import TaskEvent, TaskLog
from gateway.observe.metrics import Metrics
from gateway.service.retention import Retention
from gateway.store.port import Line
from gateway.tasks.call import FinishedLabel
from gateway.tasks.machine import TERMINAL
from gateway.tasks.model import NewTask, Scope, Task

TakenWay = Literal["resumed", "retried", "begun", "lost"]
_CALLS: Final[dict[FinishedLabel, str]] = {
    "completed": "ok",
    "tool_error": "error",
    "rpc_error": "error",
    "too_large": "error",
    "timed_out": "timed_out",
    "upstream_lost": "lost",
    "lost": "lost",
    "cancelled": "cancelled",
}


class Witness:
    """Sees each event of each task and tells it on (SEP-1686 section 8.3)."""

    def __init__(self, metrics: Metrics, log: TaskLog, publish: Callable[[TaskEnded], None]) -> None:
        self._metrics = metrics
        self._log = log
        self._publish = publish
        self._retention = Retention()

    def created(self, task: Task) -> None:
        """A task exists."""
        upstream = task.key.scope.upstream
        self._metrics.tasks_created.labels(upstream, task.pattern, task.dialect).inc()
        self._metrics.tasks_now.labels(upstream, task.status).inc()
        self._tell("created", task)

    def moved(self, before: str, task: Task) -> None:
        """A running task changed its status."""
        if before == task.status or before in TERMINAL:
            return
        upstream = task.key.scope.upstream
        self._metrics.tasks_now.labels(upstream, before).dec()
        if not task.ended:
            self._metrics.tasks_now.labels(upstream, task.status).inc()

    def started(self, task: Task) -> None:
        """The upstream call of a task is on its way."""
        waited = max(0, (task.started_at or task.updated_at) - task.created_at) / 1000
        self._metrics.task_queued_seconds.labels(task.key.scope.upstream).observe(waited)
        self._tell("started", task)

    def taken_over(self, task: Task, way: TakenWay) -> None:
        """A task of another replica goes on here, or is lost."""
        self._metrics.tasks_taken_over.labels(task.key.scope.upstream, way).inc()
        self._tell("taken_over", task, reason=way)

    def taken_up(self, task: Task) -> None:
        """A task of another replica is this one's now."""
        self._metrics.tasks_now.labels(task.key.scope.upstream, task.status).inc()

    def left_behind(self, task: Task) -> None:
        """A task of another replica could not be taken up."""
        self.taken_over(task, "lost")

    def asked(self, task: Task, method: str) -> None:
        """The upstream wants something of the client."""
        self._tell("input_required", task, reason=method)

    def answered(self, task: Task, method: str) -> None:
        """The client has answered the upstream."""
        self._tell("answered", task, reason=method)

    def finished(self, task: Task, label: FinishedLabel) -> None:
        """A task has ended."""
        upstream = task.key.scope.upstream
        self._metrics.tasks_finished.labels(upstream, task.pattern, label).inc()
        ended = task.ended_at or task.updated_at
        took = None if task.started_at is None else max(0, ended - task.started_at) / 1000
        if took is not None:
            self._metrics.task_run_seconds.labels(upstream, task.pattern).observe(took)
        self._tell("finished", task, reason=label, seconds=took)
        self._retention.ended(task)
        self._publish(
            TaskEnded(
                upstream=upstream,
                task_id=task.key.task_id,
                scope=task.key.scope.tag,
                session=task.session,
                dialect=task.dialect,
                method=task.method,
                tool=task.tool,
                status=task.status,
                is_error=task.is_error,
                error=task.error,
                created_at=task.created_at,
                ended_at=ended,
            )
        )

    def fetched(self, task: Task) -> None:
        """Somebody took the result."""
        self._tell("fetched", task)

    def deleted(self, task: Task) -> None:
        """A task was deleted by its owner."""
        self._retention.gone(task.key)
        self._tell("deleted", task)

    def tell_expired(self, now_ms: int) -> None:
        """Tell of the tasks that ended here and whose keep-alive is over."""
        for task in self._retention.over(now_ms):
            self._tell("expired", task)

    def refused(self, scope: Scope, session: str, task_id: str, reason: str) -> None:
        """A task was not made."""
        self._log.event(
            "refused",
            upstream=scope.upstream,
            scope=scope.tag,
            session=session or None,
            task_id=task_id,
            reason=reason,
        )

    def crowded(self, new: NewTask) -> None:
        """A task was not made: too many wait for a turn."""
        self._metrics.turns_refused.labels(new.key.scope.upstream, new.pattern).inc()
        self.refused(new.key.scope, new.session, new.key.task_id, "max_queued")

    def lookup_failed(self, upstream: str) -> None:
        """Somebody asked for a task that is not there, or not theirs."""
        self._metrics.lookups_failed.labels(upstream).inc()

    def polled_too_fast(self, upstream: str) -> None:
        """Somebody polls faster than suggested."""
        self._metrics.polls_too_fast.labels(upstream).inc()

    def dropped(self, where: str) -> None:
        """Something for a client stream did not fit."""
        self._metrics.events_dropped.labels(where).inc()

    def limit_hit(self, limit: str) -> None:
        """A bound was met."""
        self._metrics.limits_hit.labels(limit).inc()

    def turns(self, line: Line, held: int, waiting: int) -> None:
        """The turns of a rule have changed on this replica."""
        gauge = self._metrics.turns_now
        gauge.labels(line.upstream, line.pattern, "held").set(held)
        gauge.labels(line.upstream, line.pattern, "waiting").set(waiting)

    def called(self, task: Task, label: FinishedLabel, seconds: float) -> None:
        """An upstream call for a task is over."""
        upstream = task.key.scope.upstream
        self._metrics.upstream_calls.labels(upstream, task.method, _CALLS[label]).inc()
        self._metrics.upstream_call_seconds.labels(upstream, task.method).observe(seconds)

    def _tell(
        self, event: TaskEvent, task: Task, reason: str | None = None, seconds: float | None = None
    ) -> None:
        self._log.event(
            event,
            upstream=task.key.scope.upstream,
            scope=task.key.scope.tag,
            session=task.session or None,
            task_id=task.key.task_id,
            dialect=task.dialect,
            method=task.method,
            tool=task.tool,
            status=task.status,
            is_error=task.is_error,
            reason=reason,
            seconds=seconds,
        )
