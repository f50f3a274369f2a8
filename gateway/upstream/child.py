"""A child process in its own process group: how it is started, what it may know, how it ends.

It ends in three steps (2025-11-25 "Lifecycle", Shutdown): its input is closed, then SIGTERM, then
SIGKILL, the last two to the whole group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from gateway.aio.spawn import Crew
from gateway.protocol.errors import UpstreamLost
from gateway.upstream.options import CommandOptions
from gateway.upstream.process import Process, spawn_process

T = TypeVar("T")

_log = logging.getLogger("gateway.upstream")

_PASSED_ON: Final = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_LOOK: Final = 0.02
_REAP: Final = 2.0
_EXIT_SEEN: Final = 1.0
_OUTPUT_SEEN: Final = 0.2
_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 20


def environment(own: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Return what a child may know: a small safe set, and what the configuration names."""
    passed = {name: own[name] for name in own if name in _PASSED_ON or name.startswith("LC_")}
    return {**passed, **configured}


class Child:
    """One process. `out` hears what it writes, `ended` hears once that it is over, in words.

    Its errors are always drained; the last of them are kept for the log.
    """

    def __init__(self, out: Callable[[bytes], None], ended: Callable[[str], None], grace: float) -> None:
        self._out = out
        self._ended = ended
        self._grace = grace
        self._process: Process | None = None
        self._exited = asyncio.Event()
        self._full = False
        self._writers: list[asyncio.Future[None]] = []
        self._over = False
        self._silent = False
        self._ending = False
        self._vanished = False
        self._tail = b""
        self.pid = 0

    def __repr__(self) -> str:
        state = "over" if self._over else "exited" if self._exited.is_set() else "running"
        return f"<Child {self.pid} {state}>"

    @property
    def last_words(self) -> str:
        """The end of what the process wrote to its standard error; for logs only."""
        return "\n".join(self._tail.decode("utf-8", "replace").splitlines()[-_TAIL_LINES:])

    @property
    def unwritten(self) -> int:
        """Bytes that the process has not read yet."""
        stdin = self._stdin()
        return 0 if stdin is None else stdin.get_write_buffer_size()

    def write(self, data: bytes) -> asyncio.Future[None] | None:
        """Write to its input; the future ends when there is room again, `None` while there is."""
        stdin = self._stdin()
        if stdin is None or stdin.is_closing():
            raise UpstreamLost("the upstream process has closed its input", sent=False)
        stdin.write(data)
        if not self._full:
            return None
        writer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writers.append(writer)
        return writer

    async def end(self) -> None:
        """End the process and its group, step by step; nothing of it is left, even when cancelled."""
        if self._process is None:
            return
        stdin = self._stdin()
        try:
            if stdin is not None:
                stdin.close()
            if not await self._gone(self._grace):
                self.signal(signal.SIGTERM)
                await self._gone(self._grace)
        finally:
            self._ending = True
            self.signal(signal.SIGKILL)
            self._close_pipes()
            if not await self._gone(_REAP) and not self._exited.is_set():
                _log.error("process %d does not end, even by SIGKILL", self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group, if any of it is left."""
        # An id whose group is gone may soon be somebody else's, and 0 would be our own.
        if not self.pid or self._vanished:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def take(self, process: Process) -> None:
        """Take the process."""
        self._process = process
        self.pid = process.pid

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take output or errors."""
        if fd == 1:
            if not self._over:
                self._out(data)
        else:
            self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 asyncio's signature
        """See an end closed: without output or input it is over, whether the process knows or not."""
        if fd == 2 or self._over:
            return
        self._silent = self._silent or fd == 1
        if self._exited.is_set():
            self._finish(self._how())
            return
        what = "output" if fd == 1 else "input"
        self._release(UpstreamLost(f"the upstream process closed its {what}"))
        # The exit, which says more, is about to be seen.
        asyncio.get_running_loop().call_later(
            _EXIT_SEEN, self._finish, f"the upstream process closed its {what}"
        )

    def process_exited(self) -> None:
        """See the exit; what is still in the pipe comes first, but a grandchild must not hold it open."""
        self._exited.set()
        if self._silent:
            self._finish(self._how())
        else:
            asyncio.get_running_loop().call_later(_OUTPUT_SEEN, self._finish, self._how())
        if self._ending:
            self._close_pipes()

    def pause_writing(self) -> None:
        """Let writers wait."""
        self._full = True

    def resume_writing(self) -> None:
        """Let writers go on."""
        self._full = False
        self._release(None)

    def _release(self, lost: UpstreamLost | None) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            if writer.done():
                continue
            if lost is None:
                writer.set_result(None)
            else:
                writer.set_exception(lost)
                # Nobody may be waiting; then nobody is to be told.
                writer.exception()

    def _close_pipes(self) -> None:
        if self._process is not None:
            self._process.close()

    def _finish(self, what: str) -> None:
        if not self._over:
            self._over = True
            self._release(UpstreamLost(what))
            self._ended(what)

    def _how(self) -> str:
        code = None if self._process is None else self._process.returncode
        if code is not None and code < 0:
            try:
                return f"the upstream process was killed by {signal.Signals(-code).name}"
            except ValueError:
                return f"the upstream process was killed by signal {-code}"
        return f"the upstream process exited with code {code}"

    def _stdin(self) -> asyncio.WriteTransport | None:
        return None if self._process is None else self._process.stdin

    async def _gone(self, seconds: float) -> bool:
        """Wait until the process and its group are gone; tell whether they are."""
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
                never = asyncio.Event()
                while self._group_lives():
                    try:
                        async with asyncio.timeout(_LOOK):
                            await never.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            return False
        self._vanished = True
        return True

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return not self._vanished


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even when the caller is cancelled; the cancellation comes afterwards.

    A process whose start is broken off is one that nobody ends.
    """
    task = Crew("process").spawn(work, "start")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def start(options: CommandOptions, child: Child) -> None:
    """Start the configured command as `child`; raise `UpstreamLost` (not sent) where it cannot be."""
    try:
        wrong = await unbroken(_spawn(options, child))
    except asyncio.CancelledError:
        child.signal(signal.SIGKILL)
        await child.end()
        raise
    if wrong is not None:
        raise UpstreamLost(wrong, sent=False)


async def _spawn(options: CommandOptions, child: Child) -> str | None:
    """Start the process; return in words why it cannot be."""
    name = options.command[0]
    env = environment(os.environ, options.env)
    try:
        process = await spawn_process(options.command, env, options.cwd, child)
    except FileNotFoundError as wrong:
        return f"the command of the upstream was not found: {wrong.filename or name}"
    except PermissionError:
        return f"the command of the upstream may not be run: {name}"
    except (OSError, ValueError) as wrong:
        return f"the command of the upstream cannot be run: {wrong}"
    child.take(process)
    await process.open()
    return None
