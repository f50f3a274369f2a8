"""Looking at a task again and again, with patience; the same in every dialect."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gateway.client.means import Means
from gateway.client.options import Outcome
from gateway.client.view import GET, TaskView, Words, read_task
from gateway.protocol.codes import INTERNAL_ERROR, UPSTREAM_UNAVAILABLE
from gateway.protocol.errors import Refusal, UpstreamLost

PAUSE_MOST: Final = 15.0
_LOOKS: Final = 6
_LOOK_SECONDS: Final = 0.3
_TRIES: Final = 8
_PAUSE_FIRST: Final = 0.5
_WAIT_LEAST: Final = 0.5
_HOPELESS: Final = (401, 403, 404)
_PASSING: Final = (INTERNAL_ERROR, UPSTREAM_UNAVAILABLE)


class Watch:
    """Looks at one task after the other, and says what has changed."""

    def __init__(self, means: Means, words: Words) -> None:
        self._means = means
        self._words = words
        self._failures = 0
        self._said = ("", "")

    def __repr__(self) -> str:
        return f"<Watch {self._words.letter} {self._said[0] or 'new'}>"

    async def look(self, task_id: str) -> TaskView:
        """Ask for the status once; raise `Refusal` or `UpstreamLost`."""
        result = await self._means.connection.request(GET, self._words.about(task_id))
        return read_task(self._words, result, task_id)

    async def try_look(self, task_id: str, *, hope: bool) -> tuple[TaskView | None, float]:
        """Return the task where it could be seen, and how long to wait before the next look.

        Raise where looking is in vain, unless there is other hope.
        """
        try:
            view = await self.look(task_id)
        except (Refusal, UpstreamLost) as wrong:
            self._failures += 1
            pause = pause_after(wrong, self._failures)
            if pause is None and not hope:
                raise
            pause = PAUSE_MOST if pause is None else pause
            self._means.screen.note(f"cannot look at the task: {wrong}; trying again in {pause:g} s")
            return None, pause
        self._failures = 0
        self._show(view)
        return view, view.poll_seconds

    async def pause(self, seconds: float, *others: asyncio.Future[Any] | None) -> None:
        """Wait, but not beyond the first of the others."""
        sleeper = self._means.crew.spawn(self._means.clock.sleep(seconds), "pause")
        waiting: set[asyncio.Future[Any]] = {sleeper, *(one for one in others if one is not None)}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()

    async def settle(self, task_id: str) -> str:
        """Look until the task has ended, for a bounded number of times; return its last status."""
        status = "unknown"
        for look in range(_LOOKS):
            view = await self.look(task_id)
            status = view.status
            if view.ended:
                break
            await self.pause(_LOOK_SECONDS * (look + 1))
        return status

    def _show(self, view: TaskView) -> None:
        if view.ended:
            return
        said = (view.status, view.words or "")
        if said == self._said:
            return
        moved = view.status != self._said[0]
        self._said = said
        screen = self._means.screen
        if view.words:
            screen.message(view.words)
        if moved or not screen.shows_bar:
            tail = f" ({view.words})" if view.words else ""
            screen.note(f"task {view.task_id}: {view.status}{tail}")


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


def ended_as(view: TaskView) -> Outcome:
    """Return the outcome of a task that has nothing more to say than its status."""
    words = view.words or f"the task ended as {view.status}"
    return Outcome(status=view.status, task_id=view.task_id, error={"message": words})


def pause_after(wrong: Refusal | UpstreamLost, failures: int, *, only_full: bool = False) -> float | None:
    """Return how long to wait before trying again, in seconds; `None` where trying is in vain.

    `only_full` is for requests whose errors may be those of the call itself: of JSON-RPC errors, only
    a 429 passes then.
    """
    backoff = min(_PAUSE_FIRST * 2 ** (failures - 1), PAUSE_MOST)
    if isinstance(wrong, Refusal) and wrong.status == 429:
        return backoff if wrong.retry_after is None else max(_WAIT_LEAST, wrong.retry_after)
    if isinstance(wrong, Refusal):
        passing = wrong.code in _PASSING and not only_full
    else:
        passing = wrong.status not in _HOPELESS
    return backoff if passing and failures < _TRIES else None
