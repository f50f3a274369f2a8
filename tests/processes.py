"""Processes that the tests start: their lines can be awaited, and none outlives its test."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ROOT = Path(__file__).resolve().parents[1]
START = 30.0
END = 15.0
_FIRST_PORT = 12_000
_PORTS = 20_000


class Process:
    """A child with a process group of its own, whose two outputs are read into one list of lines."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._child = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self._child.stdout, self._child.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def code(self) -> int | None:
        """The exit code, `None` while the process runs."""
        return self._child.poll()

    @property
    def text(self) -> str:
        """All lines so far."""
        return "\n".join(self.lines)

    def wait_line(self, pattern: str, timeout: float = START) -> re.Match[str]:
        """Wait for a line that matches; raise `AssertionError` where none comes in `timeout` seconds."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    if found := re.search(pattern, line):
                        return found
                seen = len(self.lines)
                left = deadline - time.monotonic()
                if left <= 0 or (self.code is not None and not any(r.is_alive() for r in self._readers)):
                    raise AssertionError(f"no line like {pattern!r} from {self}\n{self.text}")
                self._changed.wait(min(left, 0.2))

    def wait_end(self, timeout: float = END) -> int:
        """Wait for the end and return the exit code; raise `AssertionError` where it does not come."""
        try:
            return self._child.wait(timeout)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"{self} has not ended after {timeout} s\n{self.text}") from late

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone; one that has ended gets none."""
        self._child.send_signal(number)

    def kill(self) -> None:
        """End the whole process group at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._close()

    def stop(self, timeout: float = END) -> int:
        """Ask the process to end (SIGTERM), kill its group where it does not; return the exit code."""
        self.send(signal.SIGTERM)
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.lines.append(f"(killed: no end {timeout} s after SIGTERM)")
        self.kill()
        return self._child.returncode

    def _read(self, stream: IO[str] | None) -> None:
        for line in stream or ():
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def _close(self) -> None:
        self._child.wait()
        for reader in self._readers:
            reader.join(1)
        for stream in (self._child.stdout, self._child.stderr):
            # A grandchild that left the group may hold the other end; then the reader still reads.
            if stream is not None and not any(reader.is_alive() for reader in self._readers):
                stream.close()

    def __repr__(self) -> str:
        state = "running" if self.code is None else f"ended {self.code}"
        return f"<Process {self.pid} {state}: {' '.join(self.command)}>"


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listened on a moment ago.

    It is below those that the system gives to outgoing connections: none of these can take it meanwhile.
    """
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_port(process: Process, port: int, timeout: float = START) -> None:
    """Wait until somebody listens on a port; raise `AssertionError` where the process ends before."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and process.code is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"nothing listens on {port}: {process}\n{process.text}")
