"""Credentials of clients on their way to another replica: sealed under the gateway's secret."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.protocol.headers import Headers

_NONCE: Final = 12
_MARK: Final = b"far1"


class HeaderSeal:
    """Seals headers with AES-256-GCM under a key derived from the gateway's secret."""

    def __init__(self, secret: bytes) -> None:
        self._aead = AESGCM(hmac.new(secret, b"mcp-task-gateway far headers", hashlib.sha256).digest())

    def __repr__(self) -> str:
        return "<HeaderSeal>"

    def seal(self, headers: Headers) -> bytes:
        """Return headers as bytes that only replicas can read; nothing where there are none."""
        if not headers:
            return b""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._aead.encrypt(nonce, msgspec.msgpack.encode(headers), _MARK)

    def open(self, sealed: bytes) -> Headers:
        """Return the headers; none where they were sealed under another secret."""
        if not sealed:
            return []
        try:
            plain = self._aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], _MARK)
            return [
                (name, content)
                for name, content in msgspec.msgpack.decode(plain, type=list[tuple[str, str]])
            ]
        except (InvalidTag, ValueError, msgspec.DecodeError):
            return []
