"""The connections to one origin: reused last in first out, bounded, the waiting served in order."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import Final

from gateway.protocol.errors import ConfigError, UpstreamLost
from gateway.upstream.connection import Connection
from gateway.upstream.dial import dial
from gateway.upstream.url import Url

# Node and uvicorn close idle connections after 5 s without announcing it: a POST must not race that.
_IDLE_UNANNOUNCED: Final = 4.0
_IDLE_MAX: Final = 30.0
_WAITING_LEAST: Final = 100


class Origin:
    """A pool of connections of at most `max_connections`; `connect_timeout` in seconds.

    As many may wait for one, or a hundred; whoever comes then is refused at once.
    """

    def __init__(
        self, url: Url, context: ssl.SSLContext | None, *, connect_timeout: float, max_connections: int
    ) -> None:
        self._url = url
        self._context = context
        self._timeout = connect_timeout
        self._max = max_connections
        self._open = 0
        self._all: set[Connection] = set()
        self._free: list[Connection] = []
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Origin {self._url.where}: {self._open} open, {len(self._free)} free>"

    def __len__(self) -> int:
        return self._open

    @property
    def free(self) -> int:
        """How many connections wait for a request."""
        return len(self._free)

    def take_free(self) -> Connection | None:
        """Return a connection that is free and alive, if there is one."""
        now = self._running_loop().time()
        while self._free:
            connection = self._free.pop()
            if now - connection.free_since < _allowed(connection) and connection.usable():
                return connection
            connection.drop()
        return None

    async def open(self) -> Connection:
        """Return a new connection, or one that becomes free while waiting for room.

        Raises `UpstreamLost` (not sent) when it cannot be had within the connect time-out, and at once
        when as many wait already as may.
        """
        if self._closed:
            raise UpstreamLost("the gateway is stopping", sent=False)
        if self._open >= self._max or self._waiting:
            handed = await self._queue()
            if handed is not None:
                return handed
        else:
            self._open += 1
        try:
            sock = await dial(self._url.host, self._url.port, self._timeout)
        except BaseException:
            self._vacate()
            raise
        return await self._connect(sock)

    def close(self) -> None:
        """Close all connections; what is in flight fails."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._free.clear()
        for connection in list(self._all):
            connection.drop()

    async def _queue(self) -> Connection | None:
        if len(self._waiting) >= max(self._max, _WAITING_LEAST):
            raise self._busy(f"and {len(self._waiting)} requests wait")
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._timeout):
                return await turn
        except TimeoutError:
            self._return_turn(turn)
            raise self._busy(f"and none became free within {self._timeout:g} s") from None
        except BaseException:
            self._return_turn(turn)
            raise

    def _busy(self, how: str) -> UpstreamLost:
        words = f"all {self._max} connections to the upstream are busy, {how}"
        return UpstreamLost(words, sent=False, where=self._url.where, busy=self._max)

    def _return_turn(self, turn: asyncio.Future[Connection | None]) -> None:
        if turn.done() and not turn.cancelled():
            handed = turn.result()
            if handed is None:
                self._vacate()
            else:
                self._ready(handed)
        elif turn in self._waiting:
            self._waiting.remove(turn)

    async def _connect(self, sock: socket.socket) -> Connection:
        connection = Connection(self._ready, self._gone)
        self._all.add(connection)
        name = self._url.host if self._context is not None else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                await loop.create_connection(
                    lambda: connection, sock=sock, ssl=self._context, server_hostname=name
                )
        except BaseException as wrong:
            sock.close()
            self._gone(connection)
            words = _handshake_words(wrong, self._timeout)
            if words is None:
                raise
            raise UpstreamLost(words, sent=False, where=self._url.where) from None
        return connection

    def _ready(self, connection: Connection) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        loop = self._running_loop()
        connection.free_since = loop.time()
        self._free.append(connection)
        if self._sweep is None and not self._closed:
            self._sweep = loop.call_later(_IDLE_UNANNOUNCED / 2, self._drop_idle)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        # Asking asyncio for it costs a system call before Python 3.12, and this is the hot path.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _gone(self, connection: Connection) -> None:
        if connection in self._free:
            self._free.remove(connection)
        if connection in self._all:
            self._all.discard(connection)
            self._vacate()

    def _vacate(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._open -= 1

    def _drop_idle(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [one for one in self._free if now - one.free_since >= _allowed(one)]:
            connection.drop()
        if self._free:
            self._sweep = loop.call_later(_IDLE_UNANNOUNCED / 2, self._drop_idle)


def _handshake_words(wrong: BaseException, seconds: float) -> str | None:
    if isinstance(wrong, TimeoutError):
        return f"the upstream did not finish the TLS handshake within {seconds:g} s"
    if isinstance(wrong, ssl.SSLCertVerificationError):
        return f"the certificate of the upstream is not trusted: {wrong.verify_message}"
    if isinstance(wrong, OSError | EOFError):
        return "the TLS handshake with the upstream failed"
    return None


def _allowed(connection: Connection) -> float:
    if connection.free_for is None:
        return _IDLE_UNANNOUNCED
    return min(_IDLE_MAX, connection.free_for - 1.0)


def tls_context(url: Url, *, verify: bool, ca_file: str | None) -> ssl.SSLContext | None:
    """Return the TLS side of an upstream, `None` for plain HTTP; raise `ConfigError` for a bad file."""
    if url.scheme != "https":
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as wrong:
        raise ConfigError(f"ca_file {ca_file} cannot be used: {wrong.strerror or 'not PEM'}") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
