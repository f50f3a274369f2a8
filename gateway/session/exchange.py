"""What passes between a front and the session room: one request in, one of three answers out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from gateway.protocol.headers import EVENT_STREAM, JSON, Headers
from gateway.upstream.port import Reply

KEEP_ALIVE: Final = b": keep-alive\n\n"
KEEP_ALIVE_SECONDS: Final = 15.0


class Inbound(msgspec.Struct):
    """One HTTP request of a client; header names in lower case.

    `method` and `request_id` are those of the message, once the router has looked at it.
    """

    upstream: str
    verb: str
    headers: Headers
    body: bytes = b""
    method: str = ""
    request_id: bytes | None = None
    _first: dict[str, str] | None = None

    def header(self, name: str) -> str | None:
        """Return the first header of a lower-case name."""
        if self._first is None:
            # The last pair of a name wins in a dict: read backwards, that is the first.
            self._first = dict(reversed(self.headers))
        return self._first.get(name)

    @property
    def accepts_events(self) -> bool:
        """Whether the client takes an event stream; without `Accept` it is thought to take anything."""
        accept = self.header("accept")
        return accept is None or EVENT_STREAM in accept or "*/*" in accept or "text/*" in accept


class Wire(msgspec.Struct, frozen=True):
    """One JSON-RPC message for the client, with an event id where its stream can be resumed.

    `last` says that nothing follows, so that the front can send it with the end.
    """

    message: bytes
    ident: str | None = None
    last: bool = False


class Answer(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes = b""
    headers: Headers = []


class Relay(msgspec.Struct, frozen=True):
    """An upstream's answer that goes through as it comes. The front closes the reply."""

    reply: Reply
    headers: Headers = []


class Stream(msgspec.Struct, frozen=True):
    """Messages of the gateway's own making (`Wire`) and event-stream bytes that go through as they are.

    The front closes the generator, whatever happens.
    """

    items: AsyncGenerator[Wire | bytes, None]
    headers: Headers = []


Outbound = Answer | Relay | Stream


def json_answer(body: bytes, status: int = 200, headers: Headers | None = None) -> Answer:
    """Return a JSON answer."""
    return Answer(status, body, [("content-type", JSON), *(headers or [])])
