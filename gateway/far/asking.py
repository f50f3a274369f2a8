"""The asking side: lines to the owners of links, and what becomes of them when letters are lost.

Each second the owner of each open line is told how far the line has got. Its answer shows that it
lives; without any for `silence` seconds, or when nobody hears its letters, its lines are lost. A
request is sent again only when its owner says that it does not know the line, and only while the
owner would still know one that it had: so that it never reaches the upstream twice (design I3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.far.letters import LASTS, Asked, Frame, Kind, Polled, Pulse, Sort
from gateway.far.line import Line
from gateway.far.mail import INLINE, Mail
from gateway.far.port import Owners, Post
from gateway.protocol.errors import StoreAway, UpstreamLost

_log: Final = logging.getLogger("gateway.far")

WINDOW: Final = 1024 * 1024
_POLL: Final = 1.0
_SOON: Final = 0.2
_DEAF: Final = 3.0
# Far less than an owner keeps a line of which it hears nothing.
_RESEND: Final = 10.0
_MOST_DONE: Final = 500
_MOST_GONE: Final = 1000


class _Peer:
    """What is known of one owner."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.lines: dict[int, Line] = {}
        self.done: list[tuple[int, int]] = []
        self.heard = now
        self.deaf: float | None = None
        self.away = False
        self.serial = 0


