"""Who is asking, as far as the gateway can know it, and whose tasks that one may see (design section 1)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal

from gateway.protocol.codes import INVALID_REQUEST
from gateway.protocol.errors import Refusal
from gateway.session.exchange import Inbound
from gateway.session.token import Session, derive
from gateway.tasks.model import Scope

ScopeMode = Literal["principal", "shared"]


class Principals:
    """Makes scopes from requests. Credentials leave it only as keyed hashes."""

    def __init__(self, secret: bytes, header: str | None) -> None:
        self._key = derive(secret, b"principal")
        self._header = header.lower() if header else None

    def principal_of(self, inbound: Inbound) -> str | None:
        """Return the keyed hash of the trusted header or the credential, `None` for nobody.

        Raises `Refusal` where the trusted header comes twice: one of them is the client's own.
        """
        if self._header is not None:
            names = [content for name, content in inbound.headers if name == self._header]
            if len(names) > 1:
                words = f"Bad Request: the header {self._header} comes more than once"
                raise Refusal(INVALID_REQUEST, words, status=400)
            return self._hash("header", names[0]) if names and names[0] else None
        credential = inbound.header("authorization")
        return self._hash("authorization", credential) if credential else None

    def may_use(self, session: Session, principal: str | None) -> bool:
        """Tell whether a principal may go on with a session.

        Only the trusted header tells: a credential may be renewed within a session.
        """
        return self._header is None or session.principal == principal

    def scope_of(
        self, upstream: str, mode: ScopeMode, principal: str | None, session: str | None
    ) -> Scope | None:
        """Return the scope of a request; `None` where nobody could be told apart from anybody.

        SEP-1686 section 8.1: bound to the authentication where there is one, else to the session.
        """
        if mode == "shared":
            return Scope(upstream, "shared")
        if principal is not None:
            return Scope(upstream, f"p-{principal}")
        return None if session is None else Scope(upstream, f"s-{session}")

    def _hash(self, kind: str, content: str) -> str:
        message = f"{kind}\0{content}".encode("utf-8", "surrogateescape")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()[:32]
