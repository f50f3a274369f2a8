"""The secret that all replicas share, where none is configured: the store keeps it, and each replica too.

A store that comes back empty must not get another one from a replica that starts then: whoever has the
secret puts it back when a connection has been made, and three times per lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, cast

from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.store.lanes import Reply
from gateway.store.link import Link
from gateway.store.scripts import Words

_log: Final = logging.getLogger("gateway.store")


class Asking(Protocol):
    """Sends commands to the store and returns their replies."""

    async def __call__(self, operation: str, *commands: Words) -> list[Reply]:
        """Send them together; raise `StoreAway`."""
        ...


class SharedSecret:
    """The secret of one store, kept for it from the first `get` on."""

    def __init__(self, link: Link, ask: Asking) -> None:
        self._key = link.keys.secret
        self._ask = ask
        self._secret: bytes | None = None
        self._crew = Crew("store secret")
        self._differs = False
        link.on_connect.append(self._reconnected)

    def __repr__(self) -> str:
        return f"<SharedSecret {'unknown' if self._secret is None else 'known'}>"

    async def get(self, make: Callable[[], bytes]) -> bytes:
        """Return the secret; the first replica's `make` decides it; raise `StoreAway`."""
        (secret,) = await self._ask("shared_secret", (b"GET", self._key))
        if secret is None:
            secret = await self._put(make())
        self._secret = cast(bytes, secret)
        return self._secret

    async def keep(self) -> None:
        """Put the secret back where it is not there any more; say once where another one is."""
        if self._secret is None:
            return
        with suppress(StoreAway):
            (found,) = await self._ask("shared_secret", (b"GET", self._key))
            if found is None:
                found = await self._put(self._secret)
                if found == self._secret:
                    _log.warning("the store had lost the secret that seals sessions; it has it again")
            if found != self._secret and not self._differs:
                _log.error(
                    "the store has another secret than this replica: they do not know each other's clients;"
                    " start this replica again, or give all the same secret (GATEWAY_SECRET)"
                )
            self._differs = found != self._secret

    async def close(self) -> None:
        """Stop what is on its way."""
        await self._crew.close()

    async def _put(self, secret: bytes) -> Reply:
        _, found = await self._ask("shared_secret", (b"SET", self._key, secret, b"NX"), (b"GET", self._key))
        return found

    def _reconnected(self) -> None:
        if self._secret is not None and not self._crew:
            self._crew.spawn(self.keep(), "keep")
