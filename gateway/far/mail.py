"""Sends letters to other replicas: in order to each, what is large as a parcel beside its letter."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.far.letters import Asked, Frame, Letter, pack
from gateway.far.port import Post

# Redis ends a subscriber for whom more than 8 MB wait; parcels have no such bound.
INLINE: Final = 16 * 1024


class Mail:
    """The sending half of the post. Raises `StoreAway`; what became of the letter is not known then."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._large: dict[str, int] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<Mail, {sum(self._large.values())} letters wait for parcels>"

    async def send(self, replica: str, letter: Letter) -> bool:
        """Send a small letter; tell whether anybody can have heard it."""
        return await self._post.send(replica, pack(letter))

    async def ask(self, replica: str, asked: Asked, wanted: Callable[[], bool]) -> bool:
        """Send the beginning of a line, behind those before it, if it is still `wanted` then."""
        large = len(asked.message) > INLINE
        if not large and replica not in self._large:
            return await self._post.send(replica, pack(asked))
        self._large[replica] = self._large.get(replica, 0) + 1
        try:
            async with self._turns.setdefault(replica, asyncio.Lock()):
                if large:
                    name = secrets.token_hex(16)
                    await self._post.leave(name, asked.message)
                    asked = msgspec.structs.replace(asked, message=b"", parcel=name)
                return await self._post.send(replica, pack(asked)) if wanted() else True
        finally:
            self._large[replica] -= 1
            if not self._large[replica]:
                del self._large[replica], self._turns[replica]

    async def answer(self, replica: str, frame: Frame) -> bool:
        """Send a frame; its number tells its place."""
        if len(frame.content) > INLINE:
            name = secrets.token_hex(16)
            await self._post.leave(name, frame.content)
            frame = msgspec.structs.replace(frame, content=b"", parcel=name)
        return await self._post.send(replica, pack(frame))
