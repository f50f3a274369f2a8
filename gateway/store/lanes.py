"""Connections to Redis that many callers share: the commands of one turn of the loop go out together.

A lane has one redis-py connection and one batch on its way at a time; what is asked meanwhile is the
next batch. redis-py's own client costs 65 to 90 µs of CPU for each command, most of it around the
command, so a lane packs commands itself and reads the answers with redis-py's parser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.store.scripts import Script, Words, script_of

Reply = Any
"""What Redis answers: bytes, a number, `None`, or a list of these."""

_LARGE: Final = 32_768


class Connection(Protocol):
    """What is used of a connection of redis-py, or of fakeredis."""

    @property
    def is_connected(self) -> bool:
        """Whether it is open, as far as is known."""
        ...

    async def connect(self) -> None:
        """Connect, with the retries and the backoff it was made with."""
        ...

    async def disconnect(self, nowait: bool = False) -> None:
        """Close."""
        ...

    async def can_read(self) -> bool:
        """Tell whether there is unread data, or the end, where nothing is expected."""
        ...

    async def send_packed_command(self, command: Iterable[bytes], check_health: bool = True) -> None:
        """Send bytes."""
        ...

    async def read_response(
        self, disable_decoding: bool = False, *, disconnect_on_error: bool = True
    ) -> Reply:
        """Read one answer; an error answer is raised."""
        ...


class _Group:
    """Commands of one caller, answered together."""

    __slots__ = ("commands", "future")

    def __init__(self, commands: Sequence[Words], future: asyncio.Future[list[Reply]]) -> None:
        self.commands = commands
        self.future = future


# Who has just waited in vain need not let everybody wait again.
_HUNG_SECONDS: Final = 1.0


class Lane:
    """One connection, shared. `timeout` is in seconds, from the asking to the answer."""

    def __init__(
        self, name: str, make: Callable[[], Connection], *, timeout: float, queue_length: int = 10_000
    ) -> None:
        self._name = name
        self._connection = make()
        self._timeout = timeout
        self._queue_length = queue_length
        self._queue: list[_Group] = []
        self._since = 0.0
        self._hung_until = 0.0
        self._crew = Crew(f"store lane {name}")
        self._running = False
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "busy" if self._running else "idle"
        return f"<Lane {self._name}: {state}, {len(self._queue)} waiting>"

    async def ask(self, *commands: Words) -> list[Reply]:
        """Send commands in this order and return their answers; raise `StoreAway`.

        An error answer to one of them is raised as `StoreAway` once all have been answered.
        """
        if self._closed:
            raise StoreAway("the store has been closed")
        # Asking asyncio for the loop costs a system call before Python 3.12: once for each operation.
        loop = asyncio.get_running_loop()
        if loop.time() < self._hung_until:
            raise StoreAway("the store did not answer a moment ago")
        if len(self._queue) >= self._queue_length:
            raise StoreAway(f"more than {self._queue_length} operations wait for the store")
        future: asyncio.Future[list[Reply]] = loop.create_future()
        if not self._queue:
            self._since = loop.time()
        self._queue.append(_Group(commands, future))
        if not self._running:
            self._running = True
            self._crew.spawn(self._run(), "flush")
        return await future

    async def close(self) -> None:
        """Close the connection; what still waits is answered with `StoreAway`."""
        self._closed = True
        await self._crew.close()
        # A flush that was cancelled before its first step has answered nobody.
        left, self._queue = self._queue, []
        _fail(left, StoreAway("the store has been closed"))
        await self._connection.disconnect()

    async def _run(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                await self._exchange(batch, self._since + self._timeout)
        finally:
            self._running = False

    async def _exchange(self, batch: list[_Group], deadline: float) -> None:
        commands = [words for group in batch for words in group.commands]
        answered = False
        try:
            async with asyncio.timeout_at(deadline):
                replies = await self._converse(commands)
            answered = True
        except TimeoutError:
            self._hung_until = asyncio.get_running_loop().time() + _HUNG_SECONDS
            _fail(batch, StoreAway(f"the store did not answer within {self._timeout:g} s"))
        except (RedisError, OSError) as error:
            _fail(batch, StoreAway(f"the store cannot be reached: {type(error).__name__}: {error}"))
        else:
            _answer(batch, replies)
        finally:
            if not answered:
                await self._connection.disconnect(nowait=True)
                _fail(batch, StoreAway("the store has been closed"))

    async def _converse(self, commands: list[Words]) -> list[Reply]:
        connection = self._connection
        # An idle connection with something to read has been closed by the server: nothing was sent yet.
        if connection.is_connected and await connection.can_read():
            await connection.disconnect(nowait=True)
        if not connection.is_connected:
            await connection.connect()
        replies = await self._pipeline(commands)
        missing = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            await self._repeat(commands, replies, missing)
        if any(isinstance(reply, ReadOnlyError) for reply in replies):
            await connection.disconnect(nowait=True)
        return replies

    async def _repeat(self, commands: list[Words], replies: list[Reply], missing: list[int]) -> None:
        """Load the scripts that the server lacks and run them; those commands have done nothing yet."""
        needed: dict[bytes, Script] = {}
        for place in missing:
            if (script := script_of(commands[place])) is not None:
                needed[script.sha] = script
        loads: list[Words] = [(b"SCRIPT", b"LOAD", script.source) for script in needed.values()]
        again = await self._pipeline([*loads, *(commands[place] for place in missing)])
        for place, reply in zip(missing, again[len(loads) :], strict=True):
            replies[place] = reply

    async def _pipeline(self, commands: list[Words]) -> list[Reply]:
        connection = self._connection
        await connection.send_packed_command(pack(commands), check_health=False)
        replies: list[Reply] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)
        return replies


def pack(commands: Iterable[Words]) -> list[bytes]:
    """Return commands as bytes (RESP arrays of bulk strings); large values are not copied."""
    chunks: list[bytes] = []
    parts: list[bytes] = []
    for words in commands:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            if len(word) < _LARGE:
                parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
            else:
                parts.append(b"$%d\r\n" % len(word))
                chunks += (b"".join(parts), word)
                parts = [b"\r\n"]
    chunks.append(b"".join(parts))
    return chunks


def _answer(batch: list[_Group], replies: list[Reply]) -> None:
    place = 0
    for group in batch:
        end = place + len(group.commands)
        own = replies[place:end]
        place = end
        if group.future.done():
            continue
        refused = next((reply for reply in own if isinstance(reply, ResponseError)), None)
        if refused is None:
            group.future.set_result(own)
        else:
            words = f"{type(refused).__name__}: {refused}"
            group.future.set_exception(StoreAway(f"the store refused: {words[:200]}"))


def _fail(batch: list[_Group], error: StoreAway) -> None:
    for group in batch:
        if not group.future.done():
            group.future.set_exception(StoreAway(*error.args))