class Asking:
    """Asks owners of links for what they do; `silence` (seconds) bounds the wait for a sign of life.

    `count` hears of each line that is opened (1) and that ends (-1).
    """

    def __init__(
        self,
        replica: str,
        post: Post,
        owners: Owners,
        clock: Clock,
        *,
        silence: float,
        count: Callable[[int], None],
    ) -> None:
        self._count = count
        self._replica = replica
        self._post = post
        self._owners = owners
        self._mail = Mail(post)
        self._clock = clock
        self._silence = silence
        self._crew = Crew("far lines")
        self._peers: dict[str, _Peer] = {}
        self._numbers = 0
        self._lost: dict[str, tuple[float, bool]] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Asking {len(self)} lines of {len(self._peers)} replicas>"

    def __len__(self) -> int:
        return sum(len(peer.lines) for peer in self._peers.values())

    @property
    def waiting(self) -> int:
        """The bytes that have come and that nobody has taken yet."""
        return sum(line.size for peer in self._peers.values() for line in peer.lines.values())

    def lost_since(self, owner: str, when: float) -> bool:
        """Tell whether an owner was lost after `when` (seconds of the clock)."""
        return self._lost.get(owner, (float("-inf"), False))[0] >= when

    def is_gone(self, owner: str) -> bool:
        """Tell whether nobody hears an owner's letters any more."""
        return self._lost.get(owner, (0.0, False))[1]

    async def lines(
        self, owner: str, kind: Kind, upstream: str, tag: str, message: bytes, headers: bytes
    ) -> AsyncGenerator[tuple[Sort, bytes], None]:
        """Open a line and yield its frames; raise `UpstreamLost` where the owner is lost.

        `sent` of that is false where the owner surely never heard. Closing early ends the line.
        """
        if self._closed:
            raise UpstreamLost("the gateway is stopping", sent=False)
        now = self._clock.monotonic()
        self._numbers += 1
        asked = Asked(self._replica, self._numbers, kind, upstream, tag, message, "", headers)
        line = Line(asked, owner, now)
        peer = self._peers.get(owner)
        if peer is None:
            peer = self._peers[owner] = _Peer(owner, now)
        elif not peer.lines:
            peer.heard = now
        peer.lines[line.number] = line
        self._tick()
        self._count(1)
        try:
            await self._send(peer, line)
            while True:
                sort, content = await line.take()
                yield sort, content
                if sort in LASTS:
                    return
                if line.owed >= WINDOW // 2:
                    line.owed = 0
                    self._crew.spawn(self._poll(peer, [line]), "told")
        finally:
            self._count(-1)
            self._end(peer, line)

    def frame(self, frame: Frame) -> None:
        """Take a frame of a line."""
        peer = self._hear(frame.sender)
        line = None if peer is None else peer.lines.get(frame.line)
        if peer is None or line is None or line.over or frame.number <= line.seen:
            return
        line.accept(peer.serial)
        if frame.number > line.seen + 1:
            self._crew.spawn(self._poll(peer, [line]), "gap")
            return
        line.seen = frame.number
        if not frame.parcel and not line.coming:
            line.put(frame.sort, frame.content)
            return
        line.large = True
        line.coming.append(frame)
        if len(line.coming) == 1:
            self._crew.spawn(self._unpack(peer, line), "parcel")

    def pulse(self, pulse: Pulse) -> None:
        """Take an owner's sign of life; lines that it does not know are sent again, or lost."""
        peer = self._hear(pulse.sender)
        if peer is None:
            return
        now = self._clock.monotonic()
        for number in pulse.unknown:
            line = peer.lines.get(number)
            if line is None or line.over or pulse.serial <= line.accepted_at:
                # What was written before it had the line comes late.
                continue
            if line.asked is None or now - line.began > _RESEND:
                words = "the replica that has the upstream's process lost the call; its outcome is unknown"
                self._fail(peer, line, UpstreamLost(words))
            else:
                self._crew.spawn(self._send(peer, line), "again")

    def poll_all(self) -> None:
        """Tell all owners at once how far their lines have got: letters may have been lost."""
        for peer in self._peers.values():
            self._crew.spawn(self._poll(peer, list(peer.lines.values())), "again")

    async def close(self) -> None:
        """End all lines."""
        self._closed = True
        await self._crew.close()
        for peer in list(self._peers.values()):
            self._lose(peer, "the gateway is stopping", gone=False)

    def _hear(self, name: str) -> _Peer | None:
        self._lost.pop(name, None)
        peer = self._peers.get(name)
        if peer is not None:
            peer.heard, peer.deaf = self._clock.monotonic(), None
        return peer

    async def _send(self, peer: _Peer, line: Line) -> None:
        asked = line.asked
        if asked is None:
            return
        before, line.left = line.left, True
        try:
            heard = await self._mail.ask(peer.name, asked, lambda: line.number in peer.lines)
            self._heeded(peer, heard)
            if heard or line.accepted:
                return
            line.left = before
            if await self._owners.owner(asked.upstream, asked.tag) != peer.name:
                self._lose(peer, "the replica that had the upstream's process has stopped", gone=False)
        except StoreAway:
            # Whether it left is not known; the owner will say.
            return

    async def _poll(self, peer: _Peer, lines: Sequence[Line]) -> None:
        told = [(line.number, line.got, line.used) for line in lines if line.number in peer.lines]
        done, peer.done = peer.done, []
        if not told and not done:
            return
        for line in lines:
            line.owed = 0
        peer.serial += 1
        try:
            heard = await self._mail.send(peer.name, Polled(self._replica, peer.serial, told, done))
        except StoreAway:
            heard, peer.away = None, True
        if heard is not None:
            self._heeded(peer, heard)
        if not heard and peer.name in self._peers:
            peer.done = [*done, *peer.done][-_MOST_DONE:]

    def _heeded(self, peer: _Peer, heard: bool) -> None:
        peer.away = False
        if heard:
            peer.deaf = None
        elif peer.deaf is None:
            peer.deaf = self._clock.monotonic()

    def _end(self, peer: _Peer, line: Line) -> None:
        """Let go of a line; its owner is told soon, at once where it goes on or keeps much for us."""
        if peer.lines.pop(line.number, None) is None or not line.left:
            return
        peer.done.append((line.number, line.used))
        if not line.over or line.large or len(peer.done) >= _MOST_DONE:
            self._crew.spawn(self._poll(peer, []), "done")

    async def _unpack(self, peer: _Peer, line: Line) -> None:
        """Fetch parcels in the order of their frames; where one is not there, its owner sends it again."""
        while line.coming and not line.over:
            frame = line.coming[0]
            try:
                content = await self._post.fetch(frame.parcel) if frame.parcel else frame.content
            except StoreAway:
                content = None
            if content is None:
                line.coming.clear()
                line.seen = line.got
                return
            line.put(frame.sort, content)
            if len(content) > INLINE:
                # The owner keeps it until then.
                self._crew.spawn(self._poll(peer, [line]), "got")
            line.coming.popleft()

    def _tick(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = self._crew.spawn(self._watch(), "watch")

    async def _watch(self) -> None:
        while self._peers:
            waiting = any(not line.left for peer in self._peers.values() for line in peer.lines.values())
            await self._clock.sleep(_SOON if waiting else _POLL)
            for peer in list(self._peers.values()):
                await self._look_after(peer)

    async def _look_after(self, peer: _Peer) -> None:
        for line in [line for line in peer.lines.values() if not line.left]:
            await self._send(peer, line)
        await self._poll(peer, list(peer.lines.values()))
        now = self._clock.monotonic()
        if peer.deaf is not None and now - peer.deaf > _DEAF:
            self._lose(peer, "the replica that had the upstream's process is gone", gone=True)
        elif peer.lines and now - peer.heard > self._silence:
            what = "the store, over which the replica with" if peer.away else "the replica that has"
            how = " is asked, did not answer" if peer.away else " was silent"
            self._lose(peer, f"{what} the upstream's process{how} for {self._silence:g} s", gone=False)
        elif not peer.lines and not peer.done:
            self._peers.pop(peer.name, None)

    def _lose(self, peer: _Peer, what: str, *, gone: bool) -> None:
        self._peers.pop(peer.name, None)
        self._lost[peer.name] = (self._clock.monotonic(), gone)
        if len(self._lost) > _MOST_GONE:
            self._lost.pop(next(iter(self._lost)))
        if peer.lines:
            _log.warning("%d lines to replica %s are lost: %s", len(peer.lines), peer.name, what)
        for line in list(peer.lines.values()):
            when = "during the call; its outcome is unknown" if line.kind == "call" else ""
            words = f"{what} {when}".strip() if line.left else f"{what} before the message was sent"
            self._fail(peer, line, UpstreamLost(words, sent=line.left))

    def _fail(self, peer: _Peer, line: Line, lost: UpstreamLost) -> None:
        peer.lines.pop(line.number, None)
        line.fail(lost)
