"""What the configuration says of one upstream: frozen slices, durations in seconds, sizes in bytes."""

from __future__ import annotations

from typing import Literal

import msgspec

Transport = Literal["auto", "streamable-http", "sse"]

MEBIBYTE = 1024 * 1024


class UrlOptions(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream behind a URL.

    `headers` are sent with each request and win over the client's; `max_links` and `idle` are about
    legacy SSE connections; `start_timeout` is the time that one may take to be ready. `max_streams`
    bounds the connections of GET requests, which sessions keep open.
    """

    name: str
    url: str
    transport: Transport = "auto"
    headers: dict[str, str] = {}
    verify_tls: bool = True
    ca_file: str | None = None
    connect_timeout: float = 10.0
    max_connections: int = 1000
    max_streams: int = 10_000
    max_answer: int = 64 * MEBIBYTE
    max_links: int = 100
    idle: float = 3600.0
    start_timeout: float = 30.0


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream that is started as a child process for each session.

    `env` is added to a small safe set of the gateway's own environment; `stop_grace` is the time
    between the end of input, SIGTERM and SIGKILL; `max_line` bounds one message.
    """

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None
    start_timeout: float = 30.0
    stop_grace: float = 3.0
    max_line: int = 16 * MEBIBYTE
    max_links: int = 100
    idle: float = 3600.0
