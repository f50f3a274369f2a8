"""The configured upstreams, whichever way they speak, and the choice between the ways."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.errors import ConfigError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.child import environment
from gateway.upstream.dial import dial
from gateway.upstream.http import Http
from gateway.upstream.link import MessageLink
from gateway.upstream.options import CommandOptions, UrlOptions
from gateway.upstream.pool import LinkPool
from gateway.upstream.port import Upstream
from gateway.upstream.sse import open_sse
from gateway.upstream.stdio import open_stdio
from gateway.upstream.warden import Warden

_log = logging.getLogger("gateway.upstream")

# A server that is no legacy one may keep the stream open without ever naming an endpoint.
_PROBE: Final = 10.0


class UrlUpstream:
    """An `Upstream` (see the port) behind a URL."""

    def __init__(
        self, options: UrlOptions, clock: Clock, on_links: Callable[[int], None] | None = None
    ) -> None:
        self._options = options
        self._clock = clock
        self._http = Http(options, clock)
        self._links = LinkPool(
            self._start,
            clock,
            max_links=options.max_links,
            idle=options.idle,
            start_timeout=options.start_timeout,
            on_links=on_links,
        )
        self._legacy = options.transport == "sse"

    def __repr__(self) -> str:
        return f"<UrlUpstream {self.name} {self._options.transport}>"

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self._options.name

    @property
    def http(self) -> Http | None:
        """The Streamable HTTP side."""
        return None if self._options.transport == "sse" else self._http

    @property
    def links(self) -> LinkPool | None:
        """The legacy SSE side."""
        return None if self._options.transport == "streamable-http" else self._links

    @property
    def prefers_links(self) -> bool:
        """Whether it is a legacy server, as far as is known."""
        return self._legacy

    async def fall_back(
        self, tag: str, initialize: bytes, headers: Headers
    ) -> tuple[MessageLink, bytes] | None:
        """Try legacy SSE after HTTP said 400, 404 or 405; `None` where no endpoint is named."""
        if self._options.transport == "streamable-http":
            return None
        if not self._legacy:
            try:
                probe = await self._open(tag, headers, min(_PROBE, self._options.start_timeout))
            except UpstreamLost as lost:
                _log.debug("upstream %s is no legacy server: %s", self.name, lost)
                return None
            await probe.close()
            self._legacy = True
            _log.info("upstream %s speaks the legacy SSE transport", self.name)
        return await self._links.open(tag, initialize, headers)

    async def check(self) -> str | None:
        """Connect and close; return what is wrong in words."""
        url = self._http.url
        try:
            sock = await dial(url.host, url.port, self._options.connect_timeout)
        except UpstreamLost as lost:
            return lost.tell()
        sock.close()
        return None

    async def close(self) -> None:
        """End all connections."""
        await self._links.close()
        await self._http.close()

    async def _start(self, tag: str, headers: Headers) -> MessageLink:
        return await self._open(tag, headers, self._options.start_timeout)

    async def _open(self, tag: str, headers: Headers, seconds: float) -> MessageLink:
        limit = self._options.max_answer
        return await open_sse(self._http, tag, headers, self._clock, seconds=seconds, limit=limit)


class CommandUpstream:
    """An `Upstream` (see the port) that is started as a child process for each session."""

    def __init__(
        self, options: CommandOptions, clock: Clock, on_links: Callable[[int], None] | None = None
    ) -> None:
        if not options.command:
            raise ConfigError(f"the command of upstream {options.name} is empty")
        self._options = options
        self._clock = clock
        self._warden = Warden()
        self._links = LinkPool(
            self._start,
            clock,
            max_links=options.max_links,
            idle=options.idle,
            start_timeout=options.start_timeout,
            on_links=on_links,
        )

    def __repr__(self) -> str:
        return f"<CommandUpstream {self.name}>"

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self._options.name

    @property
    def http(self) -> None:
        """Nothing: a child has no HTTP side."""
        return

    @property
    def links(self) -> LinkPool:
        """The children."""
        return self._links

    @property
    def prefers_links(self) -> bool:
        """Always: a session is a child."""
        return True

    async def fall_back(
        self, tag: str, initialize: bytes, headers: Headers
    ) -> tuple[MessageLink, bytes] | None:
        """Return nothing: there is no other way to a child."""
        del tag, initialize, headers

    async def check(self) -> str | None:
        """Look for the executable and the working directory; return what is wrong in words."""
        return await asyncio.to_thread(self._look)

    async def close(self) -> None:
        """End all children."""
        await self._links.close()
        await self._warden.close()

    def _look(self) -> str | None:
        name, cwd = self._options.command[0], self._options.cwd
        if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 a check of a path as written
            return f"the working directory does not exist: {cwd}"
        path = environment(os.environ, self._options.env).get("PATH")
        looked_up = os.path.join(cwd, name) if cwd and os.sep in name else name  # noqa: PTH118 see above
        if shutil.which(looked_up, path=path) is None:
            return f"the command was not found: {name}"
        return None

    async def _start(self, tag: str, headers: Headers) -> MessageLink:
        del headers
        return await open_stdio(self._options, tag, self._clock, self._warden)


def build(
    options: UrlOptions | CommandOptions, clock: Clock, on_links: Callable[[int], None] | None = None
) -> Upstream:
    """Return the upstream that the configuration means; raise `ConfigError` where it cannot be.

    Nothing is connected or started. `on_links` hears the number of links after each change.
    """
    if isinstance(options, UrlOptions):
        return UrlUpstream(options, clock, on_links)
    return CommandUpstream(options, clock, on_links)
