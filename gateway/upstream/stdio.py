"""A link to a child process that speaks MCP on its standard input and output, one message a line."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.child import Child, start
from gateway.upstream.lines import Lines, one_line
from gateway.upstream.link import MessageLink
from gateway.upstream.options import CommandOptions
from gateway.upstream.warden import Warden

_log = logging.getLogger("gateway.upstream")

_UNREAD_LINES: Final = 4


class StdioWire:
    """The `Wire` of one child process: lines in and out."""

    def __init__(self, options: CommandOptions, link: MessageLink, warden: Warden) -> None:
        self._name = options.name
        self._link = link
        self._warden = warden
        self._lines = Lines(options.max_line)
        self._max_unread = options.max_line * _UNREAD_LINES
        self._child = Child(self._take, self._ended, options.stop_grace)
        self._closing = False
        self._deaf = False

    def __repr__(self) -> str:
        return f"<StdioWire {self._name} {self._child!r}>"

    def write(self, message: bytes, headers: Headers) -> asyncio.Future[None] | None:  # noqa: ARG002 a pipe has no headers
        """Write a message as one line."""
        if self._child.unwritten > self._max_unread:
            raise UpstreamLost("the upstream process does not read its input", sent=False)
        return self._child.write(one_line(message) + b"\n")

    async def close(self) -> None:
        """End the process and its group."""
        self._closing = True
        try:
            await self._child.end()
        finally:
            self._warden.release(self._child.pid)

    async def start(self, options: CommandOptions) -> None:
        """Start the process; raise `UpstreamLost` where it cannot be started."""
        await start(options, self._child)
        try:
            await self._warden.watch(self._child.pid)
        except BaseException:
            self._child.signal(signal.SIGKILL)
            await self._child.end()
            raise

    def _take(self, data: bytes) -> None:
        if self._deaf:
            return
        try:
            for line in self._lines.feed(data):
                self._link.receive(line)
                if self._link.over:
                    self._deaf = True
                    return
        except ValueError as wrong:
            self._deaf = True
            self._ended(f"the upstream sent {wrong}")

    def _ended(self, what: str) -> None:
        if not self._closing:
            words = self._child.last_words
            _log.warning("upstream %s: %s%s", self._name, what, f"; it said:\n{words}" if words else "")
        self._link.end(what)


_PIPE_MESSAGES: Final = 1_000_000
_PIPE_BYTES: Final = 256 * 1024 * 1024


async def open_pipe(options: CommandOptions, clock: Clock, warden: Warden) -> MessageLink:
    """Start a child process for a client that is on a pipe itself; raise `UpstreamLost`."""
    link = MessageLink(
        "pipe",
        clock.monotonic,
        max_inbox=options.max_line,
        max_loose=_PIPE_MESSAGES,
        max_loose_bytes=_PIPE_BYTES,
        through=True,
    )
    wire = StdioWire(options, link, warden)
    await wire.start(options)
    link.attach(wire)
    return link


async def open_stdio(options: CommandOptions, tag: str, clock: Clock, warden: Warden) -> MessageLink:
    """Start a child process and return the link to it; raise `UpstreamLost` where it cannot be started."""
    link = MessageLink(tag, clock.monotonic, max_inbox=options.max_line)
    wire = StdioWire(options, link, warden)
    await wire.start(options)
    link.attach(wire)
    return link
