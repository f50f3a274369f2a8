"""The messages of one exchange, and those that came for it on another way, in one row."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gateway.aio.spawn import Crew
from gateway.protocol.errors import UpstreamLost

_HIGH_WATER: Final = 256 * 1024
_MAX_INSERTED: Final = 64


class Merged:
    """Yields what an exchange yields; others may insert messages before its last one.

    Reading ahead stops at some 256 KiB that were not fetched.
    """

    def __init__(self, source: AsyncGenerator[bytes, None], crew: Crew) -> None:
        self._source = source
        self._crew = crew
        self._row: deque[bytes] = deque()
        self._size = 0
        self._inserted: deque[bytes] = deque()
        self._over = False
        self._failed: Exception | None = None
        self._some = asyncio.Event()
        self._room = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Merged {len(self._row)} and {len(self._inserted)} messages>"

    def insert(self, raw: bytes) -> bool:
        """Put a message in; false where it is too late or too many wait."""
        if self._over or self._failed is not None or len(self._inserted) >= _MAX_INSERTED:
            return False
        self._inserted.append(raw)
        self._some.set()
        return True

    def unread(self) -> list[bytes]:
        """Return what was inserted and never read."""
        return list(self._inserted)

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the messages; raise what the exchange raises."""
        pump = self._crew.spawn(self._pump(), "exchange")
        try:
            while True:
                if self._inserted:
                    yield self._inserted.popleft()
                elif self._row:
                    raw = self._row.popleft()
                    self._size -= len(raw)
                    self._room.set()
                    yield raw
                elif self._failed is not None:
                    raise self._failed
                elif self._over:
                    return
                else:
                    self._some.clear()
                    await self._some.wait()
        finally:
            self._over = True
            pump.cancel()
            await asyncio.wait([pump])

    async def _pump(self) -> None:
        try:
            async with aclosing(self._source) as coming:
                async for raw in coming:
                    while self._size > _HIGH_WATER:
                        self._room.clear()
                        await self._room.wait()
                    self._row.append(raw)
                    self._size += len(raw)
                    self._some.set()
        except asyncio.CancelledError:
            self._failed = UpstreamLost("the session with the upstream was ended")
            raise
        except Exception as wrong:  # noqa: BLE001 handed to the reader, which raises it
            self._failed = wrong
        finally:
            self._over = True
            self._some.set()
