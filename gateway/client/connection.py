"""What is said with an MCP server, seen from the client: requests out, answers and questions in.

Answers are matched by id wherever they arrive: on the request's own stream, on a resumed one, or on
the session's GET stream. In the stateless era there are no sessions, and each stream is a request's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, Protocol

import aiohttp

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.client.failures import refusal_of
from gateway.client.http import Http, messages
from gateway.client.options import LATEST
from gateway.client.stateless import VERSION, Modern, headers_of
from gateway.client.trees import as_object
from gateway.protocol import envelope as rpc
from gateway.protocol.envelope import Envelope
from gateway.protocol.eras import HANDSHAKE
from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost
from gateway.protocol.sse import Event

Reply = Callable[[bytes], Awaitable[None]]

_ANSWER_SECONDS: Final = 60
_RESUME_TRIES: Final = 5
_RETRY_SECONDS: Final = 1.0
_RETRY_MOST: Final = 30.0


class Listener(Protocol):
    """Who takes what the server says by itself; both return at once."""

    def notice(self, envelope: Envelope) -> None:
        """Take a notification."""
        ...

    def asked(self, envelope: Envelope, reply: Reply) -> None:
        """Take a request of the server; `reply` sends the response message."""
        ...


class Exchange:
    """A request on its way; `answer` becomes the raw result, a `Refusal` or `UpstreamLost`."""

    def __init__(self, ident: bytes) -> None:
        self.ident = ident
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Exchange {self.ident.decode()} {'answered' if self.answer.done() else 'waiting'}>"

    def settle(self, found: bytes | GatewayError) -> None:
        """Set the answer, once."""
        if self.answer.done():
            return
        if isinstance(found, bytes):
            self.answer.set_result(found)
        else:
            self.answer.set_exception(found)
            # Nobody may ask any more: asyncio would then complain that it was never retrieved.
            self.answer.exception()


class _Mark:
    """The place in a stream to read on from, and how long the server asks to wait before."""

    def __init__(self) -> None:
        self.event_id: str | None = None
        self.retry = _RETRY_SECONDS
        self.moved = False

    def pass_by(self, event: Event) -> None:
        """Move to an event of the stream."""
        self.moved = True
        if event.id is not None:
            self.event_id = event.id
        if event.retry is not None:
            self.retry = event.retry / 1000


class Connection:
    """One endpoint, and one session there where there are sessions. The crew owns the streams.

    `left` says that the session shall outlive this client; `modern` makes requests those of the
    stateless era.
    """

    def __init__(self, http: Http, crew: Crew, clock: Clock, listener: Listener) -> None:
        self._http = http
        self._crew = crew
        self._clock = clock
        self._listener = listener
        self._open: dict[bytes, Exchange] = {}
        self._last_id = 0
        self._modern: Modern | None = None
        self.left = False

    def __repr__(self) -> str:
        return f"<Connection {self._http!r} {len(self._open)} open>"

    @property
    def session(self) -> str | None:
        """The session id, where the server gave one."""
        return self._http.session

    @property
    def version(self) -> str:
        """The protocol version that was negotiated."""
        return self._http.version or LATEST

    @property
    def modern(self) -> Modern | None:
        """How this client presents itself in the stateless era, `None` in the other."""
        return self._modern

    @modern.setter
    def modern(self, modern: Modern | None) -> None:
        self._modern = modern
        self._http.version = None if modern is None else VERSION
        self._http.sessions = modern is None

    async def initialize(self, name: str, version: str, capabilities: dict[str, Any]) -> dict[str, Any]:
        """Shake hands (basic/lifecycle) and return the server's capabilities."""
        params = {
            "protocolVersion": LATEST,
            "capabilities": capabilities,
            "clientInfo": {"name": name, "version": version},
        }
        result = as_object(rpc.value(await self.request("initialize", params)))
        found = result.get("protocolVersion")
        if found not in HANDSHAKE:
            raise UpstreamLost(
                f"the server speaks protocol version {found!r}, this client {LATEST} and older"
            )
        self._http.version = found
        await self.notify("notifications/initialized", {})
        return as_object(result.get("capabilities"))

    def start(
        self,
        method: str,
        params: dict[str, Any],
        ident: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Exchange:
        """Send a request and return at once; `ident` is an id as JSON bytes, by default a number."""
        if ident is None:
            self._last_id += 1
            ident = b"%d" % self._last_id
        exchange = Exchange(ident)
        self._open[ident] = exchange
        exchange.answer.add_done_callback(lambda _: self._open.pop(ident, None))
        sent = dict(headers or {})
        if self._modern is not None:
            sent |= headers_of(method, params)
            params = self._modern.dress(params)
        message = rpc.request(ident, method, rpc.dump(params))
        self._crew.spawn(self._run(exchange, message, sent), f"{method} {ident.decode()}")
        return exchange

    async def request(
        self, method: str, params: dict[str, Any], *, seconds: float = _ANSWER_SECONDS
    ) -> bytes:
        """Send a request that is answered soon and return the raw result.

        Raise `Refusal` for a JSON-RPC error, `UpstreamLost` where no answer comes.
        """
        exchange = self.start(method, params)
        try:
            async with asyncio.timeout(seconds):
                return await exchange.answer
        except TimeoutError:
            raise UpstreamLost(f"no answer to {method} within {seconds} s") from None

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        await self._send(rpc.notification(method, rpc.dump(params)))

    def listen(self) -> None:
        """Open the session's GET stream in the background; a server without one is fine."""
        self._crew.spawn(self._listen(), "GET stream")

    async def end_session(self) -> None:
        """End the session at the server."""
        await self._http.end_session()

    async def _send(self, message: bytes) -> None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), self._http.post(message):
                pass
        except TimeoutError:
            raise UpstreamLost(f"the server took no message within {_ANSWER_SECONDS} s") from None

    async def _run(self, exchange: Exchange, message: bytes, headers: Mapping[str, str]) -> None:
        mark = _Mark()
        lost = UpstreamLost("the server closed the stream before it had answered")
        try:
            async with self._http.post(message, headers) as response:
                await self._read(response, mark, exchange)
        except Refusal as refused:
            exchange.settle(refused)
        except UpstreamLost as broken:
            lost = broken
        # Streams of the stateless era cannot be resumed ("Receiving Messages").
        if not exchange.answer.done() and mark.event_id is not None and self._modern is None:
            await self._resume(exchange, mark)
        exchange.settle(lost)

    async def _resume(self, exchange: Exchange, mark: _Mark) -> None:
        """Read on where a stream broke off (basic/transports, resumability), or give up."""
        tries = 0
        while tries < _RESUME_TRIES and not exchange.answer.done():
            await self._clock.sleep(min(mark.retry, _RETRY_MOST))
            mark.moved = False
            try:
                async with self._http.stream(mark.event_id) as response:
                    await self._read(response, mark, exchange)
            except Refusal:
                return
            except UpstreamLost as broken:
                if broken.status is not None:
                    return
            tries = 0 if mark.moved else tries + 1

    async def _listen(self) -> None:
        mark = _Mark()
        pause = _RETRY_SECONDS
        while True:
            mark.moved = False
            try:
                async with self._http.stream(mark.event_id) as response:
                    await self._read(response, mark, None)
            except Refusal:
                return
            except UpstreamLost as broken:
                if broken.status is not None:
                    return
            pause = mark.retry if mark.moved else min(2 * pause, _RETRY_MOST)
            await self._clock.sleep(min(pause, _RETRY_MOST))

    async def _read(self, response: aiohttp.ClientResponse, mark: _Mark, exchange: Exchange | None) -> None:
        async with aclosing(messages(response)) as incoming:
            async for message, event in incoming:
                if event is not None:
                    mark.pass_by(event)
                if message is not None:
                    self._take(message)
                if exchange is not None and exchange.answer.done():
                    return

    def _take(self, message: Envelope) -> None:
        if message.kind == "notification":
            self._listener.notice(message)
        elif message.kind == "request":
            if self._modern is not None:
                raise UpstreamLost("the server sent a request of its own, as no stateless server may")
            self._listener.asked(message, self._send)
        elif message.id is not None and (exchange := self._open.get(message.id)) is not None:
            if message.result is not None:
                exchange.settle(message.result)
            else:
                refused = refusal_of(message.error)
                exchange.settle(refused or UpstreamLost("the server answered with an error that is none"))
