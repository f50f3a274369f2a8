"""The session id handed to a client: a sealed token that any replica can open without the store."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import zlib
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.protocol.codes import UPSTREAM_UNAVAILABLE
from gateway.protocol.errors import Refusal

MARK: Final = "mtg1."
MAX_TOKEN: Final = 7000
_MAX_PLAIN: Final = 64 * 1024
_NONCE: Final = 12
_CACHE: Final = 10_000
_LARGE: Final = 4096


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What a session is to every replica.

    `tag` names it in logs and in the store; `upstream_id` is the upstream's own session id, `link`
    says that the upstream side is a link of the name `tag`; `version` is the negotiated protocol
    version; `principal` who opened it; `own_tasks` that the upstream runs tasks of its own;
    `initialize` the client's original request, kept where a link may have to be revived; `crossed`
    that the link leads to an upstream of the other era.
    """

    tag: str
    upstream: str
    upstream_id: str | None
    link: bool
    version: str
    own_tasks: bool
    initialize: bytes | None = None
    principal: str | None = None
    crossed: bool = False


class Sealer:
    """Seals sessions with AES-256-GCM under a key derived from the gateway's secret."""

    def __init__(self, secret: bytes) -> None:
        self._aead = AESGCM(derive(secret, b"session token"))
        self._opened: dict[str, Session] = {}

    def __repr__(self) -> str:
        return f"<Sealer, {len(self._opened)} known>"

    def seal(self, session: Session) -> str:
        """Return the token: visible ASCII (2025-11-25 transports, "Session Management").

        An `initialize` that is too large for a header is left out. Raises `Refusal` where what is
        left is still too large: another replica could not open it.
        """
        if session.initialize is not None and len(session.initialize) > _MAX_PLAIN // 2:
            session = msgspec.structs.replace(session, initialize=None)
        token = self._seal(session)
        if len(token) > MAX_TOKEN:
            session = msgspec.structs.replace(session, initialize=None)
            token = self._seal(session)
        if len(token) > MAX_TOKEN or len(session.upstream_id or "") > _MAX_PLAIN // 2:
            words = "Upstream unavailable: its session id is too long to be passed on"
            raise Refusal(UPSTREAM_UNAVAILABLE, words)
        self._remember(token, session)
        return token

    def open(self, token: str) -> Session | None:
        """Return the session of a token, `None` where the token is not one of ours."""
        known = self._opened.get(token)
        if known is not None:
            return known
        session = self._unseal(token)
        if session is not None:
            self._remember(token, session)
        return session

    def _seal(self, session: Session) -> str:
        nonce = secrets.token_bytes(_NONCE)
        plain = zlib.compress(msgspec.msgpack.encode(session))
        sealed = nonce + self._aead.encrypt(nonce, plain, MARK.encode())
        return MARK + _spell(sealed)

    def _unseal(self, token: str) -> Session | None:
        if not token.startswith(MARK) or len(token) > MAX_TOKEN:
            return None
        text = token[len(MARK) :]
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            if _spell(sealed) != text:
                return None
            plain = self._aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], MARK.encode())
            packed = zlib.decompressobj().decompress(plain, _MAX_PLAIN)
            return msgspec.msgpack.decode(packed, type=Session)
        except (ValueError, binascii.Error, InvalidTag, zlib.error, msgspec.DecodeError):
            return None

    def _remember(self, token: str, session: Session) -> None:
        if len(session.initialize or b"") > _LARGE:
            return
        if len(self._opened) >= _CACHE:
            self._opened.pop(next(iter(self._opened)))
        self._opened[token] = session


def _spell(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Return a 32-byte key for one purpose."""
    return hmac.new(secret, b"mcp-task-gateway " + purpose, hashlib.sha256).digest()
