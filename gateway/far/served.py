"""One line as the owner of its link has it: the frames that the other side has not got yet."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from gateway.far.asking import WINDOW
from gateway.far.letters import LASTS, Frame, Kind
from gateway.far.line import cost
from gateway.far.port import Settling


class Kept(msgspec.Struct):
    """A frame, and when it was last sent (seconds)."""

    frame: Frame
    sent: float


class Served:
    """The answering end of a line. At most a window of bytes is unused; beyond it the link waits."""

    def __init__(self, peer: str, number: int, kind: Kind, place: tuple[str, str], now: float) -> None:
        self.peer = peer
        self.number = number
        self.kind: Kind = kind
        self.place = place
        self.heard = now
        self.sent = 0
        self.used = 0
        self.over = False
        self.kept: deque[Kept] = deque()
        self.task: asyncio.Task[None] | None = None
        self.link: Settling | None = None
        self._unused: deque[int] = deque()
        self._size = 0
        self._room = asyncio.Event()

    def __repr__(self) -> str:
        state = "over" if self.over else "open"
        return f"<Served {self.kind} of {self.peer}, {state}, {self.sent} frames, {len(self.kept)} kept>"

    @property
    def size(self) -> int:
        """The bytes of the frames that are kept."""
        return sum(len(kept.frame.content) for kept in self.kept)

    async def room(self) -> None:
        """Return when the other side has used enough of what it got."""
        while self._size >= WINDOW:
            self._room.clear()
            await self._room.wait()

    def add(self, frame: Frame, now: float) -> None:
        """Keep a frame that is about to be sent."""
        self.sent = frame.number
        self.over = frame.sort in LASTS
        self.kept.append(Kept(frame, now))
        self._unused.append(cost(frame.content))
        self._size += cost(frame.content)

    def progress(self, got: int, used: int) -> int:
        """Take note of how far the other side has got; return the bytes that need not be kept any more.

        What a listener did not use is kept for the next one.
        """
        freed = 0
        until = used if self.kind == "listen" else got
        while self.kept and self.kept[0].frame.number <= until:
            freed += len(self.kept.popleft().frame.content)
        while self.used < min(used, self.sent):
            self.used += 1
            self._size -= self._unused.popleft()
        self._room.set()
        return freed
