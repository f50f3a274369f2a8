"""The task service of one replica: begin, look up, list, answer, cancel, remove."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.errors import IllegalMove, Refusal, StoreAway
from gateway.protocol.headers import Headers
from gateway.service.announce import Announcer
from gateway.service.answers import Answers
from gateway.service.commands import Commands
from gateway.service.early import Early, EarlyCalls
from gateway.service.feed import Feed
from gateway.service.hand import Ending, Tools
from gateway.service.hub import Hub
from gateway.service.listeners import Listeners
from gateway.service.order import Order, ServiceLimits
from gateway.service.readers import Readers
from gateway.service.running import Running
from gateway.service.turns import Turns
from gateway.service.waits import Waits
from gateway.service.witness import Witness
from gateway.store.port import Bus, Command, Exists, Full, Store
from gateway.tasks import call
from gateway.tasks.model import Outcome, Scope, Task, TaskKey
from gateway.upstream.port import Channel

_log: Final = logging.getLogger("gateway.service")
Closer = Callable[[], Awaitable[None]]
_PAGE: Final = 200
_UNDO_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0)


class TaskService:
    """Owns the running calls of this replica; everything else is read from the store.

    Raises `StoreAway` where the store is needed and does not answer.
    """

    def __init__(
        self, replica: str, store: Store, bus: Bus, witness: Witness, clock: Clock, limits: ServiceLimits
    ) -> None:
        self.replica = replica
        self._store = store
        self._bus = bus
        self._witness = witness
        self._limits = limits
        self._clock = clock
        self._crew = Crew("calls")
        self._early = EarlyCalls()
        self._tidying = Crew("tidying up")
        self._running: dict[TaskKey, Running] = {}
        self._by_session: dict[str, dict[TaskKey, Running]] = {}
        self._by_request: dict[tuple[Scope, str, bytes], TaskKey] = {}
        self._creating: dict[tuple[Scope, str, bytes], asyncio.Event] = {}
        self._turns = Turns()
        self.listeners = Listeners(replica, store, bus, self._tidying.spawn, limits.stream_queue_bytes)
        self.waits = Waits(replica, bus, self.listeners, self._tidying.spawn)
        self.announcer = Announcer(self.listeners)
        self.hub = Hub(store, bus, self._tidying, clock)
        self._tools = Tools(store, witness, self.announcer, clock, limits)
        self.readers = Readers(replica, store, bus, self.hub, self._find, self._tidying.spawn)
        self._commands = Commands(
            replica,
            store,
            bus,
            self.listeners,
            self.waits,
            running=self._running.get,
            of_session=self._of_session,
            on_session_ended=self._session_ended_elsewhere,
            on_said=self._said_elsewhere,
            calls=self._crew,
            tidying=self._tidying,
        )
        self.on_session_ended: Callable[[str], None] = lambda _: None
        self.on_said: Callable[[str, bytes], Awaitable[None]] | None = None
        self._answers = Answers(replica, self._tools, bus, self._running, self._crew)
        self._closers: dict[str, Closer] = {}
        self.draining = False

    def __repr__(self) -> str:
        return f"<TaskService {self.replica}: {len(self._running)} running>"

    @property
    def running(self) -> tuple[Running, ...]:
        """The tasks that this replica runs now."""
        return tuple(self._running.values())

    async def begin(self, order: Order, *, only_final: bool = False) -> Running | Exists | Full:
        """Store a task, start its call, return it; the store has it when this returns (I2).

        Raises `Refusal` while the replica drains.
        """
        if self.draining:
            raise Refusal(INTERNAL_ERROR, "The gateway is stopping and takes no new tasks", status=503)
        new = order.new
        name = (new.key.scope, new.session, new.request_id)
        made = self._creating[name] = asyncio.Event()
        try:
            return await self._begin(order, only_final=only_final)
        finally:
            made.set()
            if self._creating.get(name) is made:
                del self._creating[name]

    async def _begin(self, order: Order, *, only_final: bool) -> Running | Exists | Full:
        new, limits = order.new, self._limits
        try:
            bounds = order.bounds or limits.bounds
            found = await self._store.create(new, self.replica, limits.lease_ms, bounds)
        except StoreAway:
            self._tidying.spawn(self._undo(new.key), "undo")
            raise
        if isinstance(found, Exists):
            self._witness.refused(new.key.scope, new.session, new.key.task_id, "exists")
            return found
        if isinstance(found, Full):
            limit = "tasks_per_scope" if found.which == "active" else "stored_tasks_per_scope"
            self._witness.refused(new.key.scope, new.session, new.key.task_id, limit)
            return found
        self._witness.created(found)
        running = Running(
            found,
            order,
            self._tools,
            lambda news: self.listeners.offer(new.session, news),
            only_final=only_final,
        )
        self._running[found.key] = running
        self._by_session.setdefault(new.session, {})[found.key] = running
        self._by_request[new.key.scope, new.session, new.request_id] = found.key
        self._crew.spawn(self._run(running), found.key.digest)
        return running

    async def get(self, key: TaskKey) -> Task | None:
        """Return the record of a task."""
        task = await self._store.get(key)
        if task is None:
            self._witness.lookup_failed(key.scope.upstream)
        return task

    async def outcome(self, key: TaskKey) -> tuple[Task, Outcome | None] | None:
        """Return the record and, after the end, the outcome of a task."""
        found = await self._store.outcome(key)
        if found is None:
            self._witness.lookup_failed(key.scope.upstream)
        elif found[1] is not None:
            self._witness.fetched(found[0])
        return found

    async def page(self, scope: Scope, after: str | None, limit: int) -> tuple[list[Task], str | None]:
        """Return a page of the scope's tasks in the order of creation, and where to go on."""
        return await self._store.page(scope, after, limit)

    async def cancel(self, key: TaskKey, reason: str) -> Task | None:
        """Cancel a task wherever it runs; `None` where it is not there; raise `IllegalMove` when ended."""
        words = call.cancel_words(reason)
        task = await self._store.cancel(key, words)
        if task is None:
            return None
        await self._stop_call(task, Ending(Outcome(status="cancelled", error=words), "cancelled", words))
        self.announcer.moved(task, Outcome(status="cancelled", error=words))
        self._witness.finished(task, "cancelled")
        return task

    async def cancel_request(self, scope: Scope, session: str, request_id: bytes, reason: str) -> bool:
        """Cancel the task that a request made; tell whether the request had made one.

        A task that has ended stays as it is (SEP-1686 section 4.8.3).
        """
        creating = self._creating.get((scope, session, request_id))
        if creating is not None:
            await creating.wait()
        key = self._by_request.get((scope, session, request_id))
        running = None if key is None else self._running.get(key)
        try:
            if key is None:
                key = await self._store.find_request(scope, session, request_id)
            if key is None:
                return False
            if creating is None and await self._answered(key, running):
                return True
            with suppress(IllegalMove):
                await self.cancel(key, reason)
        except StoreAway:
            if running is None:
                raise
            # What runs here can be stopped without the store; it hears of the end when it is back (I9).
            words = call.cancel_words(reason)
            ending = Ending(Outcome(status="cancelled", error=words), "cancelled", words)
            running.stop(ending, recorded=False)
        return True

    async def _answered(self, key: TaskKey, running: Running | None) -> bool:
        """Tell whether a request was answered with its task: that alone can be cancelled then.

        2025-11-25 cancellation: `tasks/cancel` is for that, and completed requests are left alone.
        """
        task = await self._store.get(key) if running is None else running.task
        return task is not None and task.dialect != "a"

    async def remove(self, key: TaskKey) -> bool:
        """Delete a task; one that still runs is cancelled first. Tell whether it was there."""
        task: Task | None = None
        with suppress(IllegalMove):
            task = await self.cancel(key, "the task was deleted")
        removed = await self._store.remove(key)
        if removed is None:
            self._witness.lookup_failed(key.scope.upstream)
            return task is not None
        self._witness.deleted(removed)
        return True

    async def answer(self, scope: Scope, relay_id: str, message: bytes) -> bool:
        """Pass a client's answer on to the upstream; tell whether anybody still waited for it."""
        return await self._answers.answer(scope, relay_id, message)

    def early(self, message: bytes, channel: Channel, headers: Headers) -> Early:
        """Send a request that is not a task, or not yet; `begin` may make one of it."""
        return self._early.begin(message, channel, headers)

    def _find(self, key: TaskKey) -> Running | None:
        running = self._running.get(key)
        if running is None and key.known_digest:
            return next((r for r in self._running.values() if r.task.key.digest == key.digest), None)
        return running

    def listen(self, session: str) -> Feed:
        """Open the session's own stream; a newer one ends the older."""
        feed = self.listeners.listen(session)
        for running in self._of_session(session):
            running.asking.offer_to(feed)
        return feed

    async def runs_for(self, scope: Scope | None, session: str) -> bool:
        """Tell whether any replica runs a task of a session."""
        if self._of_session(session):
            return True
        place: str | None = None
        while scope is not None:
            try:
                tasks, place = await self._store.page(scope, place, _PAGE)
            except StoreAway:
                # Nobody knows; a session that stays open harms less than one that is cut off.
                return True
            if any(task.session == session and not task.ended for task in tasks):
                return True
            if place is None:
                return False
        return False

    def runs_here(self, session: str) -> bool:
        """Tell whether this replica runs a task of a session."""
        return session in self._by_session

    async def tell_session_ended(self, session: str) -> None:
        """Tell the other replicas that a session has been ended by its client; best effort."""
        with suppress(StoreAway):
            await self._bus.send_all(
                Command("ended", TaskKey(Scope("", ""), ""), b"", session, self.replica)
            )

    async def tell_said(self, session: str, message: bytes) -> None:
        """Tell the other replicas what a client said for a plain call that is not here; best effort."""
        with suppress(StoreAway):
            command = Command("said", TaskKey(Scope("", ""), ""), message, session, self.replica)
            await self._bus.send_all(command)

    async def end_session(self, session: str, close: Closer) -> None:
        """Call `close` when the last running task of a session has ended; at once where none runs."""
        if self._of_session(session):
            self._closers[session] = close
        else:
            await close()

    async def obey(self) -> None:
        """Carry out what other replicas ask of this one, for ever."""
        await self._commands.obey()

    async def _said_elsewhere(self, session: str, message: bytes) -> None:
        if self.on_said is not None:
            await self.on_said(session, message)

    def _session_ended_elsewhere(self, session: str) -> None:
        here = self._of_session(session)
        if here:
            self._closers.setdefault(session, here[0].order.channel.close)
        self.listeners.end(session)
        self.on_session_ended(session)

    def forsake(self) -> None:
        """Take note that the only client has gone for good: what waits for its answers ends."""
        for running in self.running:
            running.forsake()

    def leave(self) -> None:
        """End the streams on which clients only listen or wait: they go on at other replicas (I6)."""
        self.listeners.end_all()
        self.waits.end_all()

    async def drain(self, seconds: float) -> bool:
        """Take no new tasks, wait for what runs and what is on its way; tell whether all has ended."""
        self.draining = True
        return all(await asyncio.gather(self._crew.drain(seconds), self._early.drain(seconds)))

    async def close(self) -> None:
        """End what still runs, with words; wait until that is stored."""
        self.draining = True
        for running in self.running:
            running.stop(Ending(call.stopped(), "lost", "the gateway stops"), recorded=False)
        await self._crew.drain(10)
        await self._early.close()
        await self._crew.close()
        await self._tidying.close()
        self.listeners.end_all()

    async def _run(self, running: Running) -> None:
        task = running.task
        try:
            await running.run(self._turns.of(running.order))
        finally:
            self._running.pop(task.key, None)
            of_session = self._by_session.get(task.session, {})
            of_session.pop(task.key, None)
            if not of_session:
                self._by_session.pop(task.session, None)
            name = (task.key.scope, task.session, task.request_id)
            if self._by_request.get(name) == task.key:
                del self._by_request[name]
            if not of_session:
                closer = self._closers.pop(task.session, None)
                # Another replica may run a task of the session yet; the last one closes.
                if closer is not None and not await self.runs_for(task.key.scope, task.session):
                    await closer()

    def _of_session(self, session: str) -> list[Running]:
        return list(self._by_session.get(session, {}).values())

    async def _undo(self, key: TaskKey) -> None:
        """Take back a creation that nobody waited for: the store may have carried it out all the same."""
        for seconds in _UNDO_SECONDS:
            await self._clock.sleep(seconds)
            with suppress(StoreAway):
                task = await self._store.get(key)
                ours = task is not None and task.owner == self.replica and not task.ended
                if ours and key not in self._running:
                    await self._store.remove(key)
                return

    async def _stop_call(self, task: Task, ending: Ending) -> None:
        running = self._running.get(task.key)
        if running is not None:
            running.moved(task)
            running.stop(ending, recorded=True)
        elif task.owner != self.replica:
            with suppress(StoreAway):
                await self._bus.send(task.owner, Command("cancel", task.key))
