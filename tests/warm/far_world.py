"""Replicas in one process, with a post between them that loses, doubles and delays what it likes."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Sequence

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.far.links import SharedLinks
from gateway.far.office import Office
from gateway.protocol.errors import StoreAway
from gateway.protocol.headers import Headers
from gateway.upstream.link import MessageLink
from gateway.upstream.pool import LinkPool

UPSTREAM = "main"
LEASE = 15.0
_TURNS = 40
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'


class IdleClock:
    """A clock that goes on when nothing else does: however slow the machine, nobody is late."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self._now

    def now_ms(self) -> int:
        return round(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        waiting = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._numbers), waiting))
        await waiting

    async def run(self) -> None:
        """Let time pass, for ever."""
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._sleepers:
                self._now, _, waiting = heapq.heappop(self._sleepers)
                if not waiting.done():
                    waiting.set_result(None)


class Wild:
    """What may happen to a letter: the chance to be lost, to come twice, to come late."""

    def __init__(self, seed: int = 0, *, lost: float = 0.0, twice: float = 0.0, late: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.lost = lost
        self.twice = twice
        self.late = late

    def fates(self) -> list[float]:
        """Return the delay of each copy of a letter."""
        copies = 0 if self.random.random() < self.lost else 2 if self.random.random() < self.twice else 1
        return [
            self.random.random() * 0.5 if self.random.random() < self.late else 0.0 for _ in range(copies)
        ]


class World:
    """The store that replicas share."""

    def __init__(self, clock: Clock, wild: Wild | None = None) -> None:
        self.clock = clock
        self.wild = wild or Wild()
        self.hearing: dict[str, Callable[[bytes], None]] = {}
        self.parcels: dict[str, bytes] = {}
        self.owners: dict[tuple[str, str], tuple[str, float]] = {}
        self.away = False
        self.crew = Crew("letters")

    def check(self) -> None:
        if self.away:
            raise StoreAway("away")


class WildPost:
    """The `Post` and the `Owners` of one replica."""

    def __init__(self, world: World, replica: str) -> None:
        self._world = world
        self._replica = replica

    @property
    def hears(self) -> bool:
        return not self._world.away

    def take(self, on_letter: Callable[[bytes], None], on_made: Callable[[], None]) -> None:
        self._world.hearing[self._replica] = on_letter

    async def send(self, replica: str, letter: bytes) -> bool:
        self._world.check()
        if replica not in self._world.hearing:
            return False
        for delay in self._world.wild.fates():
            if delay:
                self._world.crew.spawn(self._late(replica, letter, delay), "late")
            else:
                asyncio.get_running_loop().call_soon(self._hand, replica, letter)
        await asyncio.sleep(0)
        return True

    async def leave(self, name: str, parcel: bytes) -> None:
        self._world.check()
        self._world.parcels[name] = parcel

    async def fetch(self, name: str) -> bytes | None:
        self._world.check()
        return self._world.parcels.pop(name, None)

    async def own(self, upstream: str, tags: Sequence[str], ttl_ms: int, *, gone: str = "") -> list[str]:
        self._world.check()
        now, owners = self._world.clock.monotonic(), self._world.owners
        for tag in tags:
            owner, until = owners.get((upstream, tag), ("", 0.0))
            if until < now or owner in (self._replica, gone):
                owners[upstream, tag] = (self._replica, now + ttl_ms / 1000)
        return [owners[upstream, tag][0] for tag in tags]

    async def disown(self, upstream: str, tags: Sequence[str]) -> None:
        self._world.check()
        for tag in tags:
            if self._world.owners.get((upstream, tag), ("", 0.0))[0] == self._replica:
                del self._world.owners[upstream, tag]

    async def owner(self, upstream: str, tag: str) -> str | None:
        self._world.check()
        owner, until = self._world.owners.get((upstream, tag), ("", 0.0))
        return owner if owner and until >= self._world.clock.monotonic() else None

    async def _late(self, replica: str, letter: bytes, delay: float) -> None:
        await self._world.clock.sleep(delay)
        self._hand(replica, letter)

    def _hand(self, replica: str, letter: bytes) -> None:
        if replica in self._world.hearing:
            self._world.hearing[replica](letter)


class Tape:
    """A carrier that keeps what was written, and answers `initialize` and what `answer` answers."""

    def __init__(self, answer: Callable[[MessageLink, bytes], None] | None) -> None:
        self.written: list[bytes] = []
        self.link: MessageLink | None = None
        self._answer = answer

    def write(self, message: bytes, headers: Headers) -> asyncio.Future[None] | None:
        self.written.append(message)
        assert self.link is not None
        if b'"initialize"' in message:
            ident = message.split(b'"id":')[1].split(b",")[0].strip()
            asyncio.get_running_loop().call_soon(
                self.link.receive, b'{"jsonrpc":"2.0","id":' + ident + b',"result":{}}'
            )
        elif self._answer is not None:
            self._answer(self.link, message)
        return None

    async def close(self) -> None:
        return


class Replica:
    """One replica: its links, and those of the others."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        answer: Callable[[MessageLink, bytes], None] | None = None,
        idle: float = 3600.0,
    ) -> None:
        self.world = world
        self.name = name
        self.tapes: list[Tape] = []
        self._answer = answer
        post = WildPost(world, name)
        self.office = Office(name, post, post, world.clock, lease=LEASE)
        self.pool = LinkPool(self.start, world.clock, max_links=100, idle=idle, start_timeout=30.0)
        self.links = SharedLinks(UPSTREAM, self.pool, self.office, settle=60.0)
        self.office.start(b"secret")

    async def start(self, tag: str, headers: Headers) -> MessageLink:
        """Make a link that nobody has initialized."""
        link = MessageLink(tag, self.world.clock.monotonic)
        tape = Tape(self._answer)
        tape.link = link
        self.tapes.append(tape)
        link.attach(tape)
        return link

    def die(self) -> None:
        """Be gone, as after SIGKILL."""
        del self.world.hearing[self.name]

    async def close(self) -> None:
        """Stop in order."""
        await self.office.close()
        await self.pool.close()
