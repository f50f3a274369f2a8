"""What sessions are about, for replicas that see them for the first time: a few fields for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.store import records
from gateway.store.link import Link
from gateway.store.scripts import Words

# From the last change, and the last time that a replica saw the session for the first time.
_LIFE_MS: Final = 24 * 3_600_000


class RedisKept:
    """The `Kept` of `gateway.crossing.kept`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __repr__(self) -> str:
        return "<RedisKept>"

    async def read(self, upstream: str, tag: str) -> dict[str, str]:
        """Return the fields of a session; raise `StoreAway`."""
        key = self._link.keys.kept(upstream, tag)
        fields, _ = await self._link.quick.ask((b"HGETALL", key), _alive(key))
        texts = [records.text_in(one) for one in fields]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def write(self, upstream: str, tag: str, fields: Mapping[str, str | None]) -> None:
        """Set fields of a session, or take them away where they are `None`; raise `StoreAway`."""
        key = self._link.keys.kept(upstream, tag)
        words: list[Words] = []
        for name, content in fields.items():
            field = records.text_out(name)
            if content is None:
                words.append((b"HDEL", key, field))
            else:
                words.append((b"HSET", key, field, records.text_out(content)))
        await self._link.quick.ask(*words, _alive(key))

    async def forget(self, upstream: str, tag: str) -> None:
        """Keep nothing of a session any more; raise `StoreAway`."""
        await self._link.quick.ask((b"DEL", self._link.keys.kept(upstream, tag)))


def _alive(key: bytes) -> Words:
    return (b"PEXPIRE", key, b"%d" % _LIFE_MS)
