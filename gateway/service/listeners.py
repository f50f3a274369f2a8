"""The sessions' own streams: who listens here, and finding who listens on another replica (I6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from gateway.protocol.envelope import members, text_of
from gateway.protocol.errors import StoreAway
from gateway.service.feed import Feed, News
from gateway.service.hub import Bell
from gateway.store.port import Bus, Command, Store
from gateway.tasks.model import Scope, TaskKey

_log: Final = logging.getLogger("gateway.service")
_NO_KEY: Final = TaskKey(Scope("", ""), "")
_REMEMBERED: Final = 10_000
Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class Listeners:
    """Takes server requests of tasks whose own stream is gone to the session's stream, wherever it is."""

    def __init__(self, replica: str, store: Store, bus: Bus, spawn: Spawn, limit: int) -> None:
        self._replica = replica
        self._store = store
        self._bus = bus
        self._spawn = spawn
        self._limit = limit
        self._feeds: dict[str, Feed] = {}
        self._elsewhere: dict[str, str] = {}
        self._attached: dict[str, set[Bell]] = {}

    def __repr__(self) -> str:
        return f"<Listeners {len(self._feeds)}>"

    def listen(self, session: str) -> Feed:
        """Open a session's own stream; a newer one ends the older. Other replicas hear of it."""
        self.end(session)
        self._elsewhere.pop(session, None)
        feed = self._feeds[session] = Feed(self._limit)
        self._spawn(self._say(Command("seek", _NO_KEY, session=session, sender=self._replica)), "seek")
        return feed

    def listens(self, session: str) -> bool:
        """Tell whether a session's own stream is open here."""
        feed = self._feeds.get(session)
        return feed is not None and feed.open

    def end(self, session: str) -> None:
        """End a session's own stream where one is open here."""
        older = self._feeds.pop(session, None)
        if older is not None:
            older.end()

    def end_all(self) -> None:
        """End every stream."""
        for session in tuple(self._feeds):
            self.end(session)

    def leave(self, session: str, feed: Feed) -> None:
        """Close a stream, unless a newer one took its place."""
        feed.end()
        if self._feeds.get(session) is feed:
            del self._feeds[session]
            self._let_go(session)
            self._spawn(self._say(Command("left", _NO_KEY, session=session, sender=self._replica)), "left")

    def gone(self, session: str, replica: str) -> None:
        """Note that another replica has the stream of a session no more."""
        if self._elsewhere.get(session) == replica:
            del self._elsewhere[session]
            self._let_go(session)

    async def hold(self, session: str, news: News, bell: Bell) -> bool:
        """See to it that a session's stream has a server request; tell whether there is such a stream.

        `bell` is poked when it is there no more.
        """
        feed = self._feeds.get(session)
        held = feed is not None and feed.put(news)
        replica = self._elsewhere.get(session)
        if not held and replica is not None:
            command = Command("offer", news.task.key, news.message, session, self._replica)
            try:
                held = await self._bus.send(replica, command)
            except StoreAway:
                held = True
            if not held:
                self._elsewhere.pop(session, None)
        if held:
            self._attached.setdefault(session, set()).add(bell)
        return held

    def detach(self, session: str, bell: Bell) -> None:
        """Poke a bell no more."""
        bells = self._attached.get(session, set())
        bells.discard(bell)
        if not bells:
            self._attached.pop(session, None)

    def _let_go(self, session: str) -> None:
        for bell in self._attached.pop(session, set()):
            bell.poke()

    def offer(self, session: str, offers: Iterable[News]) -> None:
        """Bring server requests to the session's stream: here, or wherever it may be."""
        if not session:
            return
        feed = self._feeds.get(session)
        for news in offers:
            if feed is None or not feed.put(news):
                command = Command("offer", news.task.key, news.message, session, self._replica)
                self._spawn(self._say(command), "offer")

    def tell(self, session: str, news: News) -> None:
        """Bring news to the session's stream where it is known to be; best effort, nobody waits for it."""
        feed = self._feeds.get(session)
        if feed is not None and feed.open:
            feed.put(news)
            return
        replica = self._elsewhere.get(session)
        if replica is not None:
            kind = "status" if news.kind == "status" else "offer"
            command = Command(kind, news.task.key, news.message, session, self._replica)
            self._spawn(self._say(command, replica), "tell")

    def sought(self, session: str, replica: str) -> None:
        """Note which other replica has the stream of a session."""
        if self._elsewhere.pop(session, None) not in (None, replica):
            # Whoever had it may be dead.
            self._let_go(session)
        self._elsewhere[session] = replica
        if len(self._elsewhere) > _REMEMBERED:
            del self._elsewhere[next(iter(self._elsewhere))]

    def offer_to(self, replica: str, session: str, offers: Iterable[News]) -> None:
        """Bring server requests to a session's stream that another replica has."""
        for news in offers:
            command = Command("offer", news.task.key, news.message, session, self._replica)
            self._spawn(self._say(command, replica), "offer")

    async def take(self, command: Command) -> None:
        """Take an offer of another replica to the stream, where it is here."""
        feed = self._feeds.get(command.session)
        if feed is None or command.sender == self._replica:
            return
        try:
            task = await self._store.get(command.key)
        except StoreAway:
            return
        if command.kind == "status":
            if task is not None:
                feed.put(News("status", task))
            return
        if task is not None and "id" not in members(command.message):
            feed.put(News("message", task, command.message))
            return
        relay = text_of(members(command.message).get("id"))
        waits = task is not None and any(pending.relay_id == relay for pending in task.pending)
        # The ask itself and the opening of the stream may both bring it: the feed takes it once.
        if task is not None and waits and relay is not None:
            feed.put(News("message", task, command.message, relay=relay))

    async def _say(self, command: Command, replica: str | None = None) -> None:
        try:
            if replica is None:
                await self._bus.send_all(command)
            else:
                await self._bus.send(replica, command)
        except StoreAway as away:
            _log.debug("other replicas could not be told: %s", away)
