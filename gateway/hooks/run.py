"""The life of the plugins: started in order, told of events, stopped in reverse.

A plugin is foreign code in the house's process: each hears through a bounded queue and a task of its
own, with a time limit, so that one that is slow or broken costs neither the task service nor the
other plugins anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from gateway.aio.spawn import Crew
from gateway.hooks.port import Plugin, TaskEnded
from gateway.protocol.errors import PluginError

_log = logging.getLogger("gateway.hooks")

QUEUE: Final = 10_000
EVENT_SECONDS: Final = 1.0
START_SECONDS: Final = 30.0


class Hooks:
    """Owns the plugins.

    `count(plugin, outcome)` is called for each event and plugin (`heard`, `failed`, `timed_out`, and
    the plugin's own words), `drop()` for each event that a plugin will not hear of. `queue` is in
    events per plugin, `limit` in seconds per event and plugin.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin],
        *,
        count: Callable[[str, str], None],
        drop: Callable[[], None],
        queue: int = QUEUE,
        limit: float = EVENT_SECONDS,
    ) -> None:
        self._lines = [
            _Line(plugin, partial(count, _name(plugin)), drop, queue, limit) for plugin in plugins
        ]
        self._started: list[_Line] = []

    def __repr__(self) -> str:
        waiting = sum(line.waiting for line in self._lines)
        return (
            f"<Hooks {len(self._started)} of {len(self._lines)} plugins started, {waiting} events waiting>"
        )

    def validate(self) -> None:
        """Let every plugin look at its options; raise `PluginError` that names the plugin."""
        for line in self._lines:
            try:
                line.plugin.validate()
            except Exception as error:
                raise PluginError(f"plugin {line.name}: {error}") from error

    async def start(self, seconds: float = START_SECONDS) -> None:
        """Validate all, then start each in order, each within `seconds`.

        Raises `PluginError` where one fails; that one and those before it are stopped again.
        """
        self.validate()
        for line in self._lines:
            self._started.append(line)
            try:
                await line.start(seconds)
            except BaseException:
                await self.stop(0)
                raise

    def publish(self, event: TaskEnded) -> None:
        """Tell the plugins of `event`, without waiting; a full queue loses its oldest event."""
        for line in self._lines:
            line.offer(event)

    async def stop(self, seconds: float) -> None:
        """Let the plugins hear what is queued, then stop them in reverse order, in `seconds` altogether.

        Each is told its share of what time is left; one that overstays its share is cut off one
        event's limit later. Never raises for a plugin's failure.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        for line in self._lines:
            line.shut()
        try:
            async with asyncio.timeout(seconds / 2):
                for line in self._started:
                    await line.drained()
        except TimeoutError:
            _log.warning("%d events are lost: the plugins are too slow to hear them", self._waiting())
        while self._started:
            share = max(0.0, deadline - loop.time()) / len(self._started)
            await self._started.pop().stop(share)

    def _waiting(self) -> int:
        return sum(line.waiting for line in self._started)


class _Line:
    """One plugin with its queue and its tasks."""

    def __init__(
        self,
        plugin: Plugin,
        count: Callable[[str], None],
        drop: Callable[[], None],
        queue: int,
        limit: float,
    ) -> None:
        self.plugin = plugin
        self.name = _name(plugin)
        self._queue: asyncio.Queue[TaskEnded] = asyncio.Queue(queue)
        self._open = True
        self._count = count
        self._drop = drop
        self._limit = limit
        self._crew = Crew(f"plugin {self.name}")
        plugin.count = count

    @property
    def waiting(self) -> int:
        """How many events the plugin has yet to hear of."""
        return self._queue.qsize()

    async def start(self, seconds: float) -> None:
        """Start the plugin and what it runs; raise `PluginError` where it fails or takes too long."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self.plugin.start()
        except Exception as error:
            reason = f"did not start within {seconds:g} s" if limit.expired() else error
            raise PluginError(f"plugin {self.name}: {reason}") from error
        self._crew.spawn(self.plugin.run(), "run")
        self._crew.spawn(self._listen(), "listen")

    def offer(self, event: TaskEnded) -> None:
        """Queue `event`, at the cost of the oldest where the queue is full."""
        if not self._open:
            self._drop()
            return
        if self._queue.full():
            self._lose()
        self._queue.put_nowait(event)

    def shut(self) -> None:
        """Take no more events."""
        self._open = False

    async def drained(self) -> None:
        """Wait until the plugin has heard of everything that is queued."""
        if self._crew:
            await self._queue.join()

    async def stop(self, share: float) -> None:
        """Stop the plugin, which is told `share` seconds, then end its tasks."""
        while not self._queue.empty():
            self._lose()
        await self._contain(self.plugin.stop(share), share + self._limit)
        await self._crew.close()

    async def _listen(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                self._count(await self._contain(self.plugin.task_ended(event), self._limit))
            finally:
                self._queue.task_done()

    def _lose(self) -> None:
        self._queue.get_nowait()
        self._queue.task_done()
        self._drop()

    async def _contain(self, work: Awaitable[None], seconds: float) -> str:
        """Wait for the plugin's `work`; return `heard`, or how it failed."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            _log.warning("plugin %s cancelled itself", self.name)
            return "failed"
        except Exception:  # noqa: BLE001 - foreign code: logged with its trace, and goes no further
            _log.exception("plugin %s %s", self.name, "took too long" if limit.expired() else "failed")
            return "timed_out" if limit.expired() else "failed"
        return "heard"


def _name(plugin: Plugin) -> str:
    return plugin.name or type(plugin).__name__
