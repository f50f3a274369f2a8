"""What sessions are about, for replicas that see them for the first time: a few fields for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gateway.store import records
from gateway.store.bus import RedisBus
from gateway.store.link import Link
from gateway.store.scripts import Words
from gateway.tasks.model import Scope, TaskKey

# From the last change, and the last time that a replica saw the session for the first time.
_LIFE_MS: Final = 24 * 3_600_000
# No task goes by it: only what rings every bell rings for it.
_NO_TASK: Final = TaskKey(Scope("", "changes"), "")


class RedisKept:
    """The `Kept` of `gateway.crossing.kept` and the `Watched` of `gateway.crossing.hearsay`."""

    def __init__(self, link: Link, bus: RedisBus) -> None:
        self._link = link
        self._bus = bus

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

    def hear_return(self, ring: Callable[[], None]) -> None:
        """Have `ring` called when other replicas are heard again, whose words may have been lost."""
        self._bus.hear(_NO_TASK, ring)

    def unhear_return(self, ring: Callable[[], None]) -> None:
        """Have it called no more."""
        self._bus.unhear(_NO_TASK, ring)

    async def note(self, upstream: str, name: str, seconds: float) -> None:
        """Note a name for so many seconds from now; raise `StoreAway`."""
        key = self._link.keys.kept(upstream, name)
        await self._link.quick.ask((b"SET", key, b"", b"PX", b"%d" % (seconds * 1000)))

    async def noted(self, upstream: str, name: str) -> bool:
        """Tell whether a name is noted; raise `StoreAway`."""
        (found,) = await self._link.quick.ask((b"EXISTS", self._link.keys.kept(upstream, name)))
        return found == 1


def _alive(key: bytes) -> Words:
    return (b"PEXPIRE", key, b"%d" % _LIFE_MS)
