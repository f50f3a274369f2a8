"""A process with three pipes that the event loop watches; what asyncio offers, without uvloop's surprise.

uvloop leaves copies of the pipes open in the child, so that the end of its output is not seen while it
lives. `subprocess` closes them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Protocol


class Watcher(Protocol):
    """Who hears of a process."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take output (1) or errors (2)."""
        ...

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """See one of the pipes closed."""
        ...

    def process_exited(self) -> None:
        """See the exit; the process has been reaped."""
        ...

    def pause_writing(self) -> None:
        """Let writers wait."""
        ...

    def resume_writing(self) -> None:
        """Let writers go on."""
        ...


class _Pipe(asyncio.Protocol):
    def __init__(self, watcher: Watcher, fd: int) -> None:
        self._watcher = watcher
        self._fd = fd

    def data_received(self, data: bytes) -> None:
        self._watcher.pipe_data_received(self._fd, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watcher.pipe_connection_lost(self._fd, exc)

    def pause_writing(self) -> None:
        self._watcher.pause_writing()

    def resume_writing(self) -> None:
        self._watcher.resume_writing()


class _End:
    """One end of a pipe, for a loop to watch: its descriptor is closed once.

    uvloop closes the file object and then the descriptor again, whose number may be another process's
    by then; so there the closing is left to it.
    """

    def __init__(self, pipe: IO[bytes] | None, loop: asyncio.AbstractEventLoop) -> None:
        if pipe is None:
            raise ValueError("the process has no such pipe")
        self._fd = os.dup(pipe.fileno())
        self._closes = not type(loop).__module__.startswith("uvloop")
        pipe.close()

    def __repr__(self) -> str:
        return f"<_End {self._fd}>"

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor, where the loop does not."""
        if self._closes:
            self._closes = False
            os.close(self._fd)


class Process:
    """A running process. `stdin` is `None` until the pipes are open."""

    def __init__(self, popen: subprocess.Popen[bytes], watcher: Watcher) -> None:
        self._popen = popen
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        self._pipes: list[asyncio.BaseTransport] = []
        self.stdin: asyncio.WriteTransport | None = None

    def __repr__(self) -> str:
        return f"<Process {self._popen.pid} {self._popen.returncode}>"

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal, `None` while it runs."""
        return self._popen.returncode

    def close(self) -> None:
        """Close what is left of the pipes."""
        for pipe in self._pipes:
            pipe.close()

    async def open(self) -> None:
        """Watch the pipes and the exit."""
        popen, loop = self._popen, self._loop
        stdin, _ = await loop.connect_write_pipe(lambda: _Pipe(self._watcher, 0), _End(popen.stdin, loop))
        self.stdin = stdin
        self._pipes.append(stdin)
        for fd, pipe in ((1, popen.stdout), (2, popen.stderr)):
            reader, _ = await loop.connect_read_pipe(partial(_Pipe, self._watcher, fd), _End(pipe, loop))
            self._pipes.append(reader)
        self._watch_exit()

    def _watch_exit(self) -> None:
        try:
            exit_fd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):
            # No such thing here: a thread waits, which ends with the process at the latest.
            threading.Thread(target=self._wait, name=f"wait for {self.pid}", daemon=True).start()
            return

        def seen() -> None:
            self._loop.remove_reader(exit_fd)
            os.close(exit_fd)
            self._popen.wait()
            self._watcher.process_exited()

        self._loop.add_reader(exit_fd, seen)

    def _wait(self) -> None:
        self._popen.wait()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watcher.process_exited)


async def spawn_process(
    command: Sequence[str], env: Mapping[str, str], cwd: str | None, watcher: Watcher
) -> Process:
    """Start a process in a session of its own; raise `OSError` or `ValueError` where it cannot be."""

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 the command is the operator's own
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            bufsize=0,
            start_new_session=True,
        )

    return Process(await asyncio.to_thread(begin), watcher)
