"""One exchange that takes several: what is said to the caller, what it is asked, and how it ends.

The talk with the upstream is a task, the caller reads from it. So the caller may leave (which is no
cancel in the handshake era, design I11), answer or cancel while the talk waits for something else.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final

import msgspec

from gateway.aio.spawn import Crew
from gateway.bridge.inputs import as_server_request
from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    meta_of,
    notification,
    refusal_response,
    text_of,
    value,
)
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.ids import key

_log: Final = logging.getLogger("gateway.crossing")
# For how long a talk goes on that nobody reads.
LEFT_SECONDS: Final = 600.0
_CANCEL: Final = b'{"action":"cancel"}'


class GivenUp(Exception):
    """The client answered a question with an error, the raw `error`: the end of a conversation."""

    def __init__(self, error: bytes) -> None:
        super().__init__("the client refused to answer")
        self.error = error


class Question:
    """A server request that waits for the client's answer. `name` is its key in `inputRequests`."""

    def __init__(self, name: str, method: str) -> None:
        self.name = name
        self.method = method
        self.ident = dump(f"mtg-input-{secrets.token_hex(12)}")
        self.settled: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Question {self.name!r} {self.method}>"

    def answer(self) -> bytes:
        """Return the result that the client answered with.

        An error says of an elicitation that nobody will fill it in, which has a result of its own;
        of anything else that the call must be given up (`GivenUp`).
        """
        found = self.settled.result()
        if found.result is not None:
            return found.result
        if self.method == "elicitation/create":
            return _CANCEL
        raise GivenUp(found.error or b"{}")


class Conversation:
    """One call. `talk` returns the final response; what it says waits until the caller fetches it.

    `farewell` is what is still to be sent when the client cancels; `heard_progress` says that the
    upstream itself reports progress.
    """

    def __init__(self, request: Envelope) -> None:
        self.request = request
        self.token = _bytes(meta_of(request.params).get("progressToken"))
        self.questions: dict[bytes, Question] = {}
        self.farewell: Callable[[Headers], Awaitable[None]] | None = None
        self.heard_progress = False
        self._progress = 0.0
        self._said: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._fetched = asyncio.Event()
        self._left = False
        self._last: bytes | None = None
        self._wrong: GatewayError | None = None
        self._over = False
        self._ending: Callable[[], object] | None = None
        self._limit: asyncio.Timeout | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "over" if self._over else "left" if self._left else "read"
        return f"<Conversation {self.request.method} {state}, {len(self.questions)} questions>"

    @property
    def over(self) -> bool:
        """Whether the final response is there, or will never come."""
        return self._over

    @property
    def left(self) -> bool:
        """Whether the caller reads no more."""
        return self._left

    def start(
        self, crew: Crew, talk: Callable[[Conversation], Awaitable[bytes]], over: Callable[[], object]
    ) -> None:
        """Begin to talk; `over` is called at the end, before the caller hears of it."""
        self._ending = over
        self._task = crew.spawn(self._run(talk), self.request.method)
        self._task.add_done_callback(lambda _: self._end())

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """Yield what is said, the final response last; raise what the talk failed with."""
        try:
            while True:
                if self._said:
                    yield self._said.popleft()
                    self._fetched.set()
                elif self._over:
                    break
                else:
                    self._news.clear()
                    await self._news.wait()
            if self._last is None:
                raise self._wrong or UpstreamLost("the call was cut off")
            yield self._last
        finally:
            self._leave()

    async def say(self, raw: bytes) -> None:
        """Say something to the caller; wait while it has not fetched what was said before."""
        while self._said and not self._left and not self._over:
            self._fetched.clear()
            await self._fetched.wait()
        self._put(raw)

    async def hear(self, one: Envelope) -> None:
        """Pass on what the upstream says."""
        if one.method == "notifications/progress":
            self.heard_progress = True
            done = value(members(one.params).get("progress"))
            self._progress = max(self._progress, done if isinstance(done, (int, float)) else 0)
        await self.say(one.raw)

    async def tell(self, words: str) -> None:
        """Report progress in words, where the caller wants to hear of it."""
        if self.token is not None:
            # Progress must increase (2025-11-25 "Progress"), and these words have no number.
            self._progress = math.floor(self._progress) + 1
            params = {
                "progressToken": msgspec.Raw(self.token),
                "progress": self._progress,
                "message": words,
            }
            await self.say(notification("notifications/progress", dump(params)))

    async def ask(self, name: str, entry: bytes) -> Question:
        """Ask the client something: an entry of `inputRequests` becomes a server request."""
        question = Question(name, text_of(members(entry).get("method")) or "")
        self.questions[question.ident] = question
        await self.say(as_server_request(question.ident, entry))
        return question

    async def ask_all(self, entries: Mapping[str, bytes]) -> dict[str, bytes]:
        """Ask for all entries at once and return the answers; raise `GivenUp` (see `Question`)."""
        questions = [await self.ask(name, entry) for name, entry in entries.items()]
        waiting = {question.settled for question in questions}
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for question in questions:
                    if question.settled in done:
                        question.answer()
        finally:
            self.withdraw([question for question in questions if not question.settled.done()])
        return {question.name: question.answer() for question in questions}

    def withdraw(self, questions: list[Question]) -> None:
        """Tell the client that nobody waits for these answers (2025-11-25 "Cancellation")."""
        for question in questions:
            if self.questions.pop(question.ident, None) is not None:
                params = b'{"requestId":' + question.ident + b"}"
                self._put(notification("notifications/cancelled", params))

    def answered(self, response: Envelope) -> bool:
        """Take the client's answer to a question; tell whether it was one of this conversation's."""
        question = self.questions.pop(key(response.id) or b"", None)
        if question is None:
            return False
        if not question.settled.done():
            question.settled.set_result(response)
        return True

    def cancel(self, why: str, *, stop: bool = True) -> None:
        """Tell who still reads that the call has ended, and why, with an error response.

        The talk ends too, unless it must go on to clear up (not `stop`).
        """
        if self._over:
            return
        self._last = error_response(self.request.id, dump({"code": INTERNAL_ERROR, "message": why}))
        self._end()
        if stop and self._task is not None:
            self._task.cancel()
        else:
            self._hurry()

    def _put(self, raw: bytes) -> None:
        if not self._left and not self._over:
            self._said.append(raw)
            self._news.set()

    async def _run(self, talk: Callable[[Conversation], Awaitable[bytes]]) -> None:
        last: bytes | None = None
        try:
            async with asyncio.timeout(LEFT_SECONDS if self._left else None) as self._limit:
                last = await talk(self)
        except GivenUp as given_up:
            last = error_response(self.request.id, given_up.error)
        except Refusal as refusal:
            last = refusal_response(self.request.id, refusal)
        except GatewayError as wrong:
            self._wrong = wrong
        except TimeoutError:
            _log.info("a call that nobody waited for was given up after %g s", LEFT_SECONDS)
        if not self._over:
            self._last = last
            self._end()

    def _leave(self) -> None:
        self._left = True
        self._said.clear()
        self._fetched.set()
        if not self._over:
            self._hurry()

    def _hurry(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + LEFT_SECONDS)

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._news.set()
        self._fetched.set()
        if self._ending is not None:
            self._ending()


def _bytes(raw: msgspec.Raw | None) -> bytes | None:
    return None if raw is None else bytes(raw)
