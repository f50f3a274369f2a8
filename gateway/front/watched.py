"""An aiohttp server whose handlers can hear at once that their client has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.envelope import refusal_response
from gateway.protocol.errors import Refusal
from gateway.protocol.headers import JSON

_log: Final = logging.getLogger("gateway.front")
HEAD_SECONDS: Final = 60.0
SURPLUS_SECONDS: Final = 2.0
_SERVER_FAULT: Final = 500


class WatchedConnection(web.RequestHandler):
    """One connection; `gone` is called when it is lost.

    A connection that sends no request head within `HEAD_SECONDS` is closed. What is not HTTP is
    answered with a JSON-RPC error and leaves no trace in the log: anybody can send it.
    """

    __slots__ = ("_impatience", "gone", "server", "surplus")

    def __init__(self, server: WatchedServer, **options: Any) -> None:
        super().__init__(server, **options)
        self.server = server
        self.gone: Callable[[], object] | None = None
        self.surplus = False
        self._impatience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, but not for ever."""
        super().connection_made(transport)
        self.surplus = not self.server.admits(self.server.open)
        self.server.open += 1
        seconds = SURPLUS_SECONDS if self.surplus else HEAD_SECONDS
        self._impatience = asyncio.get_running_loop().call_later(seconds, transport.close)
        if self.surplus and not self.server.admits(self.server.open // 2):
            transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Pass the loss on to whoever watches."""
        super().connection_lost(exc)
        self.server.open -= 1
        self.greeted()
        if self.gone is not None:
            self.gone()

    def close(self) -> None:
        """Close where a client has been answered and asks nothing, lest the rest of a body be lost."""
        if self._current_request is None and self._impatience is None:
            super().close()

    def greeted(self) -> None:
        """Note that a request head has come."""
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be read as HTTP; the connection ends."""
        if status >= _SERVER_FAULT:
            return super().handle_error(request, status, exc, message)
        _log.debug("a request from %s is not HTTP: %s", request.remote, type(exc).__name__)
        refusal = Refusal(INVALID_REQUEST, "Bad Request: the request is not HTTP, or its head is too large")
        response = web.Response(status=status, body=refusal_response(None, refusal), content_type=JSON)
        response.force_close()
        return response


class WatchedServer(web.Server):
    """Makes watched connections. While it is `leaving`, each answer is the last one of its connection.

    `admits` tells whether one more is served beside so many that are `open`. One that is not waits for its
    first request, to be refused; beyond twice as many not even that.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        admits: Callable[[int], bool],
        **options: Any,
    ) -> None:
        super().__init__(handler, **options)
        self.leaving = False
        self.admits = admits
        self.open = 0

    def __call__(self) -> WatchedConnection:
        """Return the protocol of a new connection."""
        return WatchedConnection(self, loop=self._loop, **self._kwargs)


def greet(request: web.BaseRequest) -> None:
    """Note that a request's head has come."""
    if isinstance(request.protocol, WatchedConnection):
        request.protocol.greeted()


def is_surplus(request: web.BaseRequest) -> bool:
    """Tell whether a request came on a connection beyond those that are served."""
    return isinstance(request.protocol, WatchedConnection) and request.protocol.surplus


def part(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Say in the head of an answer that its connection ends, where the server is leaving."""
    connection = request.protocol
    if isinstance(connection, WatchedConnection) and connection.server.leaving:
        response.force_close()


class EndedByClient:
    """Cancels the block `patience` seconds after the client of a request has gone; at once with 0.

    A class, since every request passes here: a generator would cost as much as the look at a message.
    """

    __slots__ = ("_before", "_connection", "_me", "_patience", "_timer")

    def __init__(self, request: web.BaseRequest, patience: float) -> None:
        connection = request.protocol
        self._connection = connection if isinstance(connection, WatchedConnection) else None
        # Asking asyncio for the current task costs a system call before Python 3.12.
        self._me = request.task
        self._patience = patience
        self._before: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        connection = self._connection
        if connection is not None:
            self._before, connection.gone = connection.gone, self._gone
            if connection.transport is None:
                self._gone()

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.gone = self._before
        if self._timer is not None:
            self._timer.cancel()

    def _gone(self) -> None:
        if self._patience:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self._me.cancel)
        else:
            self._me.cancel()


class OnDisconnect:
    """Calls `call` when the client of a request goes away; once, and only while the block runs.

    A class, since streams stay in the block for hours: a generator would hold twice the memory.
    """

    __slots__ = ("_before", "_call", "_connection")

    def __init__(self, request: web.BaseRequest, call: Callable[[], object]) -> None:
        connection = request.protocol
        self._connection = connection if isinstance(connection, WatchedConnection) else None
        self._call = call
        self._before: Callable[[], object] | None = None

    def __enter__(self) -> None:
        connection = self._connection
        if connection is not None:
            self._before, connection.gone = connection.gone, self._call
            if connection.transport is None:
                self._call()

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.gone = self._before
