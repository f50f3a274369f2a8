"""The gateway as a user runs it: `python -m gateway serve -c FILE` on free ports."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.processes import START, Process, free_port

HOST = "127.0.0.1"


class Gateway:
    """A gateway process with its two ports."""

    def __init__(
        self, config: Mapping[str, Any], place: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.config: dict[str, Any] = {
            "drain_delay": "0s",
            **config,
            "listen": {"host": HOST, "port": self.port, **config.get("listen", {})},
            "admin": {"host": HOST, "port": self.admin_port, **config.get("admin", {})},
        }
        self.file = place / f"gateway-{self.port}.yaml"
        # JSON is YAML.
        self.file.write_text(json.dumps(self.config, indent=2), encoding="utf-8")
        self.process = Process([sys.executable, "-m", "gateway", "serve", "-c", str(self.file)], env)

    def url(self, upstream: str | None = None) -> str:
        """Return the URL of an upstream, without a name that of the only one."""
        return f"http://{HOST}:{self.port}/{upstream}/mcp" if upstream else f"http://{HOST}:{self.port}/mcp"

    def admin(self, path: str) -> tuple[int, str]:
        """Return status and body of a GET on the admin port."""
        connection = http.client.HTTPConnection(HOST, self.admin_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait(self, path: str = "/healthz", timeout: float = START) -> None:
        """Wait until the admin port answers 200; `/readyz` waits for store and upstreams too."""
        deadline = time.monotonic() + timeout
        last: object = "no answer"
        while time.monotonic() < deadline and self.process.code is None:
            try:
                status, body = self.admin(path)
            except OSError as fault:
                last = fault
            else:
                if status == 200 and self._listens():
                    return
                last = f"{status} {body}"
            time.sleep(0.05)
        raise AssertionError(f"{path} of {self.process}: {last}\n{self.process.text}")

    def _listens(self) -> bool:
        """Tell whether clients are let in: the admin port is open before that."""
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def end(self) -> None:
        """End the process if it still runs; raise `AssertionError` for a traceback in its output."""
        if self.process.code is None:
            self.process.stop()
        else:
            self.process.kill()
        assert "Traceback (most recent call last)" not in self.process.text, self.process.text


class StartGateway(Protocol):
    """The `gateway` fixture."""

    def __call__(
        self,
        config: Mapping[str, Any],
        *,
        env: Mapping[str, str] | None = None,
        wait: str | None = "/healthz",
    ) -> Gateway:
        """Start a gateway with a configuration and wait for a path of its admin port."""
        ...
