"""What the session room asks of the crossing, whichever eras meet in it.

All messages that pass here have the form of the handshake era (2025-11-25): requests without
per-request metadata, server requests as requests, results without `resultType`. What a client of the
stateless era sends is given that form before, and what it gets is given its own form after.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from gateway.protocol.headers import Headers
from gateway.upstream.port import Channel, Link, LinkUpstream

Era = Literal["handshake", "stateless"]


class Caller(msgspec.Struct, frozen=True):
    """Who calls through the crossing, and what that client can do.

    `principal` is a keyed hash or `None`; `capabilities` the client's capabilities object and `info`
    its name and version, as canonical JSON; `log_level` the least level of log messages it wants.
    """

    principal: str | None
    capabilities: bytes = b"{}"
    info: bytes | None = None
    log_level: str | None = None


class Wanted(msgspec.Struct, frozen=True):
    """Which changes a subscription is about: list kinds, and resources by URI."""

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: Sequence[str] = ()


class Ground(msgspec.Struct, frozen=True, array_like=True):
    """Where an exchange of a held session is to be found again, by any replica.

    `session_id` is the upstream's own, `version` the negotiated one, `ident` the id (raw JSON) under
    which the request was sent.
    """

    session_id: str | None
    version: str
    ident: bytes


@runtime_checkable
class Grounded(Protocol):
    """A channel that may tell where its last exchange is to be found again."""

    @property
    def ground(self) -> Ground | None:
        """The place, `None` where nobody else can take the exchange up."""
        ...


class Settling(Link, Protocol):
    """A link that tells when nothing is in flight."""

    async def settled(self) -> None:
        """Return when no exchange is read any more."""
        ...


class Crossing(Protocol):
    """One upstream, for clients of the era that it may not speak.

    Raises `UpstreamLost` where the upstream does not answer, `Refusal` where a bound is met.
    """

    @property
    def links(self) -> LinkUpstream:
        """Sessions of handshake-era clients with an upstream that is stateless only.

        `initialize` is answered from the upstream's `server/discover`.
        """
        ...

    async def era(self, headers: Headers) -> Era:
        """Tell whether the upstream takes stateless requests itself; asked once, then remembered.

        `headers` are a client's, for its credentials.
        """
        ...

    async def opened(self, caller: Caller, headers: Headers) -> bytes:
        """Return the raw result object of the upstream's `initialize` (or what would be one)."""
        ...

    def channel(self, caller: Caller, *, drive: bool) -> Channel:
        """Return a channel for one call.

        Its session with the upstream is taken from those that are held for the caller, and made anew
        once where the upstream forgot it. `drive` has a tool that its upstream runs only as a task
        called as one there; the channel yields the plain result.
        """
        ...

    def regained(self, ground: Ground, headers: Headers) -> tuple[Channel, Headers] | None:
        """Return the channel of a session that another replica held, and the headers to be used there.

        `None` where the upstream cannot be reached in that way any more.
        """
        ...

    def relay(self, caller: Caller, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request of the stateless era as it is to an upstream of that era; yield its messages.

        These are as the upstream said them. Closing the generator early cancels the request.
        """
        ...

    def listen(self, caller: Caller, wanted: Wanted, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield an empty message once the upstream listens, then its notifications of changes."""
        ...

    async def over(self, child: Link, initialize: bytes, headers: Headers) -> tuple[Settling, bytes] | None:
        """Open a session over a child that refused to be initialized; return it and the answer.

        `None` where the child does not speak the stateless era either. Never raises `UpstreamLost`.
        """
        ...

    def awaits(self, tag: str, message: bytes) -> bool:
        """Tell whether a call of the session `tag` waits here for an answer, or is here to be cancelled."""
        ...

    async def hear(self, tag: str, message: bytes) -> None:
        """Take what the client of a session said elsewhere; nothing happens where it is not here."""
        ...

    async def runs_tasks(self, headers: Headers) -> bool:
        """Tell whether a stateless upstream has the tasks extension itself; false for any other."""
        ...

    async def honoured(self, caller: Caller, wanted: Wanted, headers: Headers) -> Wanted:
        """Return the part of what is wanted that the upstream can tell of."""
        ...

    async def tool_support(self, caller: Caller, tool: str, headers: Headers) -> str:
        """Return the upstream's own `taskSupport` of a tool: forbidden, optional or required.

        Always `forbidden` where the upstream has no tasks of its own.
        """
        ...

    async def tool_schema(self, caller: Caller, tool: str, headers: Headers) -> bytes | None:
        """Return the raw `inputSchema` of a tool whose arguments headers must mirror, else `None`."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...
