"""Listening: sockets for the HTTP door."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, cast

from aiohttp import web

from gateway.front.http import HttpDoor
from gateway.front.watched import WatchedServer

_MAX_FIELD: Final = 16 * 1024
_GOODBYE_SECONDS: Final = 2.0
_KEEP_ALIVE_SECONDS: Final = 75.0


class Site:
    """The HTTP door on a port."""

    def __init__(self, door: HttpDoor) -> None:
        # A small body may unpack to a large one: the door refuses what is compressed.
        self._server = WatchedServer(
            door.handle,
            door.admits,
            access_log=None,
            max_field_size=_MAX_FIELD,
            auto_decompress=False,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_GOODBYE_SECONDS)

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port, a free one where `port` is 0; raise `OSError` where it is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return cast(int, self._runner.addresses[0][1])

    async def open_unheard(self) -> None:
        """Listen on no port: all connections are brought by `adopt`."""
        await self._runner.setup()

    async def adopt(self, connection: socket.socket) -> None:
        """Serve a connection that somebody else has accepted; it is owned from now on."""
        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._server, connection)
        except OSError:
            # The client has gone again.
            connection.close()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.connections)

    def leave(self) -> None:
        """Serve on, but let each connection end with its next answer."""
        self._server.leaving = True

    async def shut(self) -> None:
        """Stop listening, and let go of connections on which nothing is being answered."""
        self.leave()
        for site in tuple(self._runner.sites):
            await site.stop()
        self._server.pre_shutdown()

    async def close(self) -> None:
        """Stop listening and let go of all connections."""
        await self._runner.cleanup()
