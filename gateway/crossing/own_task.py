"""An upstream's own task of the handshake era (2025-11-25 "Tasks"), waited for until it has a result."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.crossing.conversation import Conversation
from gateway.crossing.native_task import POLL_MAX, POLL_MIN, Ask
from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import Envelope, dump, error_response, members, response, text_of, value
from gateway.protocol.errors import GatewayError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import Parts, drop_member, put_together

_log: Final = logging.getLogger("gateway.crossing")
RELATED: Final = "io.modelcontextprotocol/related-task"
_POLL: Final = 1.0
_TRIES: Final = 5
_TERMINAL: Final = ("completed", "failed", "cancelled")


class OwnTask:
    """A task that the upstream made of a call; `created` is its raw state."""

    def __init__(self, call: Conversation, created: bytes, ask: Ask, clock: Clock, crew: Crew) -> None:
        self._call = call
        self._state = members(created)
        self._task_id = self._state.get("taskId", msgspec.Raw(b'""'))
        self._ask = ask
        self._clock = clock
        self._crew = crew
        self._words: str | None = None

    def __repr__(self) -> str:
        return f"<OwnTask {text_of(self._task_id)!r}>"

    async def run(self) -> bytes:
        """Return the final response to the call.

        `tasks/result` waits for the end and brings what the upstream asks of the client. Where its
        stream is lost the task lives on, and is asked for its result again. Raises `UpstreamLost`.
        """
        await self._tell()
        watching = None
        if self._call.token is not None:
            watching = self._crew.spawn(self._watch(), "watch")
        try:
            while True:
                try:
                    return await self._final(await self._ask("tasks/result", self._result_params()))
                except UpstreamLost as lost:
                    if lost.refused:
                        raise
                    _log.info("the stream of a task's result was lost: %s", lost.tell())
                found = await self._look_again()
                if found.result is None:
                    return await self._final(found)
        finally:
            if watching is not None:
                watching.cancel()

    async def cancel(self, headers: Headers | None = None) -> None:
        """Cancel the task."""
        await self._ask("tasks/cancel", self._params(), headers)

    def _params(self) -> bytes:
        return put_together({"taskId": self._task_id})

    def _result_params(self) -> bytes:
        parts: Parts = {"taskId": self._task_id}
        if self._call.token is not None:
            # "remains valid throughout the task lifetime": by it a link knows whose progress comes.
            parts["_meta"] = put_together({"progressToken": self._call.token})
        return put_together(parts)

    async def _final(self, answer: Envelope) -> bytes:
        ident = self._call.request.id
        if answer.result is None:
            return error_response(ident, answer.error or b"{}")
        if "content" not in members(answer.result):
            failed = await self._failed()
            if failed is not None:
                return error_response(ident, failed)
        return response(ident, drop_member(answer.result, ("_meta", RELATED), prune=True))

    async def _failed(self) -> bytes | None:
        """Return the error that a task has ended with whose result says nothing; `None` where it has not.

        The task server of `mcp` 1.x keeps no error: what went wrong is in the status alone.
        """
        with suppress(UpstreamLost):
            await self._look()
        status = text_of(self._state.get("status"))
        if status not in ("failed", "cancelled"):
            return None
        words = text_of(self._state.get("statusMessage")) or f"The upstream's task has {status}"
        return dump({"code": INTERNAL_ERROR, "message": words})

    async def _look_again(self) -> Envelope:
        """Poll until the upstream answers; raise `UpstreamLost` where it is away for too long."""
        last: UpstreamLost | None = None
        for number in range(_TRIES):
            await self._clock.sleep(min(POLL_MAX, self._interval() * 2**number))
            try:
                return await self._look()
            except UpstreamLost as lost:
                _log.info("a task could not be looked at: %s", lost.tell())
                last = lost
        raise UpstreamLost(f"the upstream is away during a task of its own ({last})")

    async def _look(self) -> Envelope:
        found = await self._ask("tasks/get", self._params())
        if found.result is not None:
            self._state = members(found.result)
        return found

    async def _watch(self) -> None:
        """Make progress of what the upstream says about the task's status."""
        try:
            while text_of(self._state.get("status")) not in _TERMINAL:
                await self._clock.sleep(self._interval())
                if (await self._look()).result is None:
                    return
                await self._tell()
        except GatewayError as wrong:
            _log.debug("a task is watched no more: %s", wrong)

    async def _tell(self) -> None:
        words = text_of(self._state.get("statusMessage"))
        ended = text_of(self._state.get("status")) in _TERMINAL
        if words and words != self._words and not ended and not self._call.heard_progress:
            self._words = words
            await self._call.tell(words)

    def _interval(self) -> float:
        asked = value(self._state.get("pollInterval"))
        seconds = asked / 1000 if isinstance(asked, (int, float)) else _POLL
        return min(POLL_MAX, max(POLL_MIN, seconds))
