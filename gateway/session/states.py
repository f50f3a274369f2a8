"""`requestState`: what a held call is to every replica, sealed, since it passes through the client.

2026-07-28 "Multi Round-Trip Requests", server requirements 4 and 5: bound to the asker, the request
and a time, and anything else is rejected.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.aio.clock import Clock
from gateway.bridge.requests import salient
from gateway.protocol.codes import INVALID_PARAMS
from gateway.protocol.errors import Refusal
from gateway.session.token import derive
from gateway.session.visit import Visit
from gateway.tasks.model import Scope, TaskKey

_NONCE: Final = 12
_MAX_STATE: Final = 4096
_MARK: Final = b"mtg-state-1"


class _State(msgspec.Struct, frozen=True, array_like=True):
    tag: str
    task_id: str
    principal: str | None
    digest: bytes
    expires_ms: int


class States:
    """Seals and opens the state of held calls."""

    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._aead = AESGCM(derive(secret, b"request state"))
        self._clock = clock

    def __repr__(self) -> str:
        return "<States>"

    def seal(self, visit: Visit, key: TaskKey, within_ms: int) -> str:
        """Return the state of a held call, good for this asker and request, for so many milliseconds."""
        expires = self._clock.now_ms() + within_ms
        state = _State(key.scope.tag, key.task_id, visit.principal, _digest(visit), expires)
        nonce = secrets.token_bytes(_NONCE)
        sealed = nonce + self._aead.encrypt(nonce, msgspec.msgpack.encode(state), self._bound(visit))
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, visit: Visit, text: str) -> TaskKey:
        """Return the key of the held call; raise `Refusal` -32602 for what is not this request's."""
        state = self._unseal(visit, text)
        if state is None:
            raise _bad("is not one of this server's")
        if state.principal != visit.principal:
            raise _bad("is not one of this server's")
        if not hmac.compare_digest(state.digest, _digest(visit)):
            raise _bad("belongs to another request")
        if state.expires_ms <= self._clock.now_ms():
            raise _bad("has expired: send the request anew, without it")
        return TaskKey(Scope(visit.served.name, state.tag), state.task_id)

    def made(self, visit: Visit, text: str) -> bool:
        """Tell whether a state was sealed here, for whatever request."""
        return self._unseal(visit, text) is not None

    def _unseal(self, visit: Visit, text: str) -> _State | None:
        if len(text) > _MAX_STATE or not text.isascii():
            return None
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            if base64.urlsafe_b64encode(sealed).decode().rstrip("=") != text:
                return None
            plain = self._aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._bound(visit))
            return msgspec.msgpack.decode(plain, type=_State)
        except (ValueError, binascii.Error, InvalidTag, msgspec.DecodeError):
            return None

    def _bound(self, visit: Visit) -> bytes:
        return _MARK + visit.served.name.encode()


def _digest(visit: Visit) -> bytes:
    return hashlib.sha256(salient(visit.request.raw)).digest()


def _bad(what: str) -> Refusal:
    return Refusal(INVALID_PARAMS, f"requestState {what}")
