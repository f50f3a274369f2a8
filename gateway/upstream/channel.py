"""One session with an HTTP upstream: a request out, its messages in, over cuts where that can be.

Streamable HTTP, 2025-11-25 "Transports": a POST is answered with JSON or with an event stream; a cut
stream whose events have ids is resumed by a GET with `Last-Event-ID`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol

from gateway.aio.clock import Clock
from gateway.protocol.envelope import Envelope, error_response, peek
from gateway.protocol.errors import LostMidway, UpstreamLost
from gateway.protocol.headers import CHALLENGE, EVENT_STREAM, JSON, LAST_EVENT_ID, SESSION, Headers
from gateway.upstream.answer import Answer
from gateway.upstream.events import Reader
from gateway.upstream.ids import key, messages
from gateway.upstream.port import Placed

_log = logging.getLogger("gateway.upstream")

_OWN: Final = frozenset({"accept", "content-type", LAST_EVENT_ID, SESSION})
_SMALL: Final = 1024 * 1024
_CREDENTIALS: Final = (401, 403)
# How long a stream may take to end by itself after the response, so that its connection can be reused.
_LINGER: Final = 2.0
UNKNOWN_SESSION: Final = "the upstream no longer knows the session"
# Of a call that was taken: what became of it nobody knows.
UNKNOWN_MEANWHILE: Final = f"{UNKNOWN_SESSION} in which the call was made"


class Requester(Protocol):
    """What a channel needs of the upstream."""

    async def forward(self, method: str, headers: Headers, body: bytes | None) -> Answer:
        """Send one request to the configured URL."""
        ...


class HttpChannel:
    """A `Channel` that is `Resumable` (see the port) over HTTP. `max_answer` bounds one message in bytes.

    `status` is that of the answer to the last request that was exchanged.
    """

    def __init__(
        self, http: Requester, session_id: str | None, headers: Headers, *, clock: Clock, max_answer: int
    ) -> None:
        self._http = http
        self._session = session_id
        self._headers = headers
        self._clock = clock
        self._max_answer = max_answer
        self.status: int | None = None
        self.on_place: Callable[[str], None] | None = None
        self.on_gone: Callable[[str], None] | None = None
        """Hears the id of the session when the upstream turns out to know it no longer."""

    @property
    def session_id(self) -> str | None:
        """The upstream's session id."""
        return self._session

    def __repr__(self) -> str:
        return f"<HttpChannel {'with' if self._session else 'without'} session>"

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last. The request leaves at the first step.

        Raises `UpstreamLost` where no response comes, and with `status` 404 where the session is gone.
        """
        request = peek(message)
        answer = await self._http.forward("POST", self._posting(headers), message)
        self.status = answer.status
        try:
            if _is_stream(answer):
                reader = Reader(self._clock, self._max_answer)
                async with aclosing(self._stream(answer, key(request.id), headers, reader)) as stream:
                    async for raw in stream:
                        yield raw
            else:
                for raw in await self._plain(answer, request):
                    yield raw
        finally:
            await answer.close()

    async def resume(self, ident: bytes, place: str, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield what came after an event of a request's exchange, the response last; see the port."""
        reader = Reader(self._clock, self._max_answer, place)
        answer = await self._resumed(reader, headers)
        async with aclosing(self._stream(answer, key(ident), headers, reader)) as stream:
            async for raw in stream:
                yield raw

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response; raise `UpstreamLost` where it is not accepted."""
        answer = await self._http.forward("POST", self._posting(headers), message)
        answer.let_go(_LINGER)
        if not 200 <= answer.status < 300:
            raise self._refused(answer)

    async def close(self) -> None:
        """End the session with the upstream, which may not care (405) or not be there."""
        if self._session is None:
            return
        try:
            answer = await self._http.forward("DELETE", self._given(self._headers), None)
        except UpstreamLost as lost:
            _log.debug("the session could not be ended: %s", lost)
            return
        answer.let_go(_LINGER)

    async def _plain(self, answer: Answer, request: Envelope) -> list[bytes]:
        """Return the messages of an answer that is no stream."""
        ok = 200 <= answer.status < 300
        if answer.status == 404 and self._session is not None:
            raise self._unknown(self._session)
        if not ok and 300 <= answer.status < 400:
            raise self._refused(answer)
        try:
            body = await answer.read(self._max_answer if ok else _SMALL)
        except UpstreamLost:
            if ok:
                raise
            body = b""
        found, strange = messages(body)
        earlier: list[bytes] = []
        for one in found:
            if one.kind != "response":
                earlier.append(one.raw)
            elif key(one.id) == key(request.id) and (ok or one.error is not None):
                return [*earlier, one.raw]
            elif one.id is None and _is_error(one.error) and answer.status not in _CREDENTIALS:
                return [*earlier, error_response(request.id, one.error or b"{}")]
        if not ok:
            raise self._refused(answer)
        raise UpstreamLost(_wrong_answer(answer, body, found, strange))

    async def _stream(
        self, answer: Answer, wanted: bytes | None, headers: Headers, reader: Reader
    ) -> AsyncGenerator[bytes, None]:
        """Yield the messages of an event stream and of those that continue it, the response last."""
        current, silent = answer, True
        try:
            while True:
                async with aclosing(reader.read(current)) as events:
                    async for event in events:
                        found = messages(event.data)[0] if event.data else []
                        # Behind a message a place without one is not told of: who reads may be behind it.
                        if not found and silent and self.on_place is not None and reader.place:
                            self.on_place(reader.place)
                        for one in found:
                            silent = False
                            if one.kind != "response":
                                last = one is found[-1] and reader.place
                                yield Placed(one.raw, reader.place) if last else one.raw
                            elif key(one.id) == wanted:
                                current.let_go(_LINGER)
                                yield one.raw
                                return
                            else:
                                _log.debug("a response with another id was ignored")
                current.abandon()
                current = await self._resumed(reader, headers)
        finally:
            await current.close()

    async def _resumed(self, reader: Reader, headers: Headers) -> Answer:
        try:
            return await reader.resume(self._http, self._resuming(headers))
        except UpstreamLost as lost:
            if lost.status == 404 and self._session is not None:
                self._tell_gone(self._session)
                raise LostMidway(UNKNOWN_MEANWHILE, status=404) from lost
            raise

    def _given(self, headers: Headers) -> Headers:
        kept = [(name, content) for name, content in headers if name.lower() not in _OWN]
        if self._session is not None:
            kept.append((SESSION, self._session))
        return kept

    def _posting(self, headers: Headers) -> Headers:
        kept = self._given(headers or self._headers)
        return [*kept, ("content-type", JSON), ("accept", f"{JSON}, {EVENT_STREAM}")]

    def _resuming(self, headers: Headers) -> Headers:
        return [*self._given(self._headers or headers), ("accept", EVENT_STREAM)]

    def _unknown(self, session: str) -> UpstreamLost:
        self._tell_gone(session)
        return UpstreamLost(UNKNOWN_SESSION, status=404)

    def _tell_gone(self, session: str) -> None:
        if self.on_gone is not None:
            self.on_gone(session)

    def _refused(self, answer: Answer) -> UpstreamLost:
        status = answer.status
        if status == 404 and self._session is not None:
            return self._unknown(self._session)
        if status in _CREDENTIALS:
            words = f"the upstream refused the credentials ({status})"
            return UpstreamLost(words, status=status, challenge=answer.header(CHALLENGE))
        if 300 <= status < 400:
            return UpstreamLost(f"the upstream redirects to another URL ({status})", status=status)
        return UpstreamLost(f"the upstream answered with status {status}", status=status)


def _is_stream(answer: Answer) -> bool:
    return 200 <= answer.status < 300 and _media(answer) == EVENT_STREAM


def _is_error(error: bytes | None) -> bool:
    """Tell whether it is an error of JSON-RPC; those of OAuth have a member of that name too (RFC 6750)."""
    return error is not None and error[:1] == b"{"


def _media(answer: Answer) -> str:
    return (answer.header("content-type") or "").partition(";")[0].strip().lower()


def _wrong_answer(answer: Answer, body: bytes, found: list[Envelope], strange: int) -> str:
    status, media = answer.status, _media(answer)
    if not body.strip():
        return f"the upstream took the request but sent no answer ({status})"
    if media not in (JSON, ""):
        return f"the upstream answered with {media[:100]!r} instead of JSON ({status})"
    if strange and not found:
        return f"the upstream answered with something that is not JSON-RPC ({status})"
    return f"the upstream answered another request than this one ({status})"
