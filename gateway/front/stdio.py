"""The stdio door: messages of one client on standard input and output, one a line. Knows no tasks."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator
from typing import Final, Protocol

from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.envelope import refusal_response
from gateway.protocol.errors import Refusal

_CHUNK: Final = 256 * 1024


class Taker(Protocol):
    """Whoever takes the lines."""

    async def take(self, raw: bytes) -> None:
        """Take one line."""
        ...


class StdioDoor:
    """Reads lines from a file descriptor and writes lines to another.

    `limit` bounds a line in bytes; a longer one is answered with an error and left out.
    """

    def __init__(self, limit: int, source: int | None = None, target: int | None = None) -> None:
        self._limit = limit
        self._source = sys.stdin.fileno() if source is None else source
        self._target = sys.stdout.fileno() if target is None else target
        self._writing = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Make ready for writing."""
        if not _is_regular(self._target):
            loop = asyncio.get_running_loop()
            transport, protocol = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, os.fdopen(self._target, "wb", 0, closefd=False)
            )
            self._writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(self, message: bytes) -> None:
        """Write one message as one line; wait while the reader is slow."""
        line = message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
        async with self._writing:
            if self._writer is None:
                await asyncio.to_thread(_write_all, self._target, line)
                return
            self._writer.write(line)
            await self._writer.drain()

    async def read_all(self, taker: Taker) -> None:
        """Hand every line to `taker` until the input ends."""
        rest = b""
        skipping = False
        async for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if skipping or len(line) > self._limit:
                    skipping = False
                    await self._refuse_long()
                elif line.strip():
                    await taker.take(line.rstrip(b"\r"))
            if len(rest) > self._limit:
                rest, skipping = b"", True
        if rest.strip() and not skipping:
            await taker.take(rest)

    async def _refuse_long(self) -> None:
        words = f"Limit reached: the line is longer than request_bytes ({self._limit} bytes)"
        await self.write(refusal_response(None, Refusal(INVALID_REQUEST, words)))

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        if _is_regular(self._source):
            while chunk := await asyncio.to_thread(os.read, self._source, _CHUNK):
                yield chunk
            return
        reader = asyncio.StreamReader(limit=_CHUNK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._source, "rb", 0, closefd=False)
        )
        try:
            while chunk := await reader.read(_CHUNK):
                yield chunk
        finally:
            transport.close()


def _is_regular(descriptor: int) -> bool:
    """Tell whether a descriptor is none that the event loop can wait for: a file, or /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
