"""What an earlier version has left in Redis, put into a Redis of today.

The files are in `tests/vectors/versions`, made once by running that version. Their times are moved to
now, as if it had just stopped; all else is as it was written.
"""

from __future__ import annotations

import json
from typing import Any, Final

from redis.asyncio import Redis

from tests.processes import ROOT
from tests.wire.answers import Json

FOLDER: Final = ROOT / "tests" / "vectors" / "versions"
# Fields of a record that are times, in milliseconds.
_TIMES: Final = ("created", "updated", "started", "ended")
# What scores are, by the end of a key: ends in milliseconds, or places in microseconds.
_UNITS: Final = {"leases": 1, ":e": 1, ":i": 1000}


class Thawed:
    """The keys of an earlier version under a prefix, and what its clients knew."""

    def __init__(self, name: str, url: str, prefix: str) -> None:
        self.known: Json = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        self.moved_ms = 0
        self._prefix = prefix
        # redis-py leaves most of its methods' types open.
        self.redis: Any = Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType] as said

    async def put(self, *, leases_ms: int) -> None:
        """Put all keys there as they were, in place of what is there; leases end after so long."""
        seconds, micros = await self.redis.time()
        now_ms = seconds * 1000 + micros // 1000
        self.moved_ms = now_ms - self.known["now_ms"]
        old = [key async for key in self.redis.scan_iter(match=f"{self._prefix}*", count=1000)]
        if old:
            await self.redis.delete(*old)
        for name, key in self.known["keys"].items():
            await self._put(name, key)
        leases = await self.redis.zrange(f"{self._prefix}leases", 0, -1)
        await self.redis.zadd(f"{self._prefix}leases", dict.fromkeys(leases, now_ms + leases_ms))

    async def change(self, words: str, field: str, content: bytes) -> None:
        """Set a field of the records that were made with some words in them."""
        async for key in self.redis.scan_iter(match=f"{self._prefix}*:t:*", count=1000):
            if words.encode() in (await self.redis.hget(key, "made")):
                await self.redis.hset(key, field, content)

    async def close(self) -> None:
        """Let go of the connection."""
        await self.redis.aclose()

    async def _put(self, name: str, key: Json) -> None:
        place, value = f"{self._prefix}{name}", key["value"]
        match key["kind"]:
            case "hash":
                moved = _TIMES if ":t:" in name else ()
                fields = {
                    _bytes(field): b"%d" % (int(text) + self.moved_ms) if field in moved else _bytes(text)
                    for field, text in value.items()
                }
                await self.redis.hset(place, mapping=fields)
            case "zset":
                unit = next(unit for end, unit in _UNITS.items() if name.endswith(end))
                scores = {_bytes(member): score + self.moved_ms * unit for member, score in value}
                await self.redis.zadd(place, scores)
            case "set":
                await self.redis.sadd(place, *(_bytes(member) for member in value))
            case "stream":
                for ident, fields in value:
                    entry = {_bytes(field): _bytes(text) for field, text in fields.items()}
                    await self.redis.xadd(place, entry, id=ident)
            case _:
                await self.redis.set(place, _bytes(value))
        if key["pttl"] > 0:
            await self.redis.pexpire(place, key["pttl"])


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
