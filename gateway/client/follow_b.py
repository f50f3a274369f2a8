"""Dialect B: a task followed by polling; `tasks/result` brings its questions, and its end.

2025-11-25, basic/utilities/tasks: "Getting Tasks", "Input Required Status", "Result Retrieval".
"""

from __future__ import annotations

from typing import Final

from gateway.client.connection import Exchange
from gateway.client.means import Means
from gateway.client.options import Outcome
from gateway.client.plain import outcome_of
from gateway.client.v2025_11_25 import V20251125
from gateway.client.view import CANCEL, RESULT, TaskView, read_task
from gateway.client.watch import Watch, as_error, ended_as, pause_after
from gateway.protocol.envelope import members
from gateway.protocol.errors import Refusal, UpstreamLost

_GRACE_SECONDS: Final = 0.5


class FollowerB:
    """Follows one task."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._words = V20251125()
        self.watch = Watch(means, self._words)

    def __repr__(self) -> str:
        return f"<FollowerB {self.watch!r}>"

    async def until_end(self, task_id: str) -> Outcome:
        """Return the outcome; raise `Refusal` or `UpstreamLost` where it cannot be learned."""
        asking: Exchange | None = None
        while True:
            view, pause = await self.watch.try_look(task_id, hope=asking is not None)
            if view is not None and view.ended:
                if asking is not None:
                    await self.watch.pause(_GRACE_SECONDS, asking.answer)
                return _brought(task_id, asking) or await self.ending(view)
            if view is not None and view.status == "input_required" and asking is None:
                # Its stream carries what the server asks; the answers go out beside it.
                asking = self._means.connection.start(RESULT, self._words.about(task_id))
            with self._means.desk.news_of(task_id) as news:
                await self.watch.pause(pause, news, None if asking is None else asking.answer)
            if (outcome := _brought(task_id, asking)) is not None:
                return outcome
            if asking is not None and asking.answer.done():
                asking = None

    async def ending(self, view: TaskView) -> Outcome:
        """Return the outcome of a task that has ended; raise `Refusal` or `UpstreamLost`."""
        if view.status == "cancelled":
            return ended_as(view)
        if view.status != "failed":
            return await self._fetch(view.task_id)
        try:
            found = await self._fetch(view.task_id)
        except Refusal as wrong:
            return Outcome(status="failed", task_id=view.task_id, error=as_error(wrong))
        # The official Python package keeps no errors: it answers with a result that says nothing.
        return found if found.status == "failed" else ended_as(view)

    async def cancel(self, task_id: str) -> TaskView:
        """Cancel a task and return what the server says of it; raise `Refusal` or `UpstreamLost`."""
        result = await self._means.connection.request(CANCEL, self._words.about(task_id))
        return read_task(self._words, result, task_id)

    async def _fetch(self, task_id: str) -> Outcome:
        """Fetch exactly what the plain call would have brought."""
        failures = 0
        while True:
            try:
                result = await self._means.connection.request(RESULT, self._words.about(task_id))
            except (Refusal, UpstreamLost) as wrong:
                failures += 1
                pause = pause_after(wrong, failures, only_full=True)
                if pause is None:
                    raise
                await self.watch.pause(pause)
            else:
                return outcome_of(result, task_id)


def _brought(task_id: str, asking: Exchange | None) -> Outcome | None:
    if asking is None or not asking.answer.done() or asking.answer.exception() is not None:
        return None
    result = asking.answer.result()
    # A result without content is none of a tool: the status tells then what happened.
    return outcome_of(result, task_id) if "content" in members(result) else None
