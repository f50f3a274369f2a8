"""The event stream of one call: read, and when it is cut, taken up again where it stopped."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final, Protocol

from gateway.aio.clock import Clock
from gateway.protocol.errors import LostMidway, UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, LAST_EVENT_ID, Headers
from gateway.protocol.sse import Event, Parser
from gateway.upstream.answer import Answer

_log = logging.getLogger("gateway.upstream")

_TRIES: Final = 5
_RETRY: Final = 1.0
_RETRY_MAX: Final = 30.0
# The shortest wait after a stream that said nothing; it doubles up to the usual one.
_EMPTY: Final = 0.02
# A longer event id fits into no header, and is kept nowhere.
_LONGEST_ID: Final = 16 * 1024
# A stream that was held open so long was no failure, even if nothing came on it.
_HELD: Final = 5.0
_BUSY: Final = 409
_POLL_MAX: Final = 5.0
NO_RESUME: Final = "the stream was cut and the upstream cannot resume it"


class Requester(Protocol):
    """What resuming needs of the upstream."""

    async def forward(self, method: str, headers: Headers, body: bytes | None) -> Answer:
        """Send one request to the configured URL."""
        ...


class Reader:
    """Reads the streams that make up one answer; knows the last event id, the delay, the failures.

    `limit` bounds one event in bytes. With a `place` it goes on behind that event: it then asks as long as
    the upstream has nothing new, as clients do whose upstream closes each stream (2025-11-25, polling).
    """

    def __init__(self, clock: Clock, limit: int, place: str | None = None) -> None:
        self._clock = clock
        self._limit = limit
        self._last = place
        # Who takes up a call of another finds that one's connection open, maybe: that is no failure.
        self._patient = place is not None
        self._begun = False
        self._retry = _RETRY
        self._fruitless = 0
        self._empty = 0
        self._why = ""

    def __repr__(self) -> str:
        return f"<Reader last event {self._last!r}, {self._fruitless} fruitless>"

    @property
    def place(self) -> str:
        """The id of the last event that was numbered, empty without one."""
        return self._last or ""

    async def read(self, answer: Answer) -> AsyncGenerator[Event, None]:
        """Yield each event until the stream ends or breaks; those that are no message have no data."""
        parser = Parser(self._limit)
        began = self._clock.monotonic()
        fruitful = False
        self._empty += 1
        try:
            async for chunk in answer.chunks():
                for event in parser.feed(chunk):
                    fruitful = True
                    self._note(event)
                    if len(event.data) > self._limit:
                        raise ValueError
                    if event.name == "error":
                        raise UpstreamLost("the upstream reported an error on the stream")
                    if event.name == "message" and event.data.strip():
                        self._empty = 0
                        yield event
                    elif event.id:
                        yield Event(b"", id=event.id)
            self._why = "the upstream ended the stream before the response"
            fruitful = fruitful or self._patient
        except ValueError:
            raise UpstreamLost(f"the upstream sent an event of more than {self._limit} bytes") from None
        except UpstreamLost as lost:
            self._why = str(lost)
        if fruitful or self._clock.monotonic() - began >= _HELD:
            self._fruitless = 0
        else:
            self._fruitless += 1

    async def resume(self, http: Requester, headers: Headers) -> Answer:
        """Return the stream that continues the one that was cut (2025-11-25 "Resumability").

        Raises `UpstreamLost` where the upstream numbers no events, cannot resume, or gives nothing
        new so many times.
        """
        while True:
            if self._last is None:
                raise UpstreamLost(self._why)
            if self._fruitless >= _TRIES:
                raise UpstreamLost(f"{self._why}, and {_TRIES} attempts to resume it gave nothing")
            if self._begun or not self._patient:
                await self._clock.sleep(self._delay())
            self._begun = True
            try:
                answer = await http.forward("GET", [*headers, (LAST_EVENT_ID, self._last)], None)
            except UpstreamLost as lost:
                self._why = str(lost)
                self._fruitless += 1
                continue
            media = (answer.header("content-type") or "").partition(";")[0].strip().lower()
            if answer.status == 200 and media == EVENT_STREAM:
                _log.debug("resumed a stream")
                return answer
            answer.abandon()
            if answer.status == _BUSY and self._patient:
                self._retry = min(_POLL_MAX, 2 * self._retry)
                continue
            if answer.status not in (429, 500, 502, 503, 504):
                raise LostMidway(NO_RESUME, status=answer.status)
            self._why = f"the stream was cut and the upstream answered {answer.status} to resuming it"
            self._fruitless += 1

    def _note(self, event: Event) -> None:
        if event.id is not None:
            self._last = event.id if 0 < len(event.id) <= _LONGEST_ID else None
        if event.retry is not None:
            self._retry = min(event.retry / 1000, _RETRY_MAX)

    def _delay(self) -> float:
        if not self._fruitless:
            least = _EMPTY * 2 ** min(self._empty, _TRIES) if self._empty else 0.0
            return max(self._retry, least)
        return min(_RETRY_MAX, max(self._retry, 0.5) * 2**self._fruitless)
