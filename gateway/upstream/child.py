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
from typing import Any, Final, TypeVar, cast

from gateway.aio.spawn import Crew
from gateway.protocol.errors import UpstreamLost
from gateway.upstream.options import CommandOptions

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


class Child(asyncio.SubprocessProtocol):
    """One process. `out` hears what it writes, `ended` hears once that it is over, in words.

    Its errors are always drained; the last of them are kept for the log.
    """

    def __init__(self, out: Callable[[bytes], None], ended: Callable[[str], None], grace: float) -> None:
        self._out = out
        self._ended = ended
        self._grace = grace
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited = asyncio.Event()
        self._full = False
        self._writers: list[asyncio.Future[None]] = []
        self._over = False
        self._silent = False
        self._ending = False
        self._vanished = False
        self._tail = b""
        self.output: asyncio.BaseTransport | None = None
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
        if self._transport is None:
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the process."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

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
        """Close what is left, but only after the exit: before it, asyncio would reap beside its watcher."""
        if self._transport is not None and self._exited.is_set():
            self._transport.close()
        if self.output is not None:
            self.output.close()

    def _finish(self, what: str) -> None:
        if not self._over:
            self._over = True
            self._release(UpstreamLost(what))
            self._ended(what)

    def _how(self) -> str:
        code = None if self._transport is None else self._transport.get_returncode()
        if code is not None and code < 0:
            try:
                return f"the upstream process was killed by {signal.Signals(-code).name}"
            except ValueError:
                return f"the upstream process was killed by signal {-code}"
        return f"the upstream process exited with code {code}"

    def _stdin(self) -> asyncio.WriteTransport | None:
        if self._transport is None:
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

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


class _Output(asyncio.Protocol):
    """The output of a child, read from a pipe of our own."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the child close it."""
        self._child.output = transport

    def data_received(self, data: bytes) -> None:
        """Pass the output on."""
        self._child.pipe_data_received(1, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end on."""
        self._child.pipe_connection_lost(1, exc)


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
    loop = asyncio.get_running_loop()
    # A pipe of our own: uvloop leaves a second copy of its own in the child, which would hide its end.
    ours, theirs = os.pipe()
    output = os.fdopen(ours, "rb", 0)
    try:
        await loop.subprocess_exec(
            lambda: child,
            *options.command,
            stdout=theirs,
            cwd=options.cwd,
            env=env,
            start_new_session=True,
        )
        await loop.connect_read_pipe(lambda: _Output(child), output)
        return None
    except FileNotFoundError as wrong:
        return f"the command of the upstream was not found: {wrong.filename or name}"
    except PermissionError:
        return f"the command of the upstream may not be run: {name}"
    except (OSError, ValueError) as wrong:
        return f"the command of the upstream cannot be run: {wrong}"
    finally:
        os.close(theirs)
        if child.output is None:
            output.close()
