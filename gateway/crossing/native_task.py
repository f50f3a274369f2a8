"""An upstream's own task of the stateless era (SEP-2663), waited for: the caller gets a plain result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.bridge.results import error_to_handshake, to_handshake
from gateway.crossing.conversation import Conversation, GivenUp, Question
from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import Envelope, dump, error_response, members, response, text_of, value
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import put_together

_log: Final = logging.getLogger("gateway.crossing")
_POLL: Final = 1.0
POLL_MIN: Final = 0.05
POLL_MAX: Final = 10.0
_TRIES: Final = 5
_TERMINAL: Final = ("completed", "failed", "cancelled")


class Ask(Protocol):
    """Sends a request and returns its response; `headers` are the call's where none are given."""

    async def __call__(self, method: str, params: bytes, headers: Headers | None = None, /) -> Envelope:
        """Raise `UpstreamLost` where no response comes."""
        ...


class NativeTask:
    """A task that the upstream made of a call; `created` is the raw result that said so."""

    def __init__(self, call: Conversation, created: bytes, ask: Ask, clock: Clock, crew: Crew) -> None:
        self._call = call
        self._state = members(created)
        self._task_id = bytes(self._state.get("taskId", b'""'))
        self._ask = ask
        self._clock = clock
        self._crew = crew
        self._open: list[Question] = []
        self._asked: set[str] = set()
        self._words: str | None = None

    def __repr__(self) -> str:
        return f"<NativeTask {text_of(self._task_id)!r}, {len(self._open)} questions>"

    async def run(self) -> bytes:
        """Return the final response to the call once the task has ended."""
        try:
            while text_of(self._state.get("status")) not in _TERMINAL:
                await self._tell()
                await self._question()
                await self._pause()
                await self._answer()
                found = await self._patiently("tasks/get", {"taskId": self._task_id})
                if found.result is None:
                    return self._error(error_to_handshake(found.error or b"{}"))
                self._state = members(found.result)
        except GivenUp:
            self._call.withdraw(self._open)
            with suppress(UpstreamLost):
                await self.cancel()
            raise
        self._call.withdraw(self._open)
        return self._final()

    async def cancel(self, headers: Headers | None = None) -> None:
        """Tell the upstream that nobody waits for the task any more."""
        await self._ask("tasks/cancel", put_together({"taskId": self._task_id}), headers)

    def _final(self) -> bytes:
        result, error = self._state.get("result"), self._state.get("error")
        words = text_of(self._state.get("statusMessage"))
        match text_of(self._state.get("status")):
            case "completed" if result is not None:
                return response(self._call.request.id, to_handshake(bytes(result)))
            case "failed" if error is not None:
                return self._error(error_to_handshake(bytes(error)))
            case "cancelled":
                return self._failed("The upstream cancelled the task", words)
            case status:
                return self._failed(f"The upstream's task has {status} without saying how", words)

    def _failed(self, what: str, words: str | None) -> bytes:
        message = f"{what}: {words}" if words else what
        return self._error(dump({"code": INTERNAL_ERROR, "message": message}))

    def _error(self, error: bytes) -> bytes:
        return error_response(self._call.request.id, error)

    async def _tell(self) -> None:
        words = text_of(self._state.get("statusMessage"))
        if words and words != self._words:
            self._words = words
            await self._call.tell(words)

    async def _question(self) -> None:
        """Ask the client what the task asks for, each key once; take back what it asks for no more."""
        wanted = members(self._state.get("inputRequests"))
        gone = [one for one in self._open if one.name not in wanted]
        self._call.withdraw(gone)
        self._open = [one for one in self._open if one.name in wanted]
        for name, entry in wanted.items():
            if name not in self._asked:
                self._asked.add(name)
                self._open.append(await self._call.ask(name, bytes(entry)))

    async def _pause(self) -> None:
        """Wait for the next poll to be due, or for an answer of the client."""
        sleeping = self._crew.spawn(self._clock.sleep(self._interval()), "poll")
        try:
            waiting = {sleeping, *(question.settled for question in self._open)}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()

    def _interval(self) -> float:
        asked = value(self._state.get("pollIntervalMs"))
        seconds = asked / 1000 if isinstance(asked, (int, float)) else _POLL
        return min(POLL_MAX, max(POLL_MIN, seconds))

    async def _answer(self) -> None:
        answered = [question for question in self._open if question.settled.done()]
        if answered:
            answers = put_together({question.name: question.answer() for question in answered})
            self._open = [question for question in self._open if question not in answered]
            await self._patiently("tasks/update", {"taskId": self._task_id, "inputResponses": answers})

    async def _patiently(self, method: str, params: Mapping[str, bytes | msgspec.Raw]) -> Envelope:
        """Send a request that may be repeated, over times in which the upstream is away."""
        raw = put_together(dict(params))
        for number in range(1, _TRIES):
            try:
                return await self._ask(method, raw)
            except UpstreamLost as lost:
                _log.info("%s failed: %s", method, lost.tell())
                await self._clock.sleep(min(POLL_MAX, self._interval() * 2**number))
        return await self._ask(method, raw)
