"""The answering side: what other replicas ask of the links that live here."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.far.letters import Asked, Frame, Kind, Polled, Pulse, Sort, pack_error
from gateway.far.mail import Mail
from gateway.far.port import Hosted, Post
from gateway.far.seal import HeaderSeal
from gateway.far.served import Served
from gateway.protocol.codes import LIMIT_REACHED
from gateway.protocol.envelope import peek
from gateway.protocol.errors import GatewayError, Refusal, StoreAway, UpstreamLost

_log: Final = logging.getLogger("gateway.far")

_MAX_LINES: Final = 10_000
_MAX_KEPT: Final = 64 * 1024 * 1024
# A second copy of what is on its way is of no use.
_AGAIN: Final = 0.3
# Who asks says each second that it is there. It has given up long before this.
_FORGET: Final = 60.0
_REMEMBER: Final = 15.0
_SWEEP: Final = 5.0
_STOPPING: Final = "the replica that had the upstream's process has stopped"

_Name = tuple[str, int]


class Hosting:
    """Serves the lines of other replicas; `hosts` are the links of each upstream.

    `count` hears of each line that is opened (1) and that ends (-1).
    """

    def __init__(
        self,
        replica: str,
        post: Post,
        clock: Clock,
        hosts: Mapping[str, Hosted],
        *,
        count: Callable[[int], None],
    ) -> None:
        self._count = count
        self._replica = replica
        self._post = post
        self._mail = Mail(post)
        self._clock = clock
        self._hosts = hosts
        self._crew = Crew("lines served")
        self._letters = Crew("frames")
        self._lines: dict[_Name, Served] = {}
        self._past: dict[_Name, float] = {}
        self._arriving: dict[str, deque[Asked]] = {}
        self._kept = Counter[Kind]()
        self._freed = asyncio.Event()
        self._sweeping: asyncio.Task[None] | None = None
        self._closed = False
        self._ended = asyncio.Event()
        self.seal: HeaderSeal | None = None

    def __repr__(self) -> str:
        return f"<Hosting {len(self._lines)} lines, {self._kept.total()} bytes kept>"

    def __len__(self) -> int:
        return len(self._lines)

    def calls(self, upstream: str, tag: str) -> bool:
        """Tell whether another replica calls through a link."""
        place = (upstream, tag)
        return any(
            one.kind == "call" and one.place == place and not one.over for one in self._lines.values()
        )

    def asked(self, asked: Asked) -> None:
        """Take the beginning of a line, once, in the order in which its sender wrote it."""
        name = (asked.sender, asked.line)
        if self._closed or name in self._lines or name in self._past:
            return
        if len(self._lines) >= _MAX_LINES:
            words = f"Limit reached: lines ({_MAX_LINES} calls of other replicas are served)"
            limit = Refusal(LIMIT_REACHED, words, {"limit": "lines", "max": _MAX_LINES}, status=503)
            sort, content = pack_error(limit)
            frame = Frame(self._replica, asked.line, 1, sort, content)
            self._letters.spawn(self._deliver(asked.sender, frame), "refused")
            return
        place, now = (asked.upstream, asked.tag), self._clock.monotonic()
        self._count(1)
        line = self._lines[name] = Served(asked.sender, asked.line, asked.kind, place, now)
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = self._letters.spawn(self._sweep(), "sweep")
        arriving = self._arriving.get(asked.sender)
        if arriving is not None:
            arriving.append(asked)
        elif asked.parcel:
            self._arriving[asked.sender] = deque([asked])
            self._letters.spawn(self._unpack(asked.sender), "parcels")
        else:
            line.task = self._crew.spawn(self._serve(line, asked), asked.kind)

    def polled(self, polled: Polled) -> None:
        """Take note of how far a replica's lines have got, and say that this one lives."""
        now, unknown = self._clock.monotonic(), list[int]()
        for number, got, used in polled.lines:
            line = self._lines.get((polled.sender, number))
            if line is None:
                if (polled.sender, number) not in self._past:
                    unknown.append(number)
                continue
            line.heard = now
            self._free(line, line.progress(got, used))
            for kept in line.kept:
                if kept.frame.number > got and now - kept.sent > _AGAIN:
                    kept.sent = now
                    self._letters.spawn(self._deliver(line.peer, kept.frame), "again")
        for number, used in polled.done:
            line = self._lines.get((polled.sender, number))
            self._past[polled.sender, number] = now
            if line is not None:
                self._end(line, used)
        pulse = Pulse(self._replica, polled.serial, unknown)
        self._letters.spawn(self._pulse(polled.sender, pulse), "pulse")

    async def settled(self) -> None:
        """Return when no other replica waits for a call."""
        while any(line.kind == "call" and not line.over for line in self._lines.values()):
            self._ended.clear()
            await self._ended.wait()

    async def close(self) -> None:
        """End all lines, with words."""
        self._closed = True
        lost = UpstreamLost(_STOPPING)
        for line in list(self._lines.values()):
            if not line.over:
                self._last(line, lost)
        await self._crew.close()
        # A moment for the last words to leave.
        await self._letters.drain(0.5)
        await self._letters.close()
        self._lines.clear()

    async def _serve(self, line: Served, asked: Asked) -> None:
        try:
            done = await self._carry_out(line, asked)
        except GatewayError as wrong:
            self._last(line, wrong)
        else:
            if not line.over:
                await self._put(line, "end" if done else "absent", b"")

    async def _carry_out(self, line: Served, asked: Asked) -> bool:
        """Do what is asked; false where the link is not here, and nothing was done."""
        host = self._hosts.get(asked.upstream)
        if host is None:
            return False
        if asked.kind == "drop":
            await host.leave(asked.tag)
            return True
        headers = [] if self.seal is None else self.seal.open(asked.headers)
        link = line.link = await host.here(asked.tag, headers, begins=asked.kind != "send")
        if link is None:
            return False
        if asked.kind == "send":
            await link.send(asked.message, headers)
            return True
        source = link.listen() if asked.kind == "listen" else link.exchange(asked.message, headers)
        async with aclosing(source) as coming:
            async for raw in coming:
                last = asked.kind == "call" and _is_response(raw)
                await self._put(line, "last" if last else "message", raw)
        return True

    async def _put(self, line: Served, sort: Sort, content: bytes) -> None:
        """Send a frame; wait before it while the other side is behind, or all others of its kind together.

        What a listener does not fetch is kept for long: no call waits for that.
        """
        if content:
            await line.room()
            while (kept := self._kept[line.kind]) and kept + len(content) > _MAX_KEPT:
                self._freed.clear()
                await self._freed.wait()
        await self._deliver(line.peer, self._add(line, sort, content))

    def _add(self, line: Served, sort: Sort, content: bytes) -> Frame:
        frame = Frame(self._replica, line.number, line.sent + 1, sort, content)
        line.add(frame, self._clock.monotonic())
        if line.over:
            self._ended.set()
        self._kept[line.kind] += len(content)
        return frame

    def _last(self, line: Served, wrong: GatewayError) -> None:
        frame = self._add(line, *pack_error(wrong))
        self._letters.spawn(self._deliver(line.peer, frame), "last")

    async def _deliver(self, peer: str, frame: Frame) -> None:
        try:
            await self._mail.answer(peer, frame)
        except StoreAway:
            # It is kept, and will be asked for.
            return

    async def _pulse(self, peer: str, pulse: Pulse) -> None:
        try:
            await self._mail.send(peer, pulse)
        except StoreAway:
            return

    async def _unpack(self, sender: str) -> None:
        """Fetch the parcels of a sender's lines, one after the other, so that their order stays."""
        arriving = self._arriving[sender]
        while arriving:
            asked = arriving[0]
            message: bytes | None = asked.message
            if asked.parcel:
                try:
                    message = await self._post.fetch(asked.parcel)
                except StoreAway:
                    message = None
            arriving.popleft()
            line = self._lines.get((sender, asked.line))
            if line is None:
                continue
            if message is None:
                # Not known any more: it is sent again.
                del self._lines[sender, asked.line]
                self._count(-1)
                continue
            whole = msgspec.structs.replace(asked, message=message, parcel="")
            line.task = self._crew.spawn(self._serve(line, whole), asked.kind)
        del self._arriving[sender]

    def _end(self, line: Served, used: int) -> None:
        """Let go of a line; what a listener did not use waits for the next."""
        self._lines.pop((line.peer, line.number), None)
        self._ended.set()
        self._count(-1)
        if line.task is not None:
            line.task.cancel()
        if line.kind == "listen" and line.link is not None:
            self._free(line, line.progress(used, used))
            for kept in line.kept:
                if kept.frame.sort == "message":
                    line.link.keep(kept.frame.content)
        self._free(line, line.size)

    def _free(self, line: Served, size: int) -> None:
        if size:
            self._kept[line.kind] -= size
            self._freed.set()

    async def _sweep(self) -> None:
        """Forget lines whose replica does not ask any more, and numbers that cannot come again."""
        while self._lines or self._past:
            await self._clock.sleep(_SWEEP)
            now = self._clock.monotonic()
            for line in list(self._lines.values()):
                if now - line.heard > _FORGET:
                    _log.info("replica %s asks no more for line %d", line.peer, line.number)
                    self._end(line, line.used)
            for name, when in list(self._past.items()):
                if now - when <= _REMEMBER:
                    break
                del self._past[name]


def _is_response(raw: bytes) -> bool:
    try:
        return peek(raw).kind == "response"
    except Refusal:
        return False
