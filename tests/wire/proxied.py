"""A TCP proxy of the tests' own, that can cut one replica off from its Redis."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on until it is `cut`, and again after `mend`."""

    def __init__(self, target: str) -> None:
        place = urlsplit(target)
        assert place.hostname is not None
        assert place.port is not None
        self._host, self._port = place.hostname, place.port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._whole = True
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """End all connections, and each new one."""
        self._whole = False
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Let connections pass again."""
        self._whole = True

    def stop(self) -> None:
        """Stop listening."""
        self.cut()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, back}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(reader, back))
                both.create_task(_pass(there, writer))
        finally:
            self._writers -= {writer, back}


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
