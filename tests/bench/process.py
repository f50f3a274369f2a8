"""Child processes of the bench: start, wait until ready, read their CPU and memory, end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec

from tests.bench.load import Done, Order
from tests.bench.wire import WrongAnswer

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT = 60.0
LINE_LIMIT = 1024 * 1024


class Child:
    """One process in a group of its own; its words on stderr are kept and shown when it fails."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    def __repr__(self) -> str:
        return f"<Child {self.name} {self.pid}>"

    @classmethod
    async def start(cls, name: str, command: Sequence[str], *, talks: bool = False) -> Child:
        """Start a command in the repository's root; one that `talks` is read from and written to."""
        descriptor, log = tempfile.mkstemp(prefix=f"bench-{name}-", suffix=".log")
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                stdin=pipe if talks else asyncio.subprocess.DEVNULL,
                stdout=pipe if talks else descriptor,
                stderr=descriptor,
                start_new_session=True,
                limit=LINE_LIMIT,
            )
        finally:
            os.close(descriptor)
        return cls(name, process, Path(log))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def cpu(self) -> float:
        """Return the CPU seconds so far, user and system, of all threads.

        The same sum as utime + stime of /proc/PID/stat, in nanoseconds instead of ticks of 10 ms:
        the clock of another process, as clock_getcpuclockid(3) names it.
        """
        return _cpu(self.pid)

    def rss(self) -> int:
        """Return the resident bytes (VmRSS)."""
        return _rss(self.pid)

    def uses_uvloop(self) -> bool:
        """Tell whether the process has loaded uvloop."""
        return "uvloop" in Path(f"/proc/{self.pid}/maps").read_text()

    def log(self) -> str:
        """Return the last words on stderr."""
        return self._log.read_text(errors="replace")[-2000:]

    async def wait_line(self) -> None:
        """Wait for the line `ready`."""
        async with asyncio.timeout(START_LIMIT):
            line = await self._line()
        if line.strip() != b"ready":
            raise WrongAnswer(f"{self} did not get ready: {line!r} {self.log()}")

    async def wait_url(self, url: str) -> None:
        """Wait until a GET of the URL is answered with less than 500."""
        deadline = time.monotonic() + START_LIMIT
        async with aiohttp.ClientSession() as client:
            while time.monotonic() < deadline and self._process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError):
                    async with client.get(url) as answer:
                        if answer.status < 500:
                            return
                await asyncio.sleep(0.05)
        last = self.log().strip().rpartition("\n")[2]
        raise WrongAnswer(f"{self} did not get ready: {last}")

    async def order(self, order: Order) -> Done:
        """Give the load an order and return its answer; raise `WrongAnswer` where it could not obey."""
        if self._process.stdin is None:
            raise WrongAnswer(f"{self} takes no orders")
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        return await self.answer()

    async def answer(self) -> Done:
        """Return the load's next answer; raise `WrongAnswer` as `order` does."""
        line = await self._line()
        if not line:
            raise WrongAnswer(f"{self} ended: {self.log()}")
        done = msgspec.json.decode(line, type=Done)
        if done.wrong:
            raise WrongAnswer(done.wrong)
        return done

    async def close(self) -> None:
        """End the process and its group; wait for it."""
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(10):
                    await self._process.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
        await self._process.wait()
        self._log.unlink(missing_ok=True)

    async def _line(self) -> bytes:
        return b"" if self._process.stdout is None else await self._process.stdout.readline()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Family(Child):
    """A process that has started others, which are counted with it."""

    def cpu(self) -> float:
        """Return the CPU seconds of all that live."""
        return sum(_cpu(pid) for pid in self._pids())

    def rss(self) -> int:
        """Return the resident bytes of all that live; what they share counts in each."""
        return sum(_rss(pid) for pid in self._pids())

    def _pids(self) -> list[int]:
        found = [self.pid]
        for pid in found:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
        return found


def _cpu(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def _rss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise WrongAnswer(f"process {pid} is gone")


async def start_module(name: str, *words: str) -> Child:
    """Start a module of the bench that says `ready`."""
    child = await Child.start(name, [sys.executable, "-m", f"tests.bench.{name}", *words], talks=True)
    try:
        await child.wait_line()
    except BaseException:
        await child.close()
        raise
    return child


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
