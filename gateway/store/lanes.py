"""Connections to Redis that many callers share: the commands of one turn of the loop go out together.

A lane has one redis-py connection and one batch on its way at a time; what is asked meanwhile is the
next batch. redis-py's own client costs 65 to 90 µs of CPU for each command, most of it around the
command, so a lane packs commands itself and reads the answers with redis-py's parser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from gateway.aio.clock import SystemClock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.store.health import RANDOM, Health, unwrapped, words_of
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
        """Connect."""
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
# How often a lane that was well tries to connect before it gives its callers up; then once for each pause.
_TRIES: Final = 4
# A shorter pause is waited for, a longer one is told at once.
_SHORT_SECONDS: Final = 0.15
# Beyond it the jitter would be lost under the cap.
_MOST_FAILURES: Final = 7


class Lane:
    """One connection, shared. `timeout` is in seconds, from the asking to the answer."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Connection],
        *,
        timeout: float,
        queue_length: int = 10_000,
        health: Health | None = None,
    ) -> None:
        self._name = name
        self._connection = make()
        self._timeout = timeout
        self._queue_length = queue_length
        self._queue: list[_Group] = []
        self._since = 0.0
        self._hung_until = 0.0
        self._health = Health() if health is None else health
        self._clock = SystemClock()
        self._failures = 0
        self._down_until = 0.0
        self._down_words = ""
        self._backoff = ExponentialWithJitterBackoff(cap=1.5, base=0.02)
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
        replies = await self._put(commands)
        for reply in replies:
            if isinstance(reply, ResponseError):
                self._health.refused(reply)
                raise refusal(reply)
        return replies

    async def ask_in_order(self, *commands: Words) -> list[Reply]:
        """Do the same: one connection keeps the order."""
        return await self.ask(*commands)

    def answers(self, *commands: Words) -> Awaitable[list[Reply]]:
        """Do the same for who can follow error answers: they are returned in their places."""
        return self._put(commands)

    def _put(self, commands: Sequence[Words]) -> asyncio.Future[list[Reply]]:
        if self._closed:
            raise StoreAway("the store has been closed")
        # Asking asyncio for the loop costs a system call before Python 3.12: once for each operation.
        loop = asyncio.get_running_loop()
        if loop.time() < self._hung_until:
            raise StoreAway("the store did not answer a moment ago")
        if self._is_down(loop.time()):
            raise StoreAway(self._down_words)
        if len(self._queue) >= self._queue_length:
            raise StoreAway(f"more than {self._queue_length} operations wait for the store")
        future: asyncio.Future[list[Reply]] = loop.create_future()
        if not self._queue:
            self._since = loop.time()
        self._queue.append(_Group(commands, future))
        if not self._running:
            self._running = True
            self._crew.spawn(self._run(), "flush")
        return future

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
                if self._is_down(asyncio.get_running_loop().time()):
                    _fail(batch, StoreAway(self._down_words))
                    continue
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
            # Replicas that were let down together need not come back together.
            pause = _HUNG_SECONDS * RANDOM.uniform(0.75, 1.25)
            self._hung_until = asyncio.get_running_loop().time() + pause
            self._lose(batch, f"the store did not answer within {self._timeout:g} s")
        except (RedisError, OSError) as error:
            self._failed(error)
            self._lose(batch, self._down_words)
        else:
            self._failures = 0
            self._health.well()
            _answer(batch, replies)
        finally:
            if not answered:
                await self._connection.disconnect(nowait=True)
                _fail(batch, StoreAway("the store has been closed"))

    def _is_down(self, now: float) -> bool:
        return self._failures >= _TRIES and now < self._down_until - _SHORT_SECONDS

    def _lose(self, batch: list[_Group], words: str) -> None:
        _fail(batch, StoreAway(words))
        self._health.lost(words)

    async def _connect(self) -> None:
        """Connect, some times where all was well before; who was refused waits for longer each time."""
        loop = asyncio.get_running_loop()
        connection = self._connection
        while True:
            if (pause := self._down_until - loop.time()) > 0:
                await self._clock.sleep(pause)
            try:
                await connection.connect()
            except (RedisError, OSError) as error:
                if self._failures >= _TRIES - 1:
                    raise
                self._failed(error)
            else:
                self._health.connected()
                return

    def _failed(self, error: Exception) -> None:
        self._failures = min(self._failures + 1, _MOST_FAILURES)
        self._down_until = asyncio.get_running_loop().time() + self._backoff.compute(self._failures)
        self._down_words = f"the store cannot be reached: {words_of(error)}"

    async def _converse(self, commands: list[Words]) -> list[Reply]:
        connection = self._connection
        # An idle connection with something to read has been closed by the server: nothing was sent yet.
        if connection.is_connected and await connection.can_read():
            await connection.disconnect(nowait=True)
        if not connection.is_connected:
            await self._connect()
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
                replies.append(unwrapped(error))
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


def refusal(error: ResponseError) -> StoreAway:
    """Return what an error answer means to who asked."""
    return StoreAway(f"the store refused: {words_of(error)}")


def _answer(batch: list[_Group], replies: list[Reply]) -> None:
    place = 0
    for group in batch:
        end = place + len(group.commands)
        own = replies[place:end]
        place = end
        if not group.future.done():
            group.future.set_result(own)


def _fail(batch: list[_Group], error: StoreAway) -> None:
    for group in batch:
        if not group.future.done():
            group.future.set_exception(StoreAway(*error.args))
