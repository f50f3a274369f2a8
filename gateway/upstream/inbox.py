"""Queues of messages for one consumer: bounded, and ending with a reason."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from gateway.aio.waiter import Waiter
from gateway.protocol.errors import UpstreamLost

_log = logging.getLogger("gateway.upstream")


class Inbox:
    """The messages of one exchange, bounded by `limit` bytes that nobody has fetched.

    Beyond that news is dropped first; where that is not enough the exchange ends.
    """

    def __init__(self, method: str, limit: int) -> None:
        self.method = method
        self.asked: set[bytes] = set()
        self._limit = limit
        self._queue: deque[tuple[bytes, bool]] = deque()
        self.dropped = 0
        self._size = 0
        self._complete = False
        self._lost: UpstreamLost | None = None
        self._waiter = Waiter()

    def __repr__(self) -> str:
        return f"<Inbox {self.method}: {len(self._queue)} messages, waits for {len(self.asked)} answers>"

    @property
    def waits(self) -> bool:
        """Whether the call has asked its client something and has no answer yet."""
        return bool(self.asked)

    def put(self, raw: bytes, *, last: bool = False, news: bool = False) -> None:
        """Take a message for the consumer; `news` (progress, log lines) may be lost in a flood."""
        if self._complete or self._lost is not None:
            return
        if self._size + len(raw) > self._limit:
            if news:
                self.dropped += 1
                return
            self._drop_news()
        if self._queue and self._size + len(raw) > self._limit:
            self._queue.clear()
            self._size = 0
            self.fail(
                UpstreamLost(f"more than {self._limit} bytes of the call's messages were not fetched")
            )
            return
        self._queue.append((raw, news))
        self._size += len(raw)
        self._complete = last
        self._waiter.wake()

    def fail(self, lost: UpstreamLost) -> None:
        """End the exchange with a reason; what is queued is still delivered."""
        if not self._complete and self._lost is None:
            self._lost = lost
            self._waiter.wake()

    async def take(self) -> tuple[bytes, bool]:
        """Return the next message and whether it is the last; raise `UpstreamLost`."""
        while not self._queue:
            if self._lost is not None:
                raise self._lost
            await self._waiter.wait()
        raw, _ = self._queue.popleft()
        self._size -= len(raw)
        return raw, self._complete and not self._queue

    def _drop_news(self) -> None:
        kept = deque(entry for entry in self._queue if not entry[1])
        self.dropped += len(self._queue) - len(kept)
        self._queue = kept
        self._size = sum(len(raw) for raw, _ in kept)


class Through(Inbox):
    """A call of a client on a pipe: its messages go the way of all others, so that order is kept."""

    def __init__(self, method: str, loose: Loose) -> None:
        super().__init__(method, 0)
        self._loose = loose

    def put(self, raw: bytes, *, last: bool = False, news: bool = False) -> None:
        """Pass a message on."""
        del last, news
        self._loose.put(raw)


class Loose:
    """What belongs to no exchange: waits for the listener; when full, the oldest goes."""

    def __init__(self, tag: str, max_count: int, max_bytes: int) -> None:
        self._tag = tag
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._turn: asyncio.Future[None] | None = None
        self._reader: object | None = None
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<Loose {len(self._queue)} messages, {self.dropped} dropped>"

    @property
    def read(self) -> bool:
        """Whether somebody listens."""
        return self._reader is not None

    def put(self, raw: bytes) -> None:
        """Take a message for the listener, whoever it will be."""
        self._queue.append(raw)
        self._size += len(raw)
        while len(self._queue) > self._max_count or (self._size > self._max_bytes and len(self._queue) > 1):
            self._size -= len(self._queue.popleft())
            self.dropped += 1
            # Powers of two: a flood must not become a flood of log lines.
            if not self.dropped & (self.dropped - 1):
                _log.warning("link %s: nobody listens, %d messages dropped", self._tag, self.dropped)
        self._wake()

    def drain(self) -> list[bytes]:
        """Take all that waits away."""
        waiting = list(self._queue)
        self._queue.clear()
        self._size = 0
        return waiting

    def enter(self) -> object:
        """Begin to listen; the older listener ends."""
        self._wake()
        self._reader = object()
        return self._reader

    def leave(self, reader: object) -> None:
        """Listen no more."""
        if self._reader is reader:
            self._reader = None

    def end(self) -> None:
        """Let the listener end once it has read what is there."""
        self._ended = True
        self._wake()

    async def take(self, reader: object) -> bytes | None:
        """Return the next message, `None` at the end or when a newer listener has come."""
        while self._reader is reader:
            if self._queue:
                raw = self._queue.popleft()
                self._size -= len(raw)
                return raw
            if self._ended:
                return None
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
        return None

    def _wake(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done():
            turn.set_result(None)
