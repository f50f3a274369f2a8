"""What other replicas ask of this one: offers for streams that are here, and word for its calls (I6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final

from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway, UpstreamLost
from gateway.service.hand import Ending
from gateway.service.listeners import Listeners
from gateway.service.running import Running
from gateway.service.waits import Waits
from gateway.store.port import Bus, Command, Store
from gateway.tasks.model import Outcome, TaskKey

_log: Final = logging.getLogger("gateway.service")
OfSession = Callable[[str], Sequence[Running]]


class Commands:
    """Carries out the commands that come on the bus.

    `running` are the calls of this replica, `of_session` those of one session, and
    `on_session_ended` hears of sessions that were ended on another replica, `on_said` what their clients
    said there, `on_orphans` of tasks that one let go of; `coming` is the work that takes a task up.
    `calls` owns what concerns a call, and ends before `tidying` does.
    """

    def __init__(  # noqa: PLR0913 the rooms of the service that other replicas reach into
        self,
        replica: str,
        store: Store,
        bus: Bus,
        listeners: Listeners,
        waits: Waits,
        *,
        running: Callable[[TaskKey], Running | None],
        of_session: OfSession,
        on_session_ended: Callable[[str], None],
        on_said: Callable[[str, bytes], Awaitable[None]],
        on_orphans: Callable[[], Coroutine[None, None, None]],
        coming: Callable[[TaskKey], asyncio.Task[None] | None],
        calls: Crew,
        tidying: Crew,
    ) -> None:
        self._replica = replica
        self._store = store
        self._bus = bus
        self._listeners = listeners
        self._waits = waits
        self._running = running
        self._of_session = of_session
        self._on_session_ended = on_session_ended
        self._on_said = on_said
        self._on_orphans = on_orphans
        self._coming = coming
        self._calls = calls
        self._tidying = tidying

    def __repr__(self) -> str:
        return f"<Commands to {self._replica}>"

    async def obey(self) -> None:
        """Carry out what other replicas ask of this one, for ever."""
        async for command in self._bus.commands():
            match command.kind:
                case "offer":
                    self._calls.spawn(self._listeners.take(command), "offer")
                case "status":
                    self._tidying.spawn(self._listeners.take(command), "status")
                case "seek" if command.sender != self._replica:
                    self._sought(command)
                case "left" if command.sender != self._replica:
                    self._listeners.gone(command.session, command.sender)
                case "unwait" if command.sender != self._replica:
                    self._waits.stop_here(command.session, command.message)
                case "ended" if command.sender != self._replica:
                    self._on_session_ended(command.session)
                case "said" if command.sender != self._replica:
                    self._calls.spawn(self._hear(command), "said")
                case "orphans" if command.sender != self._replica:
                    self._tidying.spawn(self._on_orphans(), "orphans")
                case _:
                    self._obey_call(command)

    async def _hear(self, command: Command) -> None:
        try:
            await self._on_said(command.session, command.message)
        except UpstreamLost as lost:
            _log.warning("a client's word did not reach the upstream: %s", lost)

    def _sought(self, command: Command) -> None:
        """Another replica has the stream of a session now: what waits for an answer goes there."""
        self._listeners.sought(command.session, command.sender)
        for running in self._of_session(command.session):
            self._listeners.offer_to(command.sender, command.session, running.asking.unanswered())

    def _obey_call(self, command: Command) -> None:
        running = self._running(command.key)
        if running is None:
            # The key of what is about no task is nobody's.
            coming = self._coming(command.key)
            if coming is not None:
                self._tidying.spawn(self._obey_later(coming, command), "obey later")
            return
        if command.kind == "cancel":
            if not running.tenure.holds:
                # It may be another's by now: the next look at the record tells.
                return
            ending = Ending(Outcome(status="cancelled"), "cancelled", "cancelled by the client")
            running.stop(ending, recorded=True)
        elif command.kind == "attend":
            running.asking.attend(command.sender)
        elif command.kind == "unattend":
            running.asking.unattend(command.sender)
        else:
            self._calls.spawn(self._pass_on(running, command), "answer")

    async def _obey_later(self, coming: asyncio.Task[None], command: Command) -> None:
        """Obey when a task that is being taken up is here."""
        await asyncio.wait([coming])
        if self._running(command.key) is not None:
            self._obey_call(command)

    async def _pass_on(self, running: Running, command: Command) -> None:
        try:
            task = await self._store.get(command.key)
            if task is not None and not task.ended:
                running.moved(task)
                if not task.pending:
                    running.answered()
            await running.asking.answer(command.message, command.relay_id)
        except (UpstreamLost, StoreAway) as lost:
            _log.warning("an answer did not reach the upstream: %s", lost)
            if isinstance(lost, UpstreamLost):
                running.unheard(lost)
