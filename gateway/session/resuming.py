"""Waiting for a result on a stream that can be taken up elsewhere: its event id says who waits for what.

2025-11-25 transports, "Sending Messages to the Server": a server primes the client with an event that has
an id and no data, so that a stream that is cut is resumed. Any replica can, since all it takes is the
request itself, and the task is in the store.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from gateway.protocol.codes import INVALID_PARAMS
from gateway.protocol.envelope import Envelope, dump, peek
from gateway.protocol.errors import Refusal

WAIT_MARK: Final = "mtg-w."
_MAX: Final = 8 * 1024


def priming(envelope: Envelope) -> bytes | None:
    """Return the event that begins a stream of a request; `None` where it is too long for a header."""
    params = envelope.params or b"{}"
    asked = b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (
        envelope.id or b"null",
        dump(envelope.method),
        params,
    )
    if len(asked) > _MAX // 2:
        return None
    ident = WAIT_MARK + base64.urlsafe_b64encode(asked).decode().rstrip("=")
    return b"id: " + ident.encode() + b"\ndata:\n\n"


def read_wait(ident: str) -> Envelope:
    """Return the request whose stream an event id of ours resumes; raise `Refusal` where it is none."""
    text = ident.removeprefix(WAIT_MARK)
    try:
        if len(text) > _MAX:
            raise ValueError(ident)
        return peek(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, Refusal):
        words = "Last-Event-ID is not an event id of this server"
        raise Refusal(INVALID_PARAMS, words, status=400) from None
