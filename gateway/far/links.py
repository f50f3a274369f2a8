"""The links of one upstream, whichever replica they live on (design I6).

A link lives on the replica that opened it, which says so in the store. A link that is here costs the
store nothing. One that is not is looked for: at its owner, or revived here where it has none. With the
store away a replica goes on with what it has, and revives what it has not (design I9); when the store
is back, only one keeps it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.aio.spawn import Crew
from gateway.far.far_link import FarLink
from gateway.far.office import Office
from gateway.far.port import OwnLinks, Settling
from gateway.protocol.errors import GatewayError, StoreAway
from gateway.protocol.headers import Headers
from gateway.upstream.port import Link

_log: Final = logging.getLogger("gateway.far")
_MAX_FAR: Final = 10_000
_DROP_SECONDS: Final = 5.0
_HEARS_SECONDS: Final = 1.0


class SharedLinks:
    """A `LinkUpstream` (see the port of the upstream room) over `own`, the links that live here.

    `settle` (seconds) bounds the wait for what is in flight on a link that is to end.
    """

    def __init__(self, upstream: str, own: OwnLinks, office: Office, *, settle: float) -> None:
        self._upstream = upstream
        self._own = own
        self._office = office
        self._settle = settle
        self._mine: set[str] = set()
        self._leaving: set[str] = set()
        self._ending: set[str] = set()
        self._claiming: dict[str, asyncio.Task[Link | GatewayError | None]] = {}
        self._far: dict[str, FarLink] = {}
        self._crew = Crew("shared links")
        office.host(upstream, self)

    def __repr__(self) -> str:
        return f"<SharedLinks of {self._upstream}: {len(self._mine)} here, {len(self._far)} elsewhere>"

    async def open(self, tag: str, initialize: bytes, headers: Headers) -> tuple[Link, bytes]:
        """Start a link here; any replica can find it when this returns, or when the store is back."""
        link, answer = await self._own.open(tag, initialize, headers)
        await self.register(link)
        return link, answer

    async def register(self, link: Link) -> None:
        """Say that a link lives here."""
        if link.alive:
            self._mine.add(link.tag)
            await self._keep(link.tag)

    async def find(self, tag: str, initialize: bytes | None, headers: Headers) -> Link | None:
        """Return the link wherever it lives, or revive it here where it lives nowhere."""
        if tag not in self._leaving:
            link = await self._own.find(tag, None, headers)
            if link is not None and (self._office.sure or await self._keep(tag)):
                return link
        older = self._office.beside(self._upstream, self, tag)
        if older is not None:
            # Reached in another way than the upstream is now: it serves its session to its end.
            link = await older.here(tag, headers, begins=True)
            if link is not None:
                return link
        far = self._far.get(tag)
        if (
            far is not None
            and far.alive
            and (self._office.hears or await self._office.heard(_HEARS_SECONDS))
        ):
            return far
        task = self._claiming.get(tag)
        if task is None:
            gone = "" if far is None or not self._office.asking.is_gone(far.owner) else far.owner
            task = self._crew.spawn(self._claim(tag, initialize, headers, gone), "claim")
            self._claiming[tag] = task
            task.add_done_callback(lambda _: self._claiming.pop(tag, None))
        outcome = await asyncio.shield(task)
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome

    async def drop(self, tag: str) -> None:
        """End a link wherever it lives; what other replicas have in flight on it ends first."""
        if await self.drop_here(tag):
            return
        far = self._far.pop(tag, None)
        try:
            owner = far.owner if far is not None else await self._office.owners.owner(self._upstream, tag)
        except StoreAway:
            return
        if owner is None or owner == self._office.replica:
            return
        place = (self._upstream, tag)
        far = self._office.far_link(place, owner, lambda headers: self.find(tag, None, headers))
        try:
            async with asyncio.timeout(_DROP_SECONDS):
                await far.close()
        except TimeoutError:
            _log.info("link %s could not be ended: replica %s does not answer", tag, owner)

    async def drop_here(self, tag: str) -> bool:
        """End a link that lives here; tell whether it does."""
        older = self._office.beside(self._upstream, self, tag)
        if older is not None:
            await older.leave(tag)
            return True
        link = await self._own.find(tag, None, [])
        if tag not in self._mine and link is None:
            return False
        if self._office.hosting.calls(self._upstream, tag):
            await self.leave(tag)
            return True
        await self._own.drop(tag)
        await self._disown([tag])
        return True

    async def here(self, tag: str, headers: Headers, *, begins: bool) -> Settling | None:
        """Return the living link that this replica owns, `None` where it is elsewhere or nowhere.

        One that is about to end takes answers yet, but nothing new `begins` on it.
        """
        task = self._claiming.get(tag)
        if task is not None:
            await asyncio.wait([task])
        if tag in self._leaving:
            return None if begins else await self._own.find(tag, None, headers)
        link = await self._own.find(tag, None, headers)
        if link is None:
            await self._disown([tag])
            return None
        return link if self._office.sure or await self._keep(tag) else None

    def has(self, tag: str) -> bool:
        """Tell whether a link lives here, or is being revived here."""
        return tag in self._mine or tag in self._claiming or tag in self._leaving or tag in self._ending

    async def leave(self, tag: str) -> None:
        """End a link when nothing is in flight on it any more: its session has ended."""
        if tag not in self._ending:
            self._ending.add(tag)
            self._crew.spawn(self._end_settled(tag, self._ending), "end settled")

    async def renew(self) -> None:
        """Own what lives here for a while longer; give up what does not. Raises `StoreAway`."""
        living: list[str] = []
        ended: list[str] = []
        for tag in self._mine - set(self._claiming):
            (ended if await self._own.find(tag, None, []) is None else living).append(tag)
        self._mine.difference_update(ended)
        await self._office.owners.disown(self._upstream, ended)
        owners = await self._office.owners.own(self._upstream, living, self._office.ttl_ms)
        for tag, owner in zip(living, owners, strict=True):
            if owner != self._office.replica:
                self._lost(tag, owner)

    async def hand_on(self) -> None:
        """Let other replicas have what lives here: this one is about to stop. What is in flight goes on."""
        tags = list(self._mine)
        for tag in tags:
            self._part(tag)
        await self._disown(tags)

    async def give_up(self) -> None:
        """Own nothing any more: this replica stops, or reaches the upstream in another way."""
        await self._crew.close()
        await self._disown(list(self._mine))
        self._office.unhost(self._upstream, self)

    async def _keep(self, tag: str) -> bool:
        """Own a link that lives here; false where another replica has come to own it meanwhile."""
        if self._office.quiet:
            return True
        try:
            (owner,) = await self._office.owners.own(self._upstream, [tag], self._office.ttl_ms)
        except StoreAway:
            self._office.missed()
            return True
        if owner != self._office.replica:
            self._lost(tag, owner)
            return False
        return True

    async def _claim(
        self, tag: str, initialize: bytes | None, headers: Headers, gone: str
    ) -> Link | GatewayError | None:
        try:
            owner = await self._owner(tag, initialize, gone)
            if owner not in (None, self._office.replica):
                return self._far_link(tag, owner, initialize)
            if owner is None and initialize is None:
                return None
            self._leaving.discard(tag)
            link = await self._own.find(tag, initialize, headers)
            if link is not None:
                self._mine.add(tag)
                return link
        except GatewayError as wrong:
            await self._disown([tag])
            return wrong
        await self._disown([tag])
        return None

    async def _owner(self, tag: str, initialize: bytes | None, gone: str) -> str | None:
        """Return who owns a link: this replica, where nobody did and it can be revived."""
        if self._office.quiet:
            return None
        try:
            if initialize is None:
                return await self._office.owners.owner(self._upstream, tag)
            (owner,) = await self._office.owners.own(self._upstream, [tag], self._office.ttl_ms, gone=gone)
        except StoreAway:
            self._office.missed()
            return None
        return owner

    def _far_link(self, tag: str, owner: str, initialize: bytes | None) -> FarLink:
        far = self._office.far_link(
            (self._upstream, tag), owner, lambda headers: self.find(tag, initialize, headers)
        )
        self._far.pop(tag, None)
        self._far[tag] = far
        if len(self._far) > _MAX_FAR:
            self._far.pop(next(iter(self._far)))
        return far

    def _lost(self, tag: str, owner: str) -> None:
        _log.info("link %s is owned by replica %s meanwhile, and ends here", tag, owner)
        self._part(tag)

    def _part(self, tag: str) -> None:
        self._mine.discard(tag)
        if tag not in self._leaving:
            self._leaving.add(tag)
            self._crew.spawn(self._end_settled(tag, self._leaving), "end settled")

    async def _end_settled(self, tag: str, which: set[str]) -> None:
        """End a link once its calls have ended, unless it was taken out of `which` meanwhile."""
        try:
            link = await self._own.find(tag, None, [])
            if link is not None:
                try:
                    async with asyncio.timeout(self._settle):
                        await link.settled()
                except TimeoutError:
                    _log.warning("link %s ends with calls in flight after %g s", tag, self._settle)
            if tag in which:
                await self._own.drop(tag)
                if tag in self._mine:
                    await self._disown([tag])
        finally:
            which.discard(tag)

    async def _disown(self, tags: list[str]) -> None:
        self._mine.difference_update(tags)
        try:
            await self._office.owners.disown(self._upstream, tags)
        except StoreAway:
            # The claim ends by itself.
            return
