"""Dialect C: a task followed by polling alone; its status carries questions, result and error.

Tasks extension, "Task Polling" and "Task Update Requests".
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gateway.client.asker import REJECTED
from gateway.client.means import Means
from gateway.client.options import Outcome
from gateway.client.sep2663 import UPDATE, Sep2663
from gateway.client.trees import as_object
from gateway.client.view import CANCEL, TaskView
from gateway.client.watch import Watch, ended_as
from gateway.protocol.envelope import value
from gateway.protocol.errors import Refusal, UpstreamLost

_NO_REASON: Final = "the task failed without a reason"


class FollowerC:
    """Follows one task and answers each of its questions once."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._words = Sep2663()
        self._seen: set[str] = set()
        self.watch = Watch(means, self._words)

    def __repr__(self) -> str:
        return f"<FollowerC {self.watch!r} {len(self._seen)} questions>"

    async def until_end(self, task_id: str) -> Outcome:
        """Return the outcome; raise `Refusal` or `UpstreamLost` where it cannot be learned."""
        asking: asyncio.Task[None] | None = None
        keys: set[str] = set()
        try:
            while True:
                view, pause = await self.watch.try_look(task_id, hope=False)
                if view is not None and view.ended:
                    return ending(view)
                if asking is not None and asking.done():
                    asking = None
                if asking is not None and view is not None and not keys & view.asks.keys():
                    asking.cancel()
                    self._means.screen.note("the question needs no answer any more")
                    asking = None
                if asking is None and view is not None and (asks := self._new(view)):
                    keys = set(asks)
                    asking = self._means.crew.spawn(self._answer(task_id, asks), "questions")
                await self.watch.pause(pause, asking)
        finally:
            if asking is not None:
                asking.cancel()

    async def answers(self, asks: dict[str, bytes]) -> dict[str, Any]:
        """Return the `inputResponses` to what is asked, without what stays unanswered.

        Raise `Refusal` where the person says no to a question that cannot be declined otherwise.
        """
        found: dict[str, Any] = {}
        for key, ask in asks.items():
            try:
                found[key] = await self._means.asker.respond(ask)
            except Refusal as refused:
                if refused.code == REJECTED:
                    raise
                self._means.screen.note(f"a question stays unanswered: {refused.message}")
        return found

    async def update(self, task_id: str, answers: dict[str, Any]) -> None:
        """Send answers; raise `Refusal` or `UpstreamLost`."""
        params = {**self._words.about(task_id), "inputResponses": answers}
        await self._means.connection.request(UPDATE, params)

    async def cancel(self, task_id: str) -> None:
        """Ask for the end of a task; raise `Refusal` or `UpstreamLost`."""
        await self._means.connection.request(CANCEL, self._words.about(task_id))

    def _new(self, view: TaskView) -> dict[str, bytes]:
        new = {key: ask for key, ask in view.asks.items() if key not in self._seen}
        self._seen |= new.keys()
        return new

    async def _answer(self, task_id: str, asks: dict[str, bytes]) -> None:
        try:
            try:
                answers = await self.answers(asks)
            except Refusal as refused:
                self._means.screen.note(f"the task is cancelled: {refused.message}")
                await self.cancel(task_id)
                return
            if answers:
                await self._deliver(task_id, answers)
        except (Refusal, UpstreamLost) as wrong:
            self._means.screen.note(f"the answer did not reach the server: {wrong}")

    async def _deliver(self, task_id: str, answers: dict[str, Any]) -> None:
        """Send answers, and once more after a broken connection: a key that is answered is ignored."""
        try:
            await self.update(task_id, answers)
        except UpstreamLost:
            await self.watch.pause(1)
            await self.update(task_id, answers)


def ending(view: TaskView) -> Outcome:
    """Return the outcome of a task that has ended."""
    if view.status == "completed" and view.result is not None:
        return Outcome(status="completed", task_id=view.task_id, result=view.result)
    if view.status == "failed":
        error = as_object(value(view.error)) or {"message": view.words or _NO_REASON}
        return Outcome(status="failed", task_id=view.task_id, error=error)
    return ended_as(view)
