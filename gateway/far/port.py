"""What this room asks of its neighbours: the post between replicas, and the links of this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.protocol.headers import Headers
from gateway.upstream.port import Link, LinkUpstream


class Post(Protocol):
    """Letters between replicas. Delivery is best effort: they may be lost, and are numbered for that."""

    @property
    def hears(self) -> bool:
        """Whether letters to this replica arrive now, as far as is known."""
        ...

    def take(self, on_letter: Callable[[bytes], None], on_made: Callable[[], None]) -> None:
        """Hand letters over as they come; `on_made` hears that some may have been lost before."""
        ...

    async def send(self, replica: str, letter: bytes) -> bool:
        """Send a letter; tell whether anybody can have heard it; raise `StoreAway`."""
        ...

    async def leave(self, name: str, parcel: bytes) -> None:
        """Leave a parcel to be fetched; raise `StoreAway`."""
        ...

    async def fetch(self, name: str) -> bytes | None:
        """Take a parcel away, `None` where it is not there any more; raise `StoreAway`."""
        ...


class Owners(Protocol):
    """Which replica owns which link. A claim ends by itself unless it is renewed."""

    async def own(self, upstream: str, tags: Sequence[str], ttl_ms: int, *, gone: str = "") -> list[str]:
        """Own links for a while, or hear for each who does; raise `StoreAway`.

        What a replica `gone` owned is free.
        """
        ...

    async def disown(self, upstream: str, tags: Sequence[str]) -> None:
        """Give links up; raise `StoreAway`."""
        ...

    async def owner(self, upstream: str, tag: str) -> str | None:
        """Return the replica that owns a link; raise `StoreAway`."""
        ...


class Settling(Link, Protocol):
    """A link that tells when nothing is in flight, and keeps what a listener did not get."""

    async def settled(self) -> None:
        """Return when no call is in flight."""
        ...

    def keep(self, raw: bytes) -> None:
        """Keep a message for the next listener."""
        ...


class OwnLinks(LinkUpstream, Protocol):
    """The links of one upstream that live here."""

    async def open(self, tag: str, initialize: bytes, headers: Headers) -> tuple[Settling, bytes]:
        """Start a link, send `initialize` and return the link and the answer."""
        ...

    async def find(self, tag: str, initialize: bytes | None, headers: Headers) -> Settling | None:
        """Return a living link, or revive it."""
        ...


class Hosted(Protocol):
    """The links of one upstream, as other replicas reach them here."""

    async def here(self, tag: str, headers: Headers, *, begins: bool) -> Settling | None:
        """Return the living link that this replica owns, `None` where it is elsewhere or nowhere.

        One that is about to end takes answers yet, but nothing new `begins` on it.
        """
        ...

    async def leave(self, tag: str) -> None:
        """End a link when nothing is in flight on it any more."""
        ...
