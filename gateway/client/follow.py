"""A task followed to its end: polling raced with the original answer.

SEP-1686, backward compatibility: whichever is there first wins. A stream that breaks is no loss: the
task runs on, and polling finds its end.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.client.connection import Connection, Exchange
from gateway.client.options import Outcome
from gateway.client.screen import Screen
from gateway.client.sep1686 import GET, RESULT, TaskView, about, read_task
from gateway.protocol.codes import INTERNAL_ERROR, UPSTREAM_UNAVAILABLE
from gateway.protocol.errors import Refusal, UpstreamLost

_TRIES: Final = 8
_PAUSE_FIRST: Final = 0.5
_PAUSE_MOST: Final = 15.0
_WAIT_LEAST: Final = 0.5
_GRACE_SECONDS: Final = 0.5
_HOPELESS: Final = (401, 403, 404)
_PASSING: Final = (INTERNAL_ERROR, UPSTREAM_UNAVAILABLE)


class Follower:
    """Follows one task; `original` is the request that began it, where this client sent it."""

    def __init__(self, connection: Connection, screen: Screen, clock: Clock, crew: Crew) -> None:
        self._connection = connection
        self._screen = screen
        self._clock = clock
        self._crew = crew
        self._status = ""

    def __repr__(self) -> str:
        return f"<Follower {self._status or 'new'}>"

    async def until_end(self, task_id: str, original: Exchange | None) -> Outcome:
        """Return the outcome; raise `Refusal` or `UpstreamLost` where it cannot be learned."""
        failures = 0
        while True:
            if original is not None and original.answer.done():
                outcome = self._verdict(task_id, original)
                if outcome is not None:
                    return outcome
                original = None
            try:
                view = await self.look(task_id)
                if view.ended:
                    return await self._ending(view, original)
            except (Refusal, UpstreamLost) as wrong:
                failures += 1
                pause = _pause_after(wrong, failures)
                if pause is None and original is None:
                    raise
                # A look that fails for good still leaves the original answer to wait for.
                pause = _PAUSE_MOST if pause is None else pause
                self._screen.note(f"cannot look at the task: {wrong}; trying again in {pause:g} s")
            else:
                failures, pause = 0, view.poll_seconds
                self._show(view)
            await self.pause(pause, original)

    async def look(self, task_id: str) -> TaskView:
        """Ask for the status once."""
        return read_task(await self._connection.request(GET, about(task_id)), task_id)

    async def pause(self, seconds: float, original: Exchange | None) -> None:
        """Wait, but not beyond the original answer."""
        sleeper = self._crew.spawn(self._clock.sleep(seconds), "pause")
        waiting: set[asyncio.Future[Any]] = {sleeper}
        if original is not None:
            waiting.add(original.answer)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        sleeper.cancel()

    async def fetch(self, task_id: str) -> Outcome:
        """Fetch the result of a completed task; waits where the server says that it is too often."""
        failures = 0
        while True:
            try:
                result = await self._connection.request(RESULT, about(task_id))
                return Outcome(status="completed", task_id=task_id, result=result)
            except (Refusal, UpstreamLost) as wrong:
                failures += 1
                pause = _pause_after(wrong, failures)
                if pause is None:
                    raise
                await self.pause(pause, None)

    async def _ending(self, view: TaskView, original: Exchange | None) -> Outcome:
        if view.status == "completed":
            return await self.fetch(view.task_id)
        if view.status == "failed" and original is not None:
            # The original answer may be on its way, with the error's code and data.
            await self.pause(_GRACE_SECONDS, original)
            if original.answer.done() and (outcome := self._verdict(view.task_id, original)) is not None:
                return outcome
        words = view.error or f"the task ended as {view.status}"
        return Outcome(status=view.status, task_id=view.task_id, error={"message": words})

    def _verdict(self, task_id: str, original: Exchange) -> Outcome | None:
        wrong = original.answer.exception()
        if wrong is None:
            return Outcome(status="completed", task_id=task_id, result=original.answer.result())
        if isinstance(wrong, Refusal):
            return Outcome(status="failed", task_id=task_id, error=as_error(wrong))
        self._screen.note(f"{wrong}; the task runs on and is polled")
        return None

    def _show(self, view: TaskView) -> None:
        if view.status != self._status:
            self._status = view.status
            self._screen.note(f"task {view.task_id}: {view.status}")


def as_error(wrong: Refusal | UpstreamLost) -> dict[str, object]:
    """Return an error as the members that JSON-RPC gives one; a lost connection has no code."""
    if isinstance(wrong, UpstreamLost):
        return {"message": str(wrong)}
    error: dict[str, object] = {"code": wrong.code, "message": wrong.message}
    if wrong.data is not None:
        error["data"] = wrong.data
    if wrong.retry_after is not None:
        error["retryAfter"] = wrong.retry_after
    return error


def _pause_after(wrong: Refusal | UpstreamLost, failures: int) -> float | None:
    """Return how long to wait before trying again, in seconds; `None` where trying is in vain."""
    backoff = min(_PAUSE_FIRST * 2 ** (failures - 1), _PAUSE_MOST)
    if isinstance(wrong, Refusal) and wrong.status == 429:
        return backoff if wrong.retry_after is None else max(_WAIT_LEAST, wrong.retry_after)
    passing = wrong.code in _PASSING if isinstance(wrong, Refusal) else wrong.status not in _HOPELESS
    return backoff if passing and failures < _TRIES else None
