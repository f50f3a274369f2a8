"""The post office of this replica: letters in and out, and the renewal of what it owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.far.asking import Asking
from gateway.far.far_link import Again, FarLink
from gateway.far.hosting import Hosting
from gateway.far.letters import Asked, Frame, Polled, Pulse, read
from gateway.far.port import Hosted, Owners, Post, Settling
from gateway.far.seal import HeaderSeal
from gateway.protocol.errors import StoreAway
from gateway.protocol.headers import Headers

_log: Final = logging.getLogger("gateway.far")
_QUIET: Final = 2.0


class Owning(Hosted, Protocol):
    """The links of one upstream, of which this replica owns some."""

    def has(self, tag: str) -> bool:
        """Tell whether a link lives here, or is being revived here."""
        ...

    async def renew(self) -> None:
        """Own what lives here for a while longer; raise `StoreAway`."""
        ...

    async def hand_on(self) -> None:
        """Let other replicas have what lives here; what is in flight goes on."""
        ...

    async def give_up(self) -> None:
        """Own nothing any more."""
        ...


class Hosts:
    """The links of one upstream, as it is reached now and as it was under older configurations."""

    def __init__(self) -> None:
        self.all: list[Owning] = []

    def __repr__(self) -> str:
        return f"<Hosts {self.all!r}>"

    async def here(self, tag: str, headers: Headers, *, begins: bool) -> Settling | None:
        """Return the living link that this replica owns, `None` where it is elsewhere or nowhere."""
        links = self._of(tag)
        return None if links is None else await links.here(tag, headers, begins=begins)

    async def leave(self, tag: str) -> None:
        """End a link when nothing is in flight on it any more."""
        links = self._of(tag)
        if links is not None:
            await links.leave(tag)

    def beside(self, links: Owning, tag: str) -> Owning | None:
        """Return who else has a link, under an older configuration."""
        if len(self.all) <= 1:
            return None
        return next((one for one in self.all if one is not links and one.has(tag)), None)

    def _of(self, tag: str) -> Owning | None:
        """Return who has a link, the newest first."""
        newest = reversed(self.all)
        return next((links for links in newest if links.has(tag)), self.all[-1] if self.all else None)


class Office:
    """One for each replica. `lease` (seconds) is how long a silent replica keeps what it owns.

    `count` hears of each line that is opened (1) or ends (-1), `asked` of others or `served` to them.
    """

    def __init__(
        self,
        replica: str,
        post: Post,
        owners: Owners,
        clock: Clock,
        *,
        lease: float,
        count: Callable[[str, int], None] = lambda _, __: None,
    ) -> None:
        self.replica = replica
        self.owners = owners
        self._post = post
        self._clock = clock
        self._lease = lease
        self._hosts: dict[str, Hosts] = {}
        self.asking = Asking(
            replica, post, owners, clock, silence=max(lease, 5.0), count=partial(count, "asked")
        )
        self.hosting = Hosting(replica, post, clock, self._hosts, count=partial(count, "served"))
        self._crew = Crew("far office")
        self._made = asyncio.Event()
        self._renew = asyncio.Event()
        self._sure_until = 0.0
        self._quiet_until = 0.0
        self._seal: HeaderSeal | None = None
        post.take(self._letter, self._connected)

    def __repr__(self) -> str:
        return f"<Office of {self.replica}, {self.asking!r}, {self.hosting!r}>"

    @property
    def ttl_ms(self) -> int:
        """For how long something is owned, unless that is renewed."""
        return round(self._lease * 1000)

    @property
    def sure(self) -> bool:
        """Whether what this replica owns is surely its own yet."""
        return self._clock.monotonic() < self._sure_until

    @property
    def quiet(self) -> bool:
        """Whether the store was found away a moment ago."""
        return self._clock.monotonic() < self._quiet_until

    @property
    def hears(self) -> bool:
        """Whether letters arrive."""
        return self._post.hears

    def host(self, upstream: str, links: Owning) -> None:
        """Serve the links of an upstream to other replicas, beside those of an older configuration."""
        self._hosts.setdefault(upstream, Hosts()).all.append(links)

    def unhost(self, upstream: str, links: Owning) -> None:
        """Serve links no more."""
        hosts = self._hosts.get(upstream)
        if hosts is not None and links in hosts.all:
            hosts.all.remove(links)

    def beside(self, upstream: str, links: Owning, tag: str) -> Owning | None:
        """Return who else here has a link of an upstream."""
        hosts = self._hosts.get(upstream)
        return None if hosts is None else hosts.beside(links, tag)

    def _owning(self) -> list[Owning]:
        return [links for hosts in self._hosts.values() for links in hosts.all]

    def start(self, secret: bytes) -> None:
        """Begin to own; the bus listens by now, or will."""
        self._seal = self.hosting.seal = HeaderSeal(secret)
        self._crew.keep(self._keep_owning, "own")

    def missed(self) -> None:
        """Take note that the store is away: it is left alone for a moment."""
        self._quiet_until = self._clock.monotonic() + _QUIET

    async def heard(self, seconds: float) -> bool:
        """Wait a moment for letters to arrive again; tell whether they do."""
        if self.quiet:
            return False
        self._made.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._made.wait()
        except TimeoutError:
            self.missed()
        return self._post.hears

    def far_link(self, place: tuple[str, str], owner: str, again: Again) -> FarLink:
        """Return a link that lives on another replica."""
        return FarLink(place, owner, self.asking, self._seal, self._clock.monotonic(), again)

    async def drain(self, seconds: float) -> bool:
        """Hand all links on and wait for what other replicas have in flight here; tell whether it ended."""
        for links in self._owning():
            await links.hand_on()
        try:
            async with asyncio.timeout(seconds):
                await self.hosting.settled()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Own nothing any more and end all lines, with words."""
        await self._crew.close()
        for links in self._owning():
            await links.give_up()
        await self.hosting.close()
        await self.asking.close()

    def _letter(self, data: bytes) -> None:
        letter = read(data)
        match letter:
            case Frame():
                self.asking.frame(letter)
            case Pulse():
                self.asking.pulse(letter)
            case Asked():
                self.hosting.asked(letter)
            case Polled():
                self.hosting.polled(letter)
            case None:
                _log.warning("a letter that is not understood came from another replica")

    def _connected(self) -> None:
        self._made.set()
        self._renew.set()
        self.asking.poll_all()

    async def _keep_owning(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                for links in self._owning():
                    await links.renew()
            except StoreAway as away:
                _log.debug("what this replica owns could not be renewed: %s", away)
            else:
                self._sure_until = began + 0.9 * self._lease
            self._renew.clear()
            await self._pause()

    async def _pause(self) -> None:
        """Wait for a third of the lease, less where the way to the store has just been made anew."""
        waiting = [
            self._crew.spawn(self._clock.sleep(self._lease / 3), "pause"),
            self._crew.spawn(self._renewed(), "made anew"),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _renewed(self) -> None:
        await self._renew.wait()
