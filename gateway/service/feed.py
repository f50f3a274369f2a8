"""What is on its way to one client stream: bounded, and it can tell that nobody listens any more."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Literal

import msgspec

from gateway.tasks.model import Outcome, Task

NewsKind = Literal["created", "message", "status", "final"]
# The words of a status are few; the record is kept with them.
_STATUS_BYTES: Final = 512


class News(msgspec.Struct, frozen=True):
    """One thing a client should hear of a task.

    `message` is the upstream's (with the relay's id where it is a request), `offset` its place in
    the task's log, empty where it has none; `outcome` belongs to `final` and `status`, `relay` is the
    id of a server request: a stream takes each but once.
    """

    kind: NewsKind
    task: Task
    message: bytes = b""
    offset: str = ""
    outcome: Outcome | None = None
    relay: str = ""


class Feed:
    """A queue for one stream, bounded by bytes: news of tasks, and raw bytes that pass through.

    News that does not fit ends the feed: the client comes back and reads on from the log. The final
    response always fits. A feed of `only_final` takes no other news: its client cannot hear more.
    """

    def __init__(self, limit: int, *, only_final: bool = False) -> None:
        self._limit = limit
        self._only_final = only_final
        self._queue: deque[News | bytes] = deque()
        self._bytes = 0
        self._bell = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        self._asked: set[str] = set()

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open"
        return f"<Feed {state}, {len(self._queue)} waiting, {self._bytes} bytes>"

    @property
    def open(self) -> bool:
        """Whether messages put in still reach somebody."""
        return not self._ended and not self._only_final

    def put(self, news: News) -> bool:
        """Queue news; tell whether it will reach the stream."""
        if self._ended or (self._only_final and news.kind != "final"):
            return False
        if news.relay:
            if news.relay in self._asked:
                return True
            self._asked.add(news.relay)
        size = size_of(news)
        if self._bytes + size > self._limit and news.kind != "final":
            self.end()
            return False
        self._push(news, size)
        return True

    def put_now(self, news: News) -> bool:
        """Queue news where there is room; false where it must wait. A feed that has ended takes nothing."""
        size = size_of(news)
        if not self._ended and self._queue and self._bytes + size > self._limit:
            return False
        if not self._ended:
            self._push(news, size)
        return True

    async def room(self, size: int) -> bool:
        """Wait until so many bytes fit, or the queue is empty; tell whether they will reach the stream."""
        while self._queue and self._bytes + size > self._limit and not self._ended:
            self._room.clear()
            await self._room.wait()
        return not self._ended

    async def put_later(self, news: News) -> bool:
        """Queue news once there is room, whatever its size; tell whether it will reach the stream."""
        size = size_of(news)
        if not await self.room(size):
            return False
        self._push(news, size)
        return True

    async def put_raw(self, chunk: bytes) -> bool:
        """Queue bytes once there is room; tell whether they will reach the stream."""
        while self._bytes > self._limit and not self._ended:
            self._room.clear()
            await self._room.wait()
        if self._ended:
            return False
        self._push(chunk, len(chunk))
        return True

    def end(self) -> None:
        """Let the reader finish what is queued, then stop."""
        self._ended = True
        self._bell.set()
        self._room.set()

    async def get(self, patience: float | None = None) -> News | bytes | None:
        """Return the next item, `None` at the end; `b""` when nothing came for `patience` seconds."""
        if not self._queue and not self._ended:
            self._bell.clear()
            # A timer that rings is much cheaper than a time-out that cancels, and this is the hot path.
            timer = None
            if patience is not None:
                timer = asyncio.get_running_loop().call_later(patience, self._bell.set)
            try:
                await self._bell.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            if not self._queue and not self._ended:
                return b""
        if not self._queue:
            return None
        item = self._queue.popleft()
        self._bytes -= size_of(item)
        self._room.set()
        return item

    def _push(self, item: News | bytes, size: int) -> None:
        self._queue.append(item)
        self._bytes += size
        self._bell.set()


def size_of(item: News | bytes) -> int:
    """Return the bytes that something keeps while it waits, as far as they count."""
    if isinstance(item, bytes):
        return len(item)
    if item.kind != "status":
        return len(item.message)
    outcome = item.outcome
    shown = b"" if outcome is None else outcome.result or outcome.rpc_error or b""
    return _STATUS_BYTES + len(shown)
