"""The task service of one replica: begin, look up, list, answer, cancel, remove."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec

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
from gateway.service.hand import HANDED_OVER, Ending, Tools
from gateway.service.handing import hand_over
from gateway.service.hub import Hub
from gateway.service.line import Turn
from gateway.service.listeners import Listeners
from gateway.service.order import Order, ServiceLimits
from gateway.service.readers import Readers
from gateway.service.running import Running
from gateway.service.sessions import runs_anywhere, tell_all
from gateway.service.tenure import Tenure
from gateway.service.turns import Crowded, Turns
from gateway.service.undoing import undo
from gateway.service.waits import Waits
from gateway.service.witness import Witness
from gateway.store.port import Asker, Bounds, Bus, Command, Exists, Full, Left, Store
from gateway.tasks import call
from gateway.tasks.model import Outcome, Scope, Task, TaskKey
from gateway.upstream.port import Channel

_log: Final = logging.getLogger("gateway.service")
Closer = Callable[[], Awaitable[None]]
Rebuild = Callable[[Task, Left], Awaitable[Order | str]]
"""Returns what is to be run for a task that another replica left, or in words why nothing can be."""


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
        self.clock, self.lease_ms = clock, limits.lease_ms
        self._crew = Crew("calls")
        self._early = EarlyCalls()
        self._tidying = Crew("tidying up")
        self._running: dict[TaskKey, Running] = {}
        self.coming: dict[TaskKey, asyncio.Task[None]] = {}
        self._by_session: dict[str, dict[TaskKey, Running]] = {}
        self._by_request: dict[tuple[Scope, str, bytes], TaskKey] = {}
        self._creating: dict[tuple[Scope, str, bytes], asyncio.Event] = {}
        self.turns = Turns(replica, store.turns, bus, clock, limits.lease_ms, witness.turns)
        self.listeners = Listeners(replica, store, bus, self._tidying.spawn, limits.stream_queue_bytes)
        asker = Asker(replica, limits.lease_ms)
        self.waits = Waits(asker, store, bus, self.listeners, clock, self._tidying)
        self.announcer = Announcer(self.listeners)
        self.hub = Hub(store, bus, self._tidying, clock)
        self._tools = Tools(store, witness, self.announcer, clock, limits, self._crew.spawn)
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
            on_orphans=self._orphans,
            coming=self.coming.get,
            calls=self._crew,
            tidying=self._tidying,
        )
        self.rebuild: Rebuild | None = None
        self.on_orphans: Closer | None = None
        self.hands_over = False
        self.on_session_ended: Callable[[str], None] = lambda _: None
        self.on_said: Callable[[str, bytes], Awaitable[None]] | None = None
        self._answers = Answers(replica, self._tools, bus, self._running, self._crew, self._tidying)
        self._closers: dict[str, Closer] = {}
        self.draining = False

    def __repr__(self) -> str:
        return f"<TaskService {self.replica}: {len(self._running)} running>"

    @property
    def running(self) -> tuple[Running, ...]:
        """The tasks that this replica runs now."""
        return tuple(self._running.values())

    async def begin(self, order: Order, *, only_final: bool = False) -> Running | Exists | Full | Crowded:
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

    async def _begin(self, order: Order, *, only_final: bool) -> Running | Exists | Full | Crowded:
        new = order.new
        turn = await self.turns.queue(order)
        if isinstance(turn, Crowded):
            self._witness.crowded(new)
            return turn
        begun = False
        try:
            found = await self._create(order, turn, only_final=only_final)
            begun = isinstance(found, Running)
        finally:
            if turn is not None and not begun:
                turn.leave()
        return found

    async def _create(
        self, order: Order, turn: Turn | None, *, only_final: bool
    ) -> Running | Exists | Full:
        new, limits = order.to_store(waits=turn is not None and not turn.given), self._limits
        began = self.clock.monotonic()
        try:
            bounds = order.bounds or limits.bounds
            found = await self._store.create(new, self.replica, limits.lease_ms, bounds)
        except StoreAway:
            work = undo(self._store, self.clock, self.replica, new.key, self._running.__contains__)
            self._tidying.spawn(work, "undo")
            raise
        if isinstance(found, Exists):
            self._witness.refused(new.key.scope, new.session, new.key.task_id, "exists")
            return found
        if isinstance(found, Full):
            limit = "tasks_per_scope" if found.which == "active" else "stored_tasks_per_scope"
            self._witness.refused(new.key.scope, new.session, new.key.task_id, limit)
            return found
        self._witness.created(found)
        return self.enter(found, order, turn, began, only_final=only_final)

    def enter(
        self, task: Task, order: Order, turn: Turn | None, began: float, *, only_final: bool = False
    ) -> Running:
        """Run a task that is this replica's by what the store was asked at `began`."""
        running = Running(
            task,
            order,
            self._tools,
            lambda news: self.listeners.offer(task.session, news),
            tenure=Tenure(self.clock, began, self._limits.lease_ms),
            only_final=only_final,
        )
        self._running[task.key] = running
        self._by_session.setdefault(task.session, {})[task.key] = running
        self._by_request[task.key.scope, task.session, task.request_id] = task.key
        self._crew.spawn(self._run(running, turn), task.key.digest)
        return running

    def expect(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        """Have the work done that takes up a task; who has word for its call waits for it."""
        coming = self.coming[task.key] = self._crew.spawn(work, f"take up {task.key.digest}")
        coming.add_done_callback(lambda _: self.coming.pop(task.key, None))

    async def _orphans(self) -> None:
        if self.on_orphans is not None:
            with suppress(StoreAway):
                await self.on_orphans()

    def reconfigure(self, bounds: Bounds) -> None:
        """Hold scopes to other bounds from now on."""
        self._limits = msgspec.structs.replace(self._limits, bounds=bounds)

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
        return bool(self._of_session(session)) or await runs_anywhere(self._store, scope, session)

    def runs_here(self, session: str) -> bool:
        """Tell whether this replica runs a task of a session."""
        return session in self._by_session

    async def tell_session_ended(self, session: str) -> None:
        """Tell the other replicas that a session has been ended by its client; best effort."""
        await tell_all(self._bus, "ended", self.replica, session)

    async def tell_said(self, session: str, message: bytes) -> None:
        """Tell the other replicas what a client said for a plain call that is not here; best effort."""
        await tell_all(self._bus, "said", self.replica, session, message)

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
        """End the streams of those who listen or wait for what runs elsewhere: any replica has it (I6)."""
        self.listeners.end_all()
        self.waits.end_all(self._find)

    async def drain(self, seconds: float) -> bool:
        """Take no new tasks, wait for what runs and what is on its way; tell whether all has ended."""
        self.draining = True
        return all(await asyncio.gather(self._crew.drain(seconds), self._early.drain(seconds)))

    async def close(self) -> None:
        """Leave to other replicas what they can go on with, end all else with words."""
        self.draining = True
        here = self.running
        for running in here:
            if self.hands_over and running.can_be_taken_up:
                running.stop(HANDED_OVER, recorded=True)
            else:
                running.stop(Ending(call.stopped(), "lost", "the gateway stops"), recorded=False)
        await self._crew.drain(10)
        await hand_over(self._store, self._bus, self.replica, here)
        await self._early.close()
        await self._crew.close()
        await self.turns.close()
        await self._tidying.close()
        self.listeners.end_all()
        self.waits.end_all(lambda _: False)

    async def _run(self, running: Running, turn: Turn | None) -> None:
        task = running.task
        try:
            await running.run(turn)
        finally:
            if turn is not None:
                turn.leave()
            of_session = self._by_session.get(task.session, {})
            if self._running.get(task.key) is running:
                del self._running[task.key]
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

    async def _stop_call(self, task: Task, ending: Ending) -> None:
        running = self._running.get(task.key)
        if running is not None:
            running.moved(task)
            running.stop(ending, recorded=True)
        elif task.owner != self.replica:
            with suppress(StoreAway):
                await self._bus.send(task.owner, Command("cancel", task.key))
