"""One worker process as its supervisor sees it: started, talked with, handed connections, ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from gateway import __version__
from gateway.aio.clock import Clock
from gateway.observe.sums import Family
from gateway.workers.line import Line
from gateway.workers.messages import (
    Answer,
    AskMetrics,
    AskReady,
    Beat,
    Begin,
    Closed,
    Failed,
    Leaving,
    Message,
    Metrics,
    NoMore,
    Ready,
    Renew,
    Renewed,
    Serving,
    Stop,
    ToSupervisor,
)

State = Literal["starting", "serving", "leaving", "closed", "ended"]
Kind = TypeVar("Kind", Metrics, Ready, Renewed)

SILENCE_SECONDS: Final = 3.0
_MAX_ASKS: Final = 64
_REAP_SECONDS: Final = 10.0
_ONE: Final = b"."
_log: Final = logging.getLogger("gateway.workers")


class WorkerProcess:
    """A process from its start to its end; `changed` is called when its state changes."""

    def __init__(self, number: int, clock: Clock, changed: Callable[[], None]) -> None:
        self.number = number
        self.replica: str | None = None
        self.state: State = "starting"
        self.failed: Failed | None = None
        self.served_at: float | None = None
        self.asked_to_end = False
        self.last: list[Family] = []
        self.code: int | None = None
        self._clock = clock
        self._changed = changed
        self._child: subprocess.Popen[bytes] | None = None
        self._line: Line[ToSupervisor] | None = None
        self._door: socket.socket | None = None
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._idents = 0
        self._beat_at = 0.0
        self._connections = 0
        self._handed = 0
        self._taken = 0

    def __repr__(self) -> str:
        return f"<WorkerProcess {self.number}: {self.state}, process {self.pid}>"

    @property
    def pid(self) -> int | None:
        """The process id, `None` before the start."""
        return None if self._child is None else self._child.pid

    @property
    def connections(self) -> int:
        """How many connections it has, with those that it has been handed and not yet counted."""
        return self._connections + self._handed - self._taken

    @property
    def silent(self) -> float:
        """For how many seconds a worker that had begun to serve has not been heard of; 0 where lately."""
        quiet = self._clock.monotonic() - self._beat_at
        return quiet if self.served_at is not None and quiet > SILENCE_SECONDS else 0.0

    async def start(self, config: bytes) -> None:
        """Start a fresh interpreter; raise `OSError` where the machine has none to give."""
        ours, theirs = socket.socketpair()
        door, their_door = socket.socketpair()
        with theirs, their_door:
            try:
                self._child = _spawn([theirs.fileno(), their_door.fileno()])
            except OSError:
                ours.close()
                door.close()
                raise
        door.setblocking(False)
        self._door = door
        self._line = await Line[ToSupervisor].over(ours, ToSupervisor)
        self._line.say(Begin(self.number, __version__, config))

    async def listen(self) -> int:
        """Hear the process until it has ended; return its exit code, negative for a signal."""
        assert self._line is not None
        assert self._child is not None
        while (message := await self._line.hear()) is not None:
            self._take(message)
        self._enter("closed")
        self.code = await asyncio.to_thread(_reap, self._child)
        self._enter("ended")
        for waiting in self._asked.values():
            waiting.cancel()
        if self._door is not None:
            self._door.close()
        await self._line.close()
        return self.code

    def hand(self, connection: socket.socket) -> bool:
        """Hand a connection over; tell whether it was taken off the caller's hands."""
        assert self._door is not None
        try:
            socket.send_fds(self._door, [_ONE], [connection.fileno()])
        except OSError:
            return False
        self._handed += 1
        connection.close()
        return True

    async def metrics(self, seconds: float) -> list[Family]:
        """Return the metrics, where they do not come in time those that came last."""
        told = await self._ask(AskMetrics, seconds)
        if told is not None:
            self.last = told.families
        return self.last

    async def ready(self, exclude: frozenset[str], seconds: float) -> dict[str, Any] | None:
        """Return the readiness, `None` where it does not come in time."""
        told = await self._ask(lambda ident: AskReady(ident, exclude), seconds, Ready)
        return None if told is None else told.found

    async def renew(self, config: bytes, seconds: float) -> bool:
        """Hand a new configuration over; tell whether it was taken within `seconds`."""
        told = await self._ask(lambda ident: Renew(ident, config), seconds, Renewed)
        return told is not None and told.taken

    def stop(self, level: int) -> None:
        """Ask the process to end."""
        self.asked_to_end = True
        self._say(Stop(level))

    def kill(self) -> None:
        """End the process at once."""
        if self._child is not None:
            self._child.kill()

    async def _ask(
        self,
        message: Callable[[int], Message],
        seconds: float,
        kind: type[Kind] = Metrics,
    ) -> Kind | None:
        # A worker that reads nothing is asked no more.
        deaf = self.state == "ended" or self.silent or len(self._asked) >= _MAX_ASKS
        if self._line is None or deaf:
            return None
        self._idents += 1
        ident = self._idents
        answer = self._asked[ident] = asyncio.get_running_loop().create_future()
        self._line.say(message(ident))
        await asyncio.wait([answer], timeout=seconds)
        if not answer.done():
            return None
        found = None if answer.cancelled() else answer.result()
        return found if isinstance(found, kind) else None

    def _take(self, message: ToSupervisor) -> None:
        self._beat_at = self._clock.monotonic()
        match message:
            case Serving():
                self.replica = message.replica
                self.served_at = self._clock.monotonic()
                self._enter("serving")
            case Leaving():
                self._enter("leaving")
            case Closed():
                self._enter("closed")
                self._say(NoMore())
            case Failed():
                self.failed = message
            case Beat():
                self._connections, self._taken = message.connections, message.taken
            case Metrics() | Ready() | Renewed():
                self._answered(message)

    def _say(self, message: Message) -> None:
        if self._line is not None:
            self._line.say(message)

    def _answered(self, message: Answer) -> None:
        if isinstance(message, Metrics):
            self.last = message.families
        answer = self._asked.pop(message.ident, None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _enter(self, state: State) -> None:
        if self.state != state:
            self.state = state
            self._changed()


def _spawn(ends: list[int]) -> subprocess.Popen[bytes]:
    """Start an interpreter that has two ends of lines, our path, and nothing else of ours."""
    # No key at the terminal may end it before it can look after itself.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        return subprocess.Popen(  # noqa: S603  this program itself
            [sys.executable, "-P", "-m", "gateway.workers", *map(str, ends)],
            stdin=subprocess.DEVNULL,
            pass_fds=ends,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reap(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process that has hung up; one that does not end by itself is killed."""
    try:
        return child.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
