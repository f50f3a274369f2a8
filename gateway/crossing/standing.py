"""The stream that an HTTP session's GET opens: what the upstream says beside all calls.

2025-11-25 transports, "Listening for Messages from the Server". Opened again when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, LAST_EVENT_ID, Headers
from gateway.protocol.sse import Parser
from gateway.upstream.channel import UNKNOWN_SESSION
from gateway.upstream.port import HttpUpstream, Reply

_log = logging.getLogger("gateway.crossing")

_TRIES: Final = 8
_RETRY: Final = 1.0
_RETRY_MAX: Final = 30.0
_MAX_EVENT: Final = 16 * 1024 * 1024
_LATER: Final = (408, 409, 425, 429, 500, 502, 503, 504)


class Standing:
    """One session's GET stream over all its connections; `headers` name the session."""

    def __init__(self, http: HttpUpstream, headers: Headers, clock: Clock) -> None:
        self._http = http
        self._headers = [*headers, ("accept", EVENT_STREAM)]
        self._clock = clock
        self._last: str | None = None
        self._retry = _RETRY
        self._fruitless = 0
        self._stood = False

    def __repr__(self) -> str:
        return f"<Standing {'stood' if self._stood else 'new'}, {self._fruitless} fruitless>"

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield an empty message when the stream stands, then messages.

        Ends where the upstream offers no such stream; raises `UpstreamLost` where it does not know
        the session any more, or cannot be reached for long.
        """
        while True:
            try:
                reply = await self._http.forward("GET", self._asking(), None)
            except UpstreamLost as lost:
                _log.debug("the stream of a session could not be opened: %s", lost)
                self._fruitless += 1
            else:
                try:
                    if self._stands(reply):
                        yield b""
                        async for data in self._events(reply):
                            yield data
                    elif reply.status not in _LATER:
                        return
                finally:
                    await reply.close()
            if self._fruitless >= _TRIES:
                raise UpstreamLost("the upstream does not open the stream of the session again")
            await self._clock.sleep(self._delay())

    def _stands(self, reply: Reply) -> bool:
        media = (reply.header("content-type") or "").partition(";")[0].strip().lower()
        if reply.status == 200 and media == EVENT_STREAM:
            self._stood, self._fruitless = True, 0
            return True
        self._fruitless += 1
        if self._stood and reply.status not in _LATER:
            raise UpstreamLost(UNKNOWN_SESSION, status=reply.status)
        return False

    async def _events(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        parser = Parser(_MAX_EVENT)
        try:
            async for chunk in reply.chunks():
                for event in parser.feed(chunk):
                    if event.id is not None:
                        self._last = event.id or None
                    if event.retry is not None:
                        self._retry = min(event.retry / 1000, _RETRY_MAX)
                    if event.name == "message" and event.data.strip():
                        yield event.data
        except (UpstreamLost, ValueError) as wrong:
            _log.debug("the stream of a session was cut: %s", wrong)

    def _asking(self) -> Headers:
        return self._headers if self._last is None else [*self._headers, (LAST_EVENT_ID, self._last)]

    def _delay(self) -> float:
        return min(_RETRY_MAX, max(0.05, self._retry) * 2 ** max(0, self._fruitless - 1))
