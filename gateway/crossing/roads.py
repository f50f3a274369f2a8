"""How one request of the stateless era travels: as a POST of its own, or over a shared link.

2026-07-28 "Streamable HTTP" and "stdio": over HTTP closing the response stream is the cancellation;
over a link a notification is, and ids and progress tokens must be unlike those of everybody else.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final, Protocol

from gateway.protocol.envelope import Envelope, dump, members, meta_of, notification, peek
from gateway.protocol.errors import GatewayError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import set_member
from gateway.protocol.stateless import request_headers
from gateway.upstream.ids import key
from gateway.upstream.port import HttpUpstream, Link

_log: Final = logging.getLogger("gateway.crossing")
# The headers that repeat what the message says: each message has its own.
_REPEATED: Final = frozenset({"mcp-protocol-version", "mcp-method", "mcp-name"})
_TOKEN: Final = ("params", "_meta", "progressToken")


class Road(Protocol):
    """Carries stateless requests. Several may be under way."""

    def ask(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages, the response last and under the request's id.

        Closing the generator before the response cancels the request. Raises `UpstreamLost` where
        no response comes, `Refusal` where the request cannot be sent.
        """
        ...


class HttpRoad:
    """A `Road` of POSTs: the upstream keeps no session."""

    def __init__(self, http: HttpUpstream) -> None:
        self._http = http

    async def ask(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request with the headers that repeat its method, name and version."""
        kept = [(name, content) for name, content in headers if name.lower() not in _REPEATED]
        sent = [*kept, *request_headers(peek(message))]
        async with aclosing(self._http.channel(None, sent).exchange(message, sent)) as coming:
            async for raw in coming:
                yield raw


class LinkRoad:
    """A `Road` over a link, which callers may share: ids and progress tokens there are the road's own."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._name = secrets.token_hex(6)
        self._count = itertools.count(1)

    async def ask(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request; tell the upstream to stop where the generator is closed early."""
        request = peek(message)
        ident = dump(f"mtg-{self._name}-{next(self._count)}")
        token = meta_of(request.params).get("progressToken")
        sent = set_member(message, ("id",), ident)
        if token is not None:
            sent = set_member(sent, _TOKEN, ident)
        over = False
        try:
            async with aclosing(self._link.exchange(sent, headers)) as coming:
                async for raw in coming:
                    one = peek(raw)
                    over = one.kind == "response"
                    yield _restored(one, request.id, ident, None if token is None else bytes(token))
        except GatewayError:
            over = True
            raise
        finally:
            if not over:
                await self._cancel(ident, headers)

    async def _cancel(self, ident: bytes, headers: Headers) -> None:
        with suppress(UpstreamLost):
            params = b'{"requestId":' + ident + b"}"
            await self._link.send(notification("notifications/cancelled", params), headers)


def _restored(one: Envelope, ident: bytes | None, own: bytes, token: bytes | None) -> bytes:
    """Return a message of the link under the id and with the progress token that the caller knows."""
    if one.kind == "response":
        return set_member(one.raw, ("id",), ident or b"null")
    if token is None or one.method != "notifications/progress":
        return one.raw
    found = members(one.params).get("progressToken")
    if found is None or key(bytes(found)) != own:
        return one.raw
    return set_member(one.raw, ("params", "progressToken"), token)
