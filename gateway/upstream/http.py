"""An upstream that speaks HTTP: requests as they are, on reused connections, without a hidden time-out."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.errors import ConfigError, Refusal, UpstreamLost
from gateway.protocol.headers import HOP_BY_HOP, Headers
from gateway.upstream.answer import Answer
from gateway.upstream.channel import HttpChannel
from gateway.upstream.options import UrlOptions
from gateway.upstream.origin import Origin, tls_context
from gateway.upstream.url import parse

_FRAMING: Final = HOP_BY_HOP | {"host", "content-length", "accept-encoding", "expect"}
_REPEATABLE: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
_GONE_KEPT: Final = 10_000
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class Http:
    """The `HttpUpstream` of one configured URL (see the port)."""

    def __init__(self, options: UrlOptions, clock: Clock) -> None:
        """Take the configuration; raise `ConfigError` for a URL, header or CA file that cannot be used."""
        self.url = parse(options.url)
        self._clock = clock
        self._max_answer = options.max_answer
        tls = tls_context(self.url, verify=options.verify_tls, ca_file=options.ca_file)
        self._origin = Origin(
            self.url,
            tls,
            connect_timeout=options.connect_timeout,
            max_connections=options.max_connections,
        )
        # Streams of idle sessions must not take the connections that calls need.
        self._streams = Origin(
            self.url, tls, connect_timeout=options.connect_timeout, max_connections=options.max_streams
        )
        self._gone: dict[str, None] = {}
        own = {name.lower(): content for name, content in options.headers.items()}
        for name, content in own.items():
            if not _is_token(name) or _breaks(content) or name in _FRAMING:
                raise ConfigError(f"the header {name!r} of upstream {options.name} cannot be sent")
        self._taken = _FRAMING | own.keys()
        self._credential = None if "authorization" in own else self.url.authorization
        self._fixed = f"host: {self.url.authority}\r\naccept-encoding: identity\r\n" + "".join(
            f"{name}: {content}\r\n" for name, content in own.items()
        )

    def __repr__(self) -> str:
        return f"<Http {self.url!r}, {self.connections} connections>"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._origin) + len(self._streams)

    async def forward(self, method: str, headers: Headers, body: bytes | None) -> Answer:
        """Send one request to the configured URL; the answer comes as soon as its head is in.

        Raises `UpstreamLost`, and `Refusal` for a header that would break the request apart.
        """
        return await self.request(method, self.url.target, headers, body)

    async def request(self, method: str, target: str, headers: Headers, body: bytes | None) -> Answer:
        """Send one request to a path of the same origin.

        A reused connection that turns out to be closed is replaced once: always where no byte of
        the request left, else only for methods that may be repeated (RFC 9110 section 9.2.2).
        """
        head = self._head(method, target, headers, body)
        origin = self._streams if method == "GET" else self._origin
        connection = origin.take_free()
        if connection is not None:
            try:
                return await connection.ask(method, head, body)
            except UpstreamLost as lost:
                if lost.sent and not (method in _REPEATABLE and connection.silent):
                    raise
        connection = await origin.open()
        return await connection.ask(method, head, body)

    def channel(self, session_id: str | None, headers: Headers) -> HttpChannel:
        """Return the channel of an existing upstream session."""
        made = HttpChannel(self, session_id, headers, clock=self._clock, max_answer=self._max_answer)
        made.on_gone = self._note_gone
        return made

    def is_gone(self, session_id: str) -> bool:
        """Tell whether the upstream has said that it no longer knows a session."""
        return session_id in self._gone

    def _note_gone(self, session_id: str) -> None:
        self._gone[session_id] = None
        if len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]

    async def close(self) -> None:
        """Close all connections."""
        self._origin.close()
        self._streams.close()

    def _head(self, method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
        taken = self._taken
        lines = [f"{method} {target} HTTP/1.1\r\n{self._fixed}"]
        credential = self._credential
        for name, content in headers:
            lowered = name.lower()
            if lowered in taken:
                continue
            if not _is_token(lowered) or _breaks(content):
                raise Refusal(INVALID_REQUEST, "Invalid Request: a header holds a line break", status=400)
            if lowered == "authorization":
                credential = None
            lines.append(f"{lowered}: {content}\r\n")
        if credential is not None:
            lines.append(f"authorization: {credential}\r\n")
        lines.append("\r\n" if body is None else f"content-length: {len(body)}\r\n\r\n")
        return "".join(lines).encode("utf-8", "surrogateescape")


@lru_cache(maxsize=1024)
def _is_token(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None


def _breaks(content: str) -> bool:
    return "\n" in content or "\r" in content or "\0" in content
