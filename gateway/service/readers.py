"""Who reads a task on this replica: by its log, or by its state; and the running call hears of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

from gateway.protocol.errors import StoreAway
from gateway.service.feed import News
from gateway.service.follow import follow
from gateway.service.hub import Bell, Hub, State
from gateway.service.running import Running
from gateway.store.port import Bus, Command, CommandKind, Store
from gateway.tasks.model import Task, TaskKey

Find = Callable[[TaskKey], Running | None]
Spawn = Callable[[Coroutine[Any, Any, None], str], object]
Tell = Callable[[Task, int], None]


class _Attention:
    """That somebody here reads a task: the call hears of it, or the replica that runs it."""

    __slots__ = ("_replica", "_running", "_tell", "_told")

    def __init__(self, running: Running | None, replica: str, tell: Tell) -> None:
        self._running = running
        self._replica = replica
        self._tell = tell
        self._told: Task | None = None
        if running is not None:
            running.asking.attend(replica)

    def note(self, task: Task) -> None:
        """Take note of who runs it."""
        if self._running is not None or task.ended:
            return
        if self._told is None:
            self._tell(task, 1)
        elif (task.owner, task.epoch) != (self._told.owner, self._told.epoch):
            # Another replica runs it now, which knows of no reader here.
            self._tell(task, 0)
        self._told = task

    def end(self) -> None:
        """Nobody reads it any more."""
        if self._running is not None:
            self._running.asking.unattend(self._replica)
        elif self._told is not None:
            self._tell(self._told, -1)


class Readers:
    """Reads tasks for streams. While somebody does, server requests are not offered elsewhere."""

    def __init__(self, replica: str, store: Store, bus: Bus, hub: Hub, find: Find, spawn: Spawn) -> None:
        self._replica = replica
        self._store = store
        self._bus = bus
        self._hub = hub
        self._find = find
        self._spawn = spawn
        self._afar = Counter[TaskKey]()
        self._owners: dict[TaskKey, tuple[str, int]] = {}

    def __repr__(self) -> str:
        return f"<Readers by {self._hub!r}>"

    async def follow(self, key: TaskKey, after: str | None) -> AsyncGenerator[News | None, None]:
        """Yield a task's news from an offset of its log, then what happens, the final response last.

        `None` says that nothing happened for a while.
        """
        running = self._find(key)
        if running is not None:
            running.asking.attend(self._replica)
        try:
            async with aclosing(follow(self._store, self._bus, key, after)) as news_of_it:
                async for news in news_of_it:
                    yield news
        finally:
            if running is not None:
                running.asking.unattend(self._replica)

    async def wait(
        self, key: TaskKey, patience: float, bell: Bell | None = None, *, asks: bool = True
    ) -> AsyncGenerator[State | None, None]:
        """Yield a task's state, then each new one, the end last; end where it is not there.

        `None` says that nothing happened for `patience` seconds. Who brings the `bell` can stop it. Who
        cannot ask the client leaves server requests to others.
        """
        attention = _Attention(self._find(key), self._replica, self._tell) if asks else None
        bell = Bell() if bell is None else bell
        watch, seen = self._hub.join(key, bell), 0
        try:
            while not bell.stopped:
                if watch.number == seen and not (seen and bell.take_poke()):
                    if not await bell.rings(patience):
                        yield None
                    continue
                seen, state = watch.number, watch.state
                if state is None:
                    return
                if attention is not None:
                    attention.note(state[0])
                yield state
                if state[0].ended:
                    return
        finally:
            self._hub.leave(watch, bell)
            if attention is not None:
                attention.end()

    def found(self, running: Running) -> None:
        """A task that another replica ran is here now: let its call know of the readers."""
        task = running.task
        if self._afar[task.key]:
            self._owners[task.key] = (task.owner, task.epoch)
            running.asking.attend(self._replica)
        else:
            del self._afar[task.key]

    def _tell(self, task: Task, change: int) -> None:
        """Let the replica that runs a task know of the first reader here, and of the last one's end."""
        before = self._afar[task.key]
        self._afar[task.key] += change
        told, owner = self._owners.get(task.key), (task.owner, task.epoch)
        if (change < 0 and self._afar[task.key]) or (before and change >= 0 and told == owner):
            return
        self._owners[task.key] = owner
        if not self._afar[task.key]:
            del self._afar[task.key], self._owners[task.key]
        kind: CommandKind = "unattend" if change < 0 else "attend"
        running = self._find(task.key)
        if running is not None:
            (running.asking.unattend if change < 0 else running.asking.attend)(self._replica)
        if task.owner != self._replica:
            command = Command(kind, task.key, sender=self._replica)
            self._spawn(self._send(task.owner, command), kind)

    async def _send(self, owner: str, command: Command) -> None:
        with suppress(StoreAway):
            await self._bus.send(owner, command)
