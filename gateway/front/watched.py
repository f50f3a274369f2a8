"""An aiohttp server whose handlers can hear at once that their client has gone."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from aiohttp import web


class WatchedConnection(web.RequestHandler):
    """One connection; `gone` is called when it is lost."""

    __slots__ = ("gone",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.gone: Callable[[], object] | None = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Pass the loss on to whoever watches."""
        super().connection_lost(exc)
        if self.gone is not None:
            self.gone()


class WatchedServer(web.Server):
    """Makes watched connections."""

    def __call__(self) -> WatchedConnection:
        """Return the protocol of a new connection."""
        return WatchedConnection(self, loop=self._loop, **self._kwargs)


@contextmanager
def on_disconnect(request: web.BaseRequest, call: Callable[[], object]) -> Generator[None, None, None]:
    """Call `call` when the client of a request goes away; once, and only while the block runs."""
    connection = request.protocol
    if not isinstance(connection, WatchedConnection):
        yield
        return
    connection.gone = call
    if request.transport is None:
        call()
    try:
        yield
    finally:
        connection.gone = None
