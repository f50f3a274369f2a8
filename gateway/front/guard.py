"""Against DNS rebinding: which `Origin` and `Host` may come in (2025-11-25 transports, "Security")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.errors import Refusal
from gateway.session.exchange import Inbound

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Refuses browsers that were lured here.

    Without `origins` only pages of this machine may call; `hosts` of `None` lets any host name in,
    an empty list only loopback names.
    """

    def __init__(self, origins: Sequence[str], hosts: Sequence[str] | None) -> None:
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    def check(self, inbound: Inbound) -> None:
        """Raise `Refusal` with HTTP 403."""
        origin = inbound.header("origin")
        if origin is not None and not self._origin_is_good(origin.lower()):
            raise Refusal(INVALID_REQUEST, "Forbidden: this Origin may not call", status=403)
        if self._hosts is None:
            return
        name = _name_of(inbound.header("host") or "")
        if name not in LOOPBACK and name not in self._hosts:
            raise Refusal(INVALID_REQUEST, "Forbidden: this Host is not served here", status=403)

    def _origin_is_good(self, origin: str) -> bool:
        if origin in self._origins or "*" in self._origins:
            return True
        try:
            parts = urlsplit(origin)
            name = parts.hostname
        except ValueError:
            return False
        # An origin is scheme, host and port (RFC 6454 section 6.1): anything more is a disguise.
        is_origin = f"{parts.scheme}://{parts.netloc}" == origin and not set("@\\") & set(origin)
        return is_origin and name in LOOPBACK


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
