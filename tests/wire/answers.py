"""An HTTP answer as messages one after another, whether it is plain JSON or a stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import aiohttp

Json: TypeAlias = dict[str, Any]
WAIT: Final = 10.0
# Longest line of a stream.
BUFFER: Final = 2**26


def connection() -> aiohttp.ClientSession:
    """Return a session without limits of its own: each read of the tests has its own."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
        read_bufsize=BUFFER,
    )


class Answer:
    """Status and headers, then messages until the answer ends; `look` sees each message first."""

    def __init__(self, response: aiohttp.ClientResponse, look: Callable[[Json], None]) -> None:
        self._response = response
        self._look = look
        self._read = False
        self.status = response.status
        self.headers = response.headers
        self.last_id: str | None = None
        self.seen: list[Json] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        return self._response.content_type == "text/event-stream"

    def cut(self) -> None:
        """Drop the connection, as one who has read enough or a network that is lost."""
        self._response.close()

    async def text(self, seconds: float = WAIT) -> str:
        """Read the whole body as it is."""
        async with asyncio.timeout(seconds):
            return await self._response.text()

    async def next(self, seconds: float = WAIT) -> Json | None:
        """Return the next message, `None` at the end of the answer; raise `TimeoutError`."""
        async with asyncio.timeout(seconds):
            message = await self._event() if self.is_stream else await self._body()
        if message is not None:
            self.seen.append(message)
            self._look(message)
        return message

    async def until(self, wanted: Callable[[Json], bool], seconds: float = WAIT) -> Json:
        """Read up to a message that is wanted and return it; `AssertionError` where none comes."""
        async with asyncio.timeout(seconds):
            while (message := await self.next(seconds)) is not None:
                if wanted(message):
                    return message
        raise AssertionError(f"the answer ended ({self.status}) without it; seen: {self.seen}")

    async def response(self, seconds: float = WAIT) -> Json:
        """Read up to the response."""
        return await self.until(lambda message: "method" not in message, seconds)

    async def rest(self, seconds: float = WAIT) -> list[Json]:
        """Read to the end and return all messages of the answer."""
        async with asyncio.timeout(seconds):
            while await self.next(seconds) is not None:
                pass
        return self.seen

    async def _body(self) -> Json | None:
        if self._read:
            return None
        self._read = True
        body = await self._response.read()
        return json.loads(body) if body else None

    async def _event(self) -> Json | None:
        data: list[str] = []
        while line := await self._response.content.readline():
            field, _, content = line.decode().rstrip("\r\n").partition(":")
            content = content.removeprefix(" ")
            if field == "data":
                data.append(content)
            elif field == "id":
                self.last_id = content
            elif not field and not content and any(data):
                return json.loads("\n".join(data))
            elif not field and not content:
                data = []
        return None
