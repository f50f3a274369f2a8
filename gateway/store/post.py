"""Letters between replicas about links that live on one of them, and who owns which link.

Letters are small and go by pub/sub; what is large goes as a parcel, a key of its own with a short life,
so that no subscriber's buffer at the server has to hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from gateway.store import records
from gateway.store.bus import RedisBus
from gateway.store.link import Link
from gateway.store.scripts import DISOWN, OWN

_PARCEL_MS: Final = 60_000


class RedisPost:
    """The `Post` and the `Owners` of `gateway.far.port` for the replica `replica`."""

    def __init__(self, link: Link, bus: RedisBus, replica: str) -> None:
        self._link = link
        self._bus = bus
        self._replica = replica

    def __repr__(self) -> str:
        return f"<RedisPost of {self._replica} {'hears' if self.hears else 'hears nothing'}>"

    @property
    def hears(self) -> bool:
        """Whether letters to this replica arrive now, as far as is known."""
        return self._bus.hears

    def take(self, on_letter: Callable[[bytes], None], on_made: Callable[[], None]) -> None:
        """Hand letters over as they come; `on_made` hears that some may have been lost before."""
        self._bus.hear_letters(on_letter, on_made)

    async def send(self, replica: str, letter: bytes) -> bool:
        """Send a letter; tell whether anybody can have heard it; raise `StoreAway`."""
        return await self._link.publish(self._link.keys.letters(replica), letter)

    async def leave(self, name: str, parcel: bytes) -> None:
        """Leave a parcel to be fetched; raise `StoreAway`."""
        words = (b"SET", self._link.keys.parcel(name), parcel, b"PX", b"%d" % _PARCEL_MS)
        await self._link.bulk.ask(words)

    async def fetch(self, name: str) -> bytes | None:
        """Take a parcel away, `None` where it is not there any more; raise `StoreAway`."""
        (parcel,) = await self._link.bulk.ask((b"GETDEL", self._link.keys.parcel(name)))
        return cast("bytes | None", parcel)

    async def own(self, upstream: str, tags: Sequence[str], ttl_ms: int, *, gone: str = "") -> list[str]:
        """Own links for a while, or hear for each who does; raise `StoreAway`.

        What a replica `gone` owned is free.
        """
        keys = [self._link.keys.link(upstream, tag) for tag in tags]
        args = (records.text_out(self._replica), b"%d" % ttl_ms, records.text_out(gone))
        words = [OWN.call((key,), *args) for key in keys]
        # As with leases: no crowd of other work may keep a replica from what it holds.
        replies = await self._link.leases.ask(*words) if words else []
        return [records.text_in(reply) for reply in replies]

    async def disown(self, upstream: str, tags: Sequence[str]) -> None:
        """Give links up; raise `StoreAway`."""
        me = records.text_out(self._replica)
        if tags:
            words = [DISOWN.call((self._link.keys.link(upstream, tag),), me) for tag in tags]
            await self._link.leases.ask(*words)

    async def owner(self, upstream: str, tag: str) -> str | None:
        """Return the replica that owns a link; raise `StoreAway`."""
        (owner,) = await self._link.quick.ask((b"GET", self._link.keys.link(upstream, tag)))
        return None if owner is None else records.text_in(owner)
