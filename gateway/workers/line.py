"""A line between supervisor and worker: messages over a socket pair, each behind its length."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, Generic, TypeVar

import msgspec

from gateway.workers.messages import Message

Heard = TypeVar("Heard")

_LENGTH: Final = 4
_MAX_BYTES: Final = 64 << 20


class Line(Generic[Heard]):
    """One end of a line; `kinds` is the union of the messages that come from the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kinds: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Heard] = msgspec.msgpack.Decoder(kinds)

    @classmethod
    async def over(cls, end: socket.socket, kinds: Any) -> Line[Heard]:
        """Return the line over one end of a socket pair, which it owns from now on."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end), kinds)

    def say(self, message: Message) -> None:
        """Send a message; one that the other end no longer hears is lost."""
        if not self._writer.is_closing():
            body = self._encoder.encode(message)
            self._writer.write(len(body).to_bytes(_LENGTH, "big") + body)

    async def hear(self) -> Heard | None:
        """Return the next message, `None` when the other end is gone."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            if length > _MAX_BYTES:
                return None
            return self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
            return None

    async def close(self) -> None:
        """Send what waits and let go; an end that does not read gets a second."""
        self._writer.close()
        try:
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()
