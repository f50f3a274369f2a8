"""The real processes of a chaos run: started, broken, started again; and what they hold."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.processes import ROOT

START: Final = 30.0


class Part:
    """A process that can be ended and started again with the same command; all it says goes to one file."""

    def __init__(
        self, name: str, command: Sequence[str], place: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = place / f"{name}.log"
        self.env = dict(env or {})
        self.started = 0
        self.child: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        state = "not started" if self.child is None else f"pid {self.child.pid}, {self.child.poll()}"
        return f"<Part {self.name}: {state}>"

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        assert self.child is not None, self
        return self.child.pid

    @property
    def code(self) -> int | None:
        """The exit code, `None` while it runs."""
        return None if self.child is None else self.child.poll()

    @property
    def alive(self) -> bool:
        """Whether it runs (or is stopped, but has not ended)."""
        return self.child is not None and self.child.poll() is None

    def start(self) -> None:
        """Start it, or start it again."""
        assert not self.alive, self
        self.started += 1
        with self.log.open("ab") as out:
            self.child = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        if self.child is not None and self.alive:
            self.child.send_signal(number)

    async def kill(self) -> None:
        """End it without a word."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def stop(self, seconds: float) -> bool:
        """Ask it to end; kill it and return `False` where it does not."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            await self.ended(seconds)
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def ended(self, seconds: float = START) -> None:
        """Wait for its end; raise `TimeoutError`."""
        if self.child is not None:
            try:
                await asyncio.to_thread(self.child.wait, seconds)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"{self} has not ended in {seconds} s") from None

    def tracebacks(self) -> list[str]:
        """Return the last line of each traceback that it wrote."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [part[-1500:] for part in text.split("Traceback (most recent call last)")[1:]]


async def listens(part: Part, port: int) -> None:
    """Wait until a part listens on a port; raise `TimeoutError`, or `RuntimeError` where it has ended."""
    async with asyncio.timeout(START):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if not part.alive:
                    words = part.log.read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{part} does not listen on {port}:\n{words}") from None
                await asyncio.sleep(0.03)
            else:
                writer.close()
                return


def memory_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def open_files(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 (a listing of names is all that is wanted)
    return 0


def waited_s(pid: int) -> float:
    """Return how long a process has been ready to run and had no core."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def runs(pid: int) -> bool:
    """Whether a process runs: not one that has ended and waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
