"""HTTP to an MCP endpoint: one exchange at a time, aiohttp's errors turned into the house's.

Streamable HTTP: protocol 2025-11-25, basic/transports, and 2026-07-28, basic/transports/streamable-http.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

import aiohttp

from gateway.aio.clock import Clock
from gateway.client.failures import failure_of, where
from gateway.client.options import Target
from gateway.protocol import sse
from gateway.protocol.envelope import Envelope, is_batch, peek, split_batch
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import EVENT_STREAM, JSON, LAST_EVENT_ID, SESSION, VERSION

_BODY_LIMIT: Final = 64 * 1024 * 1024
_ERROR_LIMIT: Final = 64 * 1024
_CONNECT_SECONDS: Final = 10
_CLOSE_SECONDS: Final = 5


class Http:
    """The endpoint: `session` and `version` go with every request once they are known.

    `sessions` is false in the stateless era, where a session id that the server gives is none.
    """

    def __init__(self, target: Target, clock: Clock) -> None:
        self._url = target.url
        self._headers = target.headers
        self._clock = clock
        self.session = target.session
        self.sessions = True
        self.version: str | None = None if target.session is None else target.version
        # No limit on the whole: a call may take hours, a stream may be silent.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        self._client = aiohttp.ClientSession(timeout=timeout)

    def __repr__(self) -> str:
        return f"<Http {where(self._url)} session={self.session is not None}>"

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    @asynccontextmanager
    async def post(
        self, message: bytes, extra: Mapping[str, str] | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """POST one message; raise `Refusal` or `UpstreamLost` for everything but 2xx."""
        own = {"Accept": f"{JSON}, {EVENT_STREAM}", "Content-Type": JSON}
        headers = self._with({**(extra or {}), **own})
        async with self._exchange("POST", headers, message) as response:
            if self.sessions and (session := response.headers.get(SESSION)) is not None:
                self.session = session
            yield response

    @asynccontextmanager
    async def stream(self, last_event_id: str | None) -> AsyncGenerator[aiohttp.ClientResponse]:
        """GET the session's stream, or resume the one that `last_event_id` belongs to."""
        headers = self._with({"Accept": EVENT_STREAM})
        if last_event_id is not None:
            headers[LAST_EVENT_ID] = last_event_id
        async with self._exchange("GET", headers, None) as response:
            yield response

    async def end_session(self) -> None:
        """DELETE the session; a server that does not allow it (405) or is gone is no error."""
        if self.session is None:
            return
        timeout = aiohttp.ClientTimeout(total=_CLOSE_SECONDS)
        headers = self._with({"Accept": f"{JSON}, {EVENT_STREAM}"})
        try:
            async with self._client.delete(
                self._url, headers=headers, timeout=timeout, allow_redirects=False
            ):
                pass
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass

    @asynccontextmanager
    async def _exchange(
        self, method: str, headers: dict[str, str], message: bytes | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        try:
            async with self._client.request(
                method, self._url, data=message, headers=headers, allow_redirects=False
            ) as response:
                if not 200 <= response.status < 300:
                    body = await response.content.read(_ERROR_LIMIT)
                    known = self.session is not None
                    raise failure_of(
                        response.status,
                        response.headers,
                        body,
                        url=self._url,
                        session=known,
                        now_ms=self._clock.now_ms(),
                    )
                yield response
        except aiohttp.ClientConnectorError as wrong:
            raise UpstreamLost(
                f"cannot connect to {where(self._url)}: {_reason(wrong)}", sent=False
            ) from None
        except aiohttp.ConnectionTimeoutError:
            text = f"cannot connect to {where(self._url)}: no answer within {_CONNECT_SECONDS} s"
            raise UpstreamLost(text, sent=False) from None
        except (aiohttp.ClientError, OSError, ValueError) as wrong:
            raise UpstreamLost(f"the connection to {where(self._url)} broke: {_spelled(wrong)}") from None

    def _with(self, headers: dict[str, str]) -> dict[str, str]:
        found = dict(self._headers) | headers
        if self.session is not None:
            found[SESSION] = self.session
        if self.version is not None:
            found[VERSION] = self.version
        return found


async def messages(
    response: aiohttp.ClientResponse,
) -> AsyncGenerator[tuple[Envelope | None, sse.Event | None]]:
    """Yield the messages of a 2xx answer, with the event each came in where it is a stream.

    An event without data (a priming event) comes without a message. Raise `UpstreamLost` for
    anything that is no MCP.
    """
    kind = response.content_type
    if kind == EVENT_STREAM:
        async with aclosing(_events(response)) as events:
            async for event in events:
                for envelope in _peek_all(event.data) if event.data else (None,):
                    yield envelope, event
    elif kind == JSON:
        for envelope in _peek_all(await _whole(response)):
            yield envelope, None
    elif response.status != 202 and response.content_length != 0:
        raise UpstreamLost(f"{where(str(response.url))} is not an MCP endpoint: it answered with {kind}")


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[sse.Event]:
    parser = sse.Parser(_BODY_LIMIT)
    async for chunk in response.content.iter_any():
        for event in parser.feed(chunk):
            if event.name == "error":
                raise UpstreamLost("the server ended the stream with an error event")
            yield event


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _BODY_LIMIT:
            raise UpstreamLost(f"the answer is larger than {_BODY_LIMIT} bytes")
    return bytes(body)


def _peek_all(raw: bytes) -> list[Envelope]:
    try:
        return [peek(part) for part in (split_batch(raw) if is_batch(raw) else [raw])]
    except Refusal as wrong:
        raise UpstreamLost(f"the server sent what is not JSON-RPC: {wrong.message}") from None


def _reason(wrong: aiohttp.ClientConnectorError) -> str:
    if isinstance(wrong, aiohttp.ClientConnectorCertificateError):
        inner = wrong.certificate_error
        text = inner.verify_message if isinstance(inner, ssl.SSLCertVerificationError) else str(inner)
        return f"its certificate is not trusted ({text})"
    if isinstance(wrong, aiohttp.ClientConnectorDNSError):
        return f"there is no host of the name {wrong.host}"
    if isinstance(wrong.os_error, ConnectionRefusedError):
        return "connection refused; is it running?"
    return wrong.os_error.strerror or "the network said no"


def _spelled(wrong: Exception) -> str:
    return str(wrong) or type(wrong).__name__
