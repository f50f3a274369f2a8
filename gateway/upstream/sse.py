"""A link over the legacy HTTP+SSE transport (2024-11-05 "Transports"): events in, POSTs out, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import ConfigError, GatewayError, UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, JSON, Headers
from gateway.protocol.sse import Event, Parser
from gateway.upstream.answer import Answer
from gateway.upstream.http import Http
from gateway.upstream.link import MessageLink
from gateway.upstream.url import resolve

_log = logging.getLogger("gateway.upstream")

_OWN: Final = frozenset({"accept", "content-type"})
_MAX_WAITING: Final = 1000
_LINGER: Final = 2.0

_Post = tuple[bytes, Headers, "asyncio.Future[None]"]


class SseWire:
    """The `Wire` of one legacy connection: a stream of events, and an endpoint that it names."""

    def __init__(self, http: Http, link: MessageLink, headers: Headers, limit: int) -> None:
        self._http = http
        self._link = link
        self._headers = headers
        self._parser = Parser(limit)
        self._limit = limit
        self._crew = Crew("sse link")
        self._answer: Answer | None = None
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._posts: deque[_Post] = deque()
        self._some = asyncio.Event()

    def __repr__(self) -> str:
        return f"<SseWire {self._http!r}, {len(self._posts)} messages to send>"

    async def open(self, seconds: float) -> None:
        """Open the stream and wait for the endpoint; raise `UpstreamLost` where none comes in time."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._http.forward("GET", self._getting(), None)
                self._answer = answer
                media = (answer.header("content-type") or "").partition(";")[0].strip().lower()
                if answer.status != 200 or media != EVENT_STREAM:
                    words = f"the upstream answered {answer.status} instead of an event stream"
                    raise UpstreamLost(words, status=answer.status)
                self._crew.spawn(self._read(answer), "reader")
                target = await self._endpoint
        except TimeoutError:
            await self.close()
            raise UpstreamLost(f"the upstream named no endpoint within {seconds:g} s") from None
        except BaseException:
            await self.close()
            raise
        self._crew.spawn(self._post_all(target), "poster")

    def write(self, message: bytes, headers: Headers) -> asyncio.Future[None] | None:
        """Put a message in line; the future ends when the upstream has taken it."""
        if len(self._posts) >= _MAX_WAITING:
            raise UpstreamLost(f"{_MAX_WAITING} messages wait for the upstream already", sent=False)
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._posts.append((message, headers, left))
        self._some.set()
        return left

    async def close(self) -> None:
        """Close the stream; messages that have not left fail."""
        await self._crew.close()
        if self._answer is not None:
            await self._answer.close()
        while self._posts:
            _fail(
                self._posts.popleft()[2],
                UpstreamLost("the session with the upstream was ended", sent=False),
            )

    async def _read(self, answer: Answer) -> None:
        what = "the upstream closed its event stream"
        try:
            async for chunk in answer.chunks():
                for event in self._parser.feed(chunk):
                    self._take(event)
        except ValueError:
            what = f"the upstream sent an event of more than {self._limit} bytes"
        except UpstreamLost as lost:
            what = str(lost)
        finally:
            answer.abandon()
            if not self._endpoint.done():
                self._endpoint.set_exception(UpstreamLost(f"{what} before it named an endpoint"))
                self._endpoint.exception()
            self._link.end(what)

    def _take(self, event: Event) -> None:
        if event.name == "endpoint":
            self._named(event.data)
        elif event.name == "message" and event.data.strip():
            self._link.receive(event.data)
        elif event.name == "error":
            raise UpstreamLost("the upstream reported an error on its event stream")

    def _named(self, data: bytes) -> None:
        """Take the endpoint; one of another origin would carry the client's credentials away."""
        if self._endpoint.done():
            return
        try:
            url = resolve(self._http.url, data.decode("utf-8", "replace"))
        except ConfigError:
            raise UpstreamLost("the upstream named an endpoint that is no URL") from None
        if url.origin != self._http.url.origin:
            raise UpstreamLost("the upstream named an endpoint of another origin")
        self._endpoint.set_result(url.target)

    async def _post_all(self, target: str) -> None:
        while True:
            while not self._posts:
                self._some.clear()
                await self._some.wait()
            message, headers, left = self._posts.popleft()
            try:
                await self._post(target, message, headers)
            except GatewayError as wrong:
                _fail(left, wrong)
            except BaseException:
                _fail(left, UpstreamLost("the session with the upstream was ended"))
                raise
            else:
                if not left.done():
                    left.set_result(None)

    async def _post(self, target: str, message: bytes, headers: Headers) -> None:
        answer = await self._http.request("POST", target, self._posting(headers), message)
        answer.let_go(_LINGER)
        if not 200 <= answer.status < 300:
            words = f"the upstream answered a message with status {answer.status}"
            raise UpstreamLost(words, status=answer.status)

    def _getting(self) -> Headers:
        return [*_others(self._headers), ("accept", EVENT_STREAM)]

    def _posting(self, headers: Headers) -> Headers:
        kept = _others(headers or self._headers)
        return [*kept, ("content-type", JSON), ("accept", f"{JSON}, {EVENT_STREAM}")]


async def open_sse(
    http: Http, tag: str, headers: Headers, clock: Clock, *, seconds: float, limit: int
) -> MessageLink:
    """Open a legacy connection and return the link over it; raise `UpstreamLost` where it is not one."""
    link = MessageLink(tag, clock.monotonic)
    wire = SseWire(http, link, headers, limit)
    await wire.open(seconds)
    link.attach(wire)
    return link


def _others(headers: Headers) -> Headers:
    return [(name, content) for name, content in headers if name.lower() not in _OWN]


def _fail(left: asyncio.Future[None], wrong: GatewayError) -> None:
    if not left.done():
        left.set_exception(wrong)
        # Nobody may be waiting; then nobody is to be told.
        left.exception()
