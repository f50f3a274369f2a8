"""Dialect A: a task followed to its end, polling raced with the original answer.

SEP-1686, backward compatibility: whichever is there first wins. A stream that breaks is no loss: the
task runs on, and polling finds its end.
"""

from __future__ import annotations

from typing import Final

from gateway.client.connection import Exchange
from gateway.client.means import Means
from gateway.client.options import Outcome
from gateway.client.sep1686 import Sep1686
from gateway.client.view import RESULT, TaskView
from gateway.client.watch import Watch, as_error, ended_as, pause_after
from gateway.protocol.errors import Refusal, UpstreamLost

_GRACE_SECONDS: Final = 0.5


class FollowerA:
    """Follows one task; `original` is the request that began it, where this client sent it."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._words = Sep1686()
        self.watch = Watch(means, self._words)

    def __repr__(self) -> str:
        return f"<FollowerA {self.watch!r}>"

    async def until_end(self, task_id: str, original: Exchange | None = None) -> Outcome:
        """Return the outcome; raise `Refusal` or `UpstreamLost` where it cannot be learned."""
        while True:
            if original is not None and original.answer.done():
                outcome = self._verdict(task_id, original)
                if outcome is not None:
                    return outcome
                original = None
            # A look that fails for good still leaves the original answer to wait for.
            view, pause = await self.watch.try_look(task_id, hope=original is not None)
            if view is not None and view.ended:
                return await self._ending(view, original)
            await self.watch.pause(pause, None if original is None else original.answer)

    async def fetch(self, task_id: str) -> Outcome:
        """Fetch the result of a completed task; waits where the server says that it is too often."""
        failures = 0
        while True:
            try:
                result = await self._means.connection.request(RESULT, self._words.about(task_id))
                return Outcome(status="completed", task_id=task_id, result=result)
            except (Refusal, UpstreamLost) as wrong:
                failures += 1
                pause = pause_after(wrong, failures)
                if pause is None:
                    raise
                await self.watch.pause(pause)

    async def _ending(self, view: TaskView, original: Exchange | None) -> Outcome:
        if view.status == "completed":
            return await self.fetch(view.task_id)
        if view.status == "failed" and original is not None:
            # The original answer may be on its way, with the error's code and data.
            await self.watch.pause(_GRACE_SECONDS, original.answer)
            if original.answer.done() and (outcome := self._verdict(view.task_id, original)) is not None:
                return outcome
        return ended_as(view)

    def _verdict(self, task_id: str, original: Exchange) -> Outcome | None:
        wrong = original.answer.exception()
        if wrong is None:
            return Outcome(status="completed", task_id=task_id, result=original.answer.result())
        if isinstance(wrong, Refusal):
            return Outcome(status="failed", task_id=task_id, error=as_error(wrong))
        self._means.screen.note(f"{wrong}; the task runs on and is polled")
        return None
