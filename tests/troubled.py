"""A way to a server that can be troubled: paused, cut, slowed, cut in the middle of an answer, closed.

One way for each client that is to have its own troubles (`Troubled.to(url)` on a free port of 127.0.0.1).
It knows bytes only, and counts connections, so that a crowd of reconnects is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536


class Troubled:
    """A listening port in front of a server; what is said of it holds for all connections, old and new."""

    def __init__(self, url: str) -> None:
        self._target = url
        self._server: asyncio.Server | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._closed = False
        self._ends: set[Callable[[], None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.accepted = 0
        """How many connections have been made, those among them that were closed at once."""
        self.delay = 0.0
        """How long each chunk on its way to the server waits, in seconds; a batch is mostly one chunk."""
        self.reply_bytes_left: int | None = None
        """How many bytes of answers still cross before all connections are cut, once; `None`: no end."""
        self.on_request: Callable[[bytes], None] = lambda _: None
        """Hears each chunk on its way to the server, before it is passed on; may call `cut` and `pause`."""

    def __repr__(self) -> str:
        state = "closed" if self._closed else "flows" if self._flows.is_set() else "paused"
        return f"<Troubled {self.port} to {self._target}: {state}, {len(self._ends)} connections>"

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str) -> AsyncGenerator[Troubled]:
        """Open a way to `redis://host:port`, `http://host:port` or `unix:///path`."""
        way = cls(url)
        way._server = await asyncio.start_server(way._serve, HOST, 0)
        way.port = int(way._server.sockets[0].getsockname()[1])
        try:
            yield way
        finally:
            way._server.close()
            way._closed = True
            way.resume()
            way.cut()
            await asyncio.gather(*way._tasks)
            await way._server.wait_closed()

    @property
    def url(self) -> str:
        """The URL of a Redis behind it."""
        return f"redis://{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        return len(self._ends)

    def pause(self) -> None:
        """Pass nothing on in either direction; connections are still accepted and what is sent waits."""
        self._flows.clear()

    def resume(self) -> None:
        """Pass on what waits and what comes."""
        self._flows.set()

    def cut(self) -> None:
        """Reset all connections; new ones are welcome."""
        for end in list(self._ends):
            end()

    def cut_after(self, reply_bytes: int) -> None:
        """Let so many bytes of answers cross, then cut all connections, once."""
        self.reply_bytes_left = reply_bytes

    def shut(self) -> None:
        """Cut all connections and reset each new one at once, until `open_again`."""
        self._closed = True
        self.cut()

    def open_again(self) -> None:
        """Welcome new connections."""
        self._closed = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        writers = [writer]

        def end() -> None:
            for each in writers:
                each.transport.abort()

        self._ends.add(end)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._closed:
                return
            far_reader, far_writer = await self._connect()
            writers.append(far_writer)
            await asyncio.gather(
                self._pump(reader, far_writer, self._ask, end),
                self._pump(far_reader, writer, self._answer, end),
            )
        except OSError:
            pass
        finally:
            end()
            self._ends.discard(end)
            self._tasks.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._target)
        if parts.scheme == "unix":
            return await asyncio.open_unix_connection(parts.path)
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        through: Callable[[bytes], Awaitable[tuple[bytes, bool]]],
        end: Callable[[], None],
    ) -> None:
        try:
            while data := await reader.read(_CHUNK):
                passed, last = await through(data)
                writer.write(passed)
                await writer.drain()
                if last:
                    self.cut()
        except OSError:
            pass
        finally:
            # Whichever side ends first ends the other.
            end()

    async def _ask(self, data: bytes) -> tuple[bytes, bool]:
        if self.delay:
            await asyncio.sleep(self.delay)
        self.on_request(data)
        await self._flows.wait()
        return data, False

    async def _answer(self, data: bytes) -> tuple[bytes, bool]:
        await self._flows.wait()
        left = self.reply_bytes_left
        if left is None:
            return data, False
        self.reply_bytes_left = None if left <= len(data) else left - len(data)
        return data[:left], left <= len(data)
