"""One line to the owner of a link: what was asked, and the frames that came for it, in order."""

from __future__ import annotations

from collections import deque

from gateway.aio.waiter import Waiter
from gateway.far.letters import LASTS, Asked, Frame, Sort
from gateway.protocol.errors import UpstreamLost

# What a frame costs beside its content.
_EACH = 256


class Line:
    """The asking end of a line. What waits in it is bounded by the owner, who is told what was used.

    `left`: the owner may have heard what is asked. `accepted`: it has, before the letter `accepted_at`
    to it. `seen` frames have come, `got` of them with their parcels, `used` were taken.
    """

    def __init__(self, asked: Asked, owner: str, began: float) -> None:
        self.asked: Asked | None = asked
        self.kind = asked.kind
        self.number = asked.line
        self.owner = owner
        self.began = began
        self.left = False
        self.accepted = False
        self.accepted_at = 0
        self.seen = 0
        self.got = 0
        self.used = 0
        self.over = False
        self.large = False
        self.owed = 0
        self.coming: deque[Frame] = deque()
        self._queue: deque[tuple[Sort, bytes]] = deque()
        self.size = 0
        self._lost: UpstreamLost | None = None
        self._waiter = Waiter()

    def __repr__(self) -> str:
        state = "over" if self.over else "accepted" if self.accepted else "left" if self.left else "new"
        return f"<Line {self.number} {self.kind} to {self.owner}, {state}, {self.seen} frames>"

    def accept(self, serial: int) -> None:
        """Take note that the owner has what was asked: it is never sent again."""
        if not self.accepted:
            self.accepted = self.left = True
            self.accepted_at = serial
            self.asked = None

    def put(self, sort: Sort, content: bytes) -> None:
        """Take the next frame, complete."""
        self.got += 1
        self.over = sort in LASTS
        self._queue.append((sort, content))
        self.size += len(content)
        self._waiter.wake()

    def fail(self, lost: UpstreamLost) -> None:
        """End with a reason; what is there is still delivered."""
        if not self.over:
            self.over = True
            self._lost = lost
            self._waiter.wake()

    async def take(self) -> tuple[Sort, bytes]:
        """Return the next frame; raise `UpstreamLost` where the owner is lost."""
        while not self._queue:
            if self._lost is not None:
                raise self._lost
            await self._waiter.wait()
        sort, content = self._queue.popleft()
        self.used += 1
        self.size -= len(content)
        self.owed += cost(content)
        return sort, content


def cost(content: bytes) -> int:
    """Return what a frame counts in windows, in bytes."""
    return len(content) + _EACH
