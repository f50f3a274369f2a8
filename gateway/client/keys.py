"""Lines that a person types, read without blocking the event loop.

A thread of its own reads the descriptor and not `sys.stdin`: a program that ends while a thread
waits inside `sys.stdin` cannot end cleanly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading


class Keys:
    """Lines of a file descriptor; one reader at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = b""
        self._ended = False
        self._reading = False
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Keys fd={self._fd} ended={self._ended}>"

    async def line(self) -> str | None:
        """Return the next line without its end, `None` when there are no more."""
        while b"\n" not in self._waiting and not self._ended:
            self._wake.clear()
            if not self._reading:
                self._reading = True
                loop = asyncio.get_running_loop()
                threading.Thread(target=self._read, args=(loop,), name="keys", daemon=True).start()
            await self._wake.wait()
        if not self._waiting:
            return None
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            data = os.read(self._fd, 4096)
        except OSError:
            data = b""
        # The loop may have closed while the thread waited.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._got, data)

    def _got(self, data: bytes) -> None:
        self._reading = False
        self._ended = not data
        self._waiting += data
        self._wake.set()
