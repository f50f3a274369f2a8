"""What an upstream looks like to the rooms above, whatever carries its bytes.

There are two shapes. An HTTP upstream keeps its own sessions: the gateway relays raw exchanges.
A *link* (stdio child, legacy SSE connection) is a duplex stream of messages that the gateway holds
for one client session. Both offer a `Channel` to the task service: send one message, get the
messages that belong to it.

Everything raises `UpstreamLost`, in words for a person, when the upstream does not answer as a
server must; foreign exceptions (`OSError`, parser errors, time-outs) never leave this room.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol, TypeGuard, runtime_checkable

from gateway.protocol.headers import Headers


class Reply(Protocol):
    """A raw HTTP answer whose body is still coming. Must be closed; closing early is allowed.

    Closing before the end drops the connection; reading to the end gives it back for reuse.
    """

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Headers:
        """The headers as they came, names in lower case."""
        ...

    def header(self, name: str) -> str | None:
        """Return the first header of a lower-case name."""
        ...

    async def read(self, limit: int) -> bytes:
        """Return the whole body; raise `UpstreamLost` when it is longer than `limit` or cut short."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; raise `UpstreamLost` when it is cut short."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


class Channel(Protocol):
    """One session with one upstream, as the task service sees it."""

    def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the messages that belong to it, its response last.

        The generator ends after the response. A stream that is cut is resumed with `Last-Event-ID`
        where the upstream numbers its events; where it cannot be, `UpstreamLost`. Closing the
        generator stops listening without telling the upstream anything.
        """
        ...

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response."""
        ...

    async def close(self) -> None:
        """End the session with the upstream."""
        ...


class Placed(bytes):
    """A message that came in a numbered event: `place` is that event's id."""

    place: str

    def __new__(cls, message: bytes, place: str) -> Placed:
        """Return the message with its place."""
        made = super().__new__(cls, message)
        made.place = place
        return made


def place_of(message: bytes) -> str:
    """Return the id of the event that a message came in, empty where it has none."""
    return message.place if isinstance(message, Placed) else ""


class Placing(Channel, Protocol):
    """A `Channel` whose messages are `Placed` where they came in numbered events.

    `on_place` hears the id of an event that came before any message: those after it can be had by it
    alone.
    """

    on_place: Callable[[str], None] | None


def is_placing(channel: object) -> TypeGuard[Placing]:
    """Tell whether a channel is `Placing`; a runtime protocol would take ten times as long."""
    return hasattr(channel, "on_place")


@runtime_checkable
class Resumable(Placing, Protocol):
    """A `Channel` whose exchange can be taken up by another (2025-11-25 "Resumability and Redelivery")."""

    def resume(self, ident: bytes, place: str, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield what came after an event of the exchange of a request, as `exchange` does.

        `ident` is the request's id as it was sent. Raises `UpstreamLost` where the upstream does not
        have it any more.
        """
        ...


class Link(Channel, Protocol):
    """A duplex stream of messages, held for one client session.

    Messages from the upstream that answer an `exchange`, or carry the progress token of one, go to
    it. A server request or other notification goes to the call it most likely belongs to: the
    youngest exchange in flight that is not already waiting for an answer. Where all wait, a request
    goes to the youngest of them, a notification to the listener. Without exchanges both go to the
    listener; without a listener, to a bounded queue that the next listener drains.
    """

    @property
    def tag(self) -> str:
        """The name of the link in the pool."""
        ...

    @property
    def alive(self) -> bool:
        """Whether messages still pass."""
        ...

    def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield what belongs to no exchange; a newer listener ends the older one.

        Ends when the link ends.
        """
        ...


class HttpUpstream(Protocol):
    """An upstream that speaks Streamable HTTP."""

    async def forward(self, method: str, headers: Headers, body: bytes | None) -> Reply:
        """Send one HTTP request as it is and return the answer as soon as its head is in.

        `headers` are complete but for `host`, `content-length` and what the configuration adds.
        """
        ...

    def is_gone(self, session_id: str) -> bool:
        """Tell whether the upstream has said (404) that it no longer knows a session."""
        ...

    def channel(self, session_id: str | None, headers: Headers) -> Channel:
        """Return the channel of an existing upstream session.

        `headers` are the client's (credentials, protocol version) and go with resumption and close.
        """
        ...


class LinkUpstream(Protocol):
    """An upstream whose sessions are links."""

    async def open(self, tag: str, initialize: bytes, headers: Headers) -> tuple[Link, bytes]:
        """Start a link, send the client's `initialize` request and return the link and the answer.

        Raises `Refusal` (limit reached) when there are as many links as there may be.
        """
        ...

    async def find(self, tag: str, initialize: bytes | None, headers: Headers) -> Link | None:
        """Return a living link, or revive it: start anew, replay the handshake of `initialize`.

        `initialize` is the client's original request. Concurrent calls revive once. `None` where
        the link is dead and there is nothing to revive it with.
        """
        ...

    async def drop(self, tag: str) -> None:
        """End a link, whether it lives or not."""
        ...


class Upstream(Protocol):
    """One configured upstream."""

    @property
    def name(self) -> str:
        """The name in the configuration."""
        ...

    @property
    def http(self) -> HttpUpstream | None:
        """The HTTP side, `None` for `command:` and `transport: sse`."""
        ...

    @property
    def links(self) -> LinkUpstream | None:
        """The link side, `None` for `transport: streamable-http`."""
        ...

    @property
    def prefers_links(self) -> bool:
        """Whether sessions are links, as far as is known.

        `transport: auto` begins with HTTP and changes once the fallback of the transport text
        (2025-11-25 "Backwards Compatibility") has found a legacy SSE server.
        """
        ...

    async def fall_back(self, tag: str, initialize: bytes, headers: Headers) -> tuple[Link, bytes] | None:
        """Try the legacy SSE transport after HTTP said 400, 404 or 405; `None` where it is not one."""
        ...

    async def check(self) -> str | None:
        """Return what is wrong with the upstream in words, `None` where it can be reached."""
        ...

    async def close(self) -> None:
        """End all connections and children."""
        ...
