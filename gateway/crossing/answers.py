"""The answer to one request that was sent by hand: its response, in JSON or at the end of a stream."""

from __future__ import annotations

from typing import Final

from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import CHALLENGE, EVENT_STREAM
from gateway.protocol.sse import Parser
from gateway.upstream.ids import key, messages
from gateway.upstream.port import Reply

_MAX: Final = 4 * 1024 * 1024


async def read_answer(reply: Reply, ident: bytes) -> bytes:
    """Return the response to the request of an id (raw JSON), whatever the status.

    A response without id is taken too: an error to what could not be read. Raises `UpstreamLost`,
    with the status, where there is none.
    """
    media = (reply.header("content-type") or "").partition(";")[0].strip().lower()
    if 200 <= reply.status < 300 and media == EVENT_STREAM:
        found = await _from_stream(reply, ident)
    else:
        found = _response(await reply.read(_MAX), ident)
    if found is None:
        challenge = reply.header(CHALLENGE)
        raise UpstreamLost(_words(reply.status), status=reply.status, challenge=challenge)
    return found


async def _from_stream(reply: Reply, ident: bytes) -> bytes | None:
    parser = Parser(_MAX)
    try:
        async for chunk in reply.chunks():
            for event in parser.feed(chunk):
                found = _response(event.data, ident)
                if found is not None:
                    return found
    except ValueError:
        raise UpstreamLost(f"the upstream sent an event of more than {_MAX} bytes") from None
    return None


def _response(body: bytes, ident: bytes) -> bytes | None:
    for one in messages(body)[0]:
        if one.kind == "response" and (
            key(one.id) == ident or (one.id is None and (one.error or b"")[:1] == b"{")
        ):
            return one.raw
    return None


def _words(status: int) -> str:
    if status in (401, 403):
        return f"the upstream refused the credentials ({status})"
    if 300 <= status < 400:
        return f"the upstream redirects to another URL ({status})"
    return f"the upstream answered with status {status} and no response"
