"""Words between replicas over the store's pub/sub: one subscribed connection for each replica.

Wake-ups of all tasks come on one channel, each with the name of its task; who watches which task is
known here alone, so that watching costs the store nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import RedisError

from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.store import records
from gateway.store.lanes import Connection, Reply, pack
from gateway.store.link import Link
from gateway.store.port import Command, Wakeup
from gateway.tasks.model import TaskKey

_log = logging.getLogger("gateway.store.bus")

_COMMANDS: Final = 10_000


EVERYBODY: Final = "all"
_QUIET_SECONDS: Final = 20.0
# Beyond it the jitter would be lost under the cap.
_MOST_FAILURES: Final = 6


class _Bell:
    """The `Wakeup` of one watcher."""

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Let `wait` return, now or when it is next called."""
        self._rung.set()

    async def wait(self) -> None:
        """Return when it has rung since the last return."""
        await self._rung.wait()
        self._rung.clear()


class RedisBus:
    """The `Bus` of `gateway.store.port` for the replica `replica`."""

    def __init__(self, link: Link, replica: str, *, clock: Clock | None = None) -> None:
        self._link = link
        self._replica = replica
        self._clock = SystemClock() if clock is None else clock
        self._crew = Crew("store bus")
        self._listening = False
        self._closed = False
        self._rings: dict[bytes, set[Callable[[], None]]] = {}
        self._commands: asyncio.Queue[Command | None] = asyncio.Queue(_COMMANDS)
        self._backoff = ExponentialWithJitterBackoff(cap=2.0, base=0.05)
        self._on_letter: Callable[[bytes], None] | None = None
        self._on_made: Callable[[], None] = lambda: None
        self.hears = False
        self._quiet: asyncio.Timeout | None = None
        link.on_lost.append(self._doubt)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "listening" if self._listening else "idle"
        return f"<RedisBus {state}, {len(self._rings)} tasks watched, {self._commands.qsize()} commands>"

    async def send(self, owner: str, command: Command) -> bool:
        """Send a command to a replica; tell whether anybody heard it; raise `StoreAway`."""
        return await self._link.publish(self._link.keys.commands(owner), records.pack_command(command))

    async def send_all(self, command: Command) -> None:
        """Send a command to every replica, this one among them; raise `StoreAway`."""
        await self.send(EVERYBODY, command)

    async def commands(self) -> AsyncIterator[Command]:
        """Yield the commands to this replica until the bus is closed."""
        self._listen()
        while not self._closed:
            command = await self._commands.get()
            if command is None:
                break
            yield command

    @asynccontextmanager
    async def watch(self, key: TaskKey) -> AsyncGenerator[Wakeup]:
        """Hear of changes to one task.

        The bell also rings when the connection has been made or made again, since what happened
        before is not known.
        """
        bell = _Bell()
        self.hear(key, bell.ring)
        try:
            yield bell
        finally:
            self.unhear(key, bell.ring)

    def hear(self, key: TaskKey, ring: Callable[[], None]) -> None:
        """Have `ring` called at each change to a task, and when a bell of `watch` would ring beside."""
        self._listen()
        self._rings.setdefault(self._link.keys.member(key), set()).add(ring)

    def unhear(self, key: TaskKey, ring: Callable[[], None]) -> None:
        """Have it called no more."""
        name = self._link.keys.member(key)
        rings = self._rings.get(name, set())
        rings.discard(ring)
        if not rings:
            self._rings.pop(name, None)

    def hear_letters(self, on_letter: Callable[[bytes], None], on_made: Callable[[], None]) -> None:
        """Take letters about links (`gateway.store.post`) too; to be called before the bus listens.

        `on_made` is called when the connection has been made or made again.
        """
        self._on_letter, self._on_made = on_letter, on_made

    async def close(self) -> None:
        """Stop listening; `commands` ends and every bell rings a last time."""
        self._closed = True
        await self._crew.close()
        self._ring_all()
        if self._commands.full():
            self._commands.get_nowait()
        self._commands.put_nowait(None)

    def _listen(self) -> None:
        if not self._listening and not self._closed:
            self._listening = True
            self._crew.keep(self._stay_subscribed, "listen")

    async def _stay_subscribed(self) -> None:
        failures = 0
        while not self._closed:
            connection = self._link.connection()
            try:
                words = self._channels()
                async with asyncio.timeout(self._link.timeout):
                    await connection.connect()
                    await connection.send_packed_command(pack([words]), check_health=False)
                    for _ in words[1:]:
                        await connection.read_response(disable_decoding=True)
                failures = 0
                self.hears = True
                self._ring_all()
                self._on_made()
                while True:
                    self._take(await self._next(connection))
            except (RedisError, OSError) as error:
                failures += 1
                level = logging.WARNING if failures == 1 else logging.DEBUG
                _log.log(level, "lost the store's pub/sub: %s", type(error).__name__)
            finally:
                self.hears = False
                await connection.disconnect(nowait=True)
            await self._clock.sleep(self._backoff.compute(min(failures, _MOST_FAILURES)))

    async def _next(self, connection: Connection) -> Reply:
        """Return the next message; a connection on which nothing comes is asked whether it lives."""
        if not self._link.in_process:
            try:
                async with asyncio.timeout(_QUIET_SECONDS) as self._quiet:
                    return await connection.read_response(disable_decoding=True, disconnect_on_error=False)
            except TimeoutError:
                if not self._link.serves(connection):
                    raise
                await connection.send_packed_command(pack([(b"PING",)]), check_health=False)
            finally:
                self._quiet = None
            async with asyncio.timeout(self._link.timeout):
                return await connection.read_response(disable_decoding=True)
        return await connection.read_response(disable_decoding=True)

    def _doubt(self) -> None:
        """Ask at once whether the connection lives: another one to the store does not."""
        quiet, self._quiet = self._quiet, None
        # One that has just run out is being told so already.
        if quiet is not None and not quiet.expired():
            quiet.reschedule(asyncio.get_running_loop().time())

    def _channels(self) -> tuple[bytes, ...]:
        keys = self._link.keys
        channels = (keys.wake, keys.commands(self._replica), keys.commands(EVERYBODY))
        letters = () if self._on_letter is None else (keys.letters(self._replica),)
        return (b"SUBSCRIBE", *channels, *letters)

    def _take(self, message: Reply) -> None:
        kind, *rest = message
        if kind != b"message":
            return
        channel, data = rest
        if channel == self._link.keys.wake:
            for ring in self._rings.get(data, ()):
                ring()
        elif self._on_letter is not None and channel == self._link.keys.letters(self._replica):
            self._on_letter(data)
        else:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        command = records.read_command(data)
        if command is None:
            # A later version has kinds that this one does not know.
            _log.debug("a command that is not understood came from another replica")
        elif self._commands.full():
            _log.warning("more than %d commands wait; one is dropped", _COMMANDS)
        else:
            self._commands.put_nowait(command)

    def _ring_all(self) -> None:
        for rings in self._rings.values():
            for ring in rings:
                ring()
