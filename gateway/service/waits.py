"""Those who wait on this replica for tasks to end: who has which question, and who waits no more (I6).

A message goes to one stream (2025-11-25 transports, "Multiple Connections"): of all who wait for the
same task, here and at other replicas, one asks a question, and nobody where the session's own stream
has it already.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.envelope import dump
from gateway.protocol.errors import StoreAway
from gateway.service.bespoken import Bespoken
from gateway.service.feed import News
from gateway.service.hub import Bell
from gateway.service.listeners import Listeners
from gateway.store.port import Asker, Bus, Command, Store
from gateway.tasks import call
from gateway.tasks.model import Pending, Scope, Task, TaskKey

_NO_KEY: Final = TaskKey(Scope("", ""), "")


class Wait:
    """One who waits; the bell tells of what has changed, and of the end of the wait.

    `held` are the questions that the stream of the session `held_by` has; `resumable` says that the
    client knows how to wait on elsewhere.
    """

    __slots__ = ("again", "bell", "held", "held_by", "key", "request_id", "resumable", "session")

    def __init__(self, session: str, request_id: bytes, key: TaskKey) -> None:
        self.session = session
        self.request_id = request_id
        self.key = key
        self.bell = Bell()
        self.held: list[str] = []
        self.held_by = ""
        self.resumable = False
        self.again: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """What tells it from others, at any replica that its client waits at; empty without a session."""
        if not self.session:
            return ""
        return hashlib.sha256(self.session.encode() + b"\0" + self.request_id).hexdigest()[:32]


class Waits:
    """All who wait on this replica, by the session and the request that they wait for."""

    def __init__(
        self, asker: Asker, store: Store, bus: Bus, listeners: Listeners, clock: Clock, crew: Crew
    ) -> None:
        self._replica = asker.replica
        self._bus = bus
        self._listeners = listeners
        self._crew = crew
        self._bespoken = Bespoken(asker, store, bus, clock, crew, self._free)
        self._by_request: dict[tuple[str, bytes], Wait] = {}
        self._asked: dict[TaskKey, dict[str, Wait]] = {}
        self._of_task: dict[TaskKey, set[Wait]] = {}

    def __repr__(self) -> str:
        return f"<Waits {len(self._by_request)}>"

    def begin(self, session: str, request_id: bytes, key: TaskKey, *, asks: bool) -> Wait:
        """Wait for a task, until `end`; `asks` says that this one can ask the client.

        A client that waits anew in the same request has left the older stream.
        """
        older = self._by_request.get((session, request_id))
        wait = self._by_request[session, request_id] = Wait(session, request_id, key)
        if older is not None and older.key == key and session:
            older.bell.stop()
            self._leave_to_others(older)
        if asks:
            self._of_task.setdefault(key, set()).add(wait)
        return wait

    def end(self, wait: Wait) -> None:
        """Wait no more: another one asks what this one has asked, or would have."""
        if self._by_request.get((wait.session, wait.request_id)) is wait:
            del self._by_request[wait.session, wait.request_id]
        if wait.held_by:
            self._listeners.detach(wait.held_by, wait.bell)
        if wait.again is not None:
            wait.again.cancel()
        others = self._of_task.get(wait.key, set())
        others.discard(wait)
        asks = self._leave_to_others(wait)
        if not others:
            self._of_task.pop(wait.key, None)
            self._asked.pop(wait.key, None)
            self._bespoken.give_back(wait.key)
        elif asks:
            self._free(wait.key)

    def _leave_to_others(self, wait: Wait) -> bool:
        """Forget what one asks; tell whether that was anything."""
        asked = self._asked.get(wait.key, {})
        mine = [relay for relay, one in asked.items() if one is wait]
        for relay in mine:
            del asked[relay]
        return bool(mine)

    def _free(self, key: TaskKey) -> None:
        """Let one of those who wait for a task look for questions once more."""
        for wait in self._of_task.get(key, ()):
            if not wait.bell.stopped:
                wait.bell.poke()
                return

    def stop(self, session: str, request_id: bytes) -> bool:
        """End a wait whose request was cancelled; tell whether it was here. Other replicas are told."""
        if self.stop_here(session, request_id):
            return True
        command = Command("unwait", _NO_KEY, request_id, session, self._replica)
        self._crew.spawn(self._say(command), "unwait")
        return False

    def stop_here(self, session: str, request_id: bytes) -> bool:
        """End a wait; tell whether it was here."""
        wait = self._by_request.get((session, request_id))
        if wait is not None:
            wait.bell.stop()
        return wait is not None

    def end_all(self, spared: Callable[[TaskKey], object]) -> None:
        """End every wait whose stream can be taken up elsewhere, but those for tasks that are spared."""
        for wait in tuple(self._by_request.values()):
            if wait.resumable and not spared(wait.key):
                wait.bell.stop()

    async def questions(self, wait: Wait, task: Task) -> list[News]:
        """Return the server requests of a task that this one is to ask now."""
        asked = self._asked.setdefault(wait.key, {})
        for relay in wait.held:
            asked.pop(relay, None)
        wait.held.clear()
        found: list[News] = []
        for pending in task.pending:
            relay = pending.relay_id
            if relay in asked or wait.bell.stopped:
                continue
            asked[relay] = wait
            wait.held_by = task.session
            news = _asking(task, pending)
            if pending.to_session and await self._listeners.hold(task.session, news, wait.bell):
                wait.held.append(relay)
                self._look_again(wait)
                continue
            taken = await self._bespoken.take(wait.key, relay, wait.name)
            if asked.get(relay) is not wait:
                # The client waits anew in the meantime.
                continue
            if taken:
                found.append(news)
            else:
                del asked[relay]
        return found

    def _look_again(self, wait: Wait) -> None:
        """See after a while whether the session's stream is there yet: its replica may have died."""
        if wait.again is not None:
            wait.again.cancel()
        wait.again = asyncio.get_running_loop().call_later(self._bespoken.lease, wait.bell.poke)

    async def _say(self, command: Command) -> None:
        with suppress(StoreAway):
            await self._bus.send_all(command)


def _asking(task: Task, pending: Pending) -> News:
    message = call.readdressed(pending.message, dump(pending.relay_id))
    return News("message", task, message, relay=pending.relay_id)
