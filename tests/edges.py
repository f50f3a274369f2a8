"""Envoy and Traefik in front of three replicas, with the very files of `deploy/` but for addresses.

Traefik asks the readiness of all replicas on one port: the replicas have the same two ports on addresses
of their own, as they would on machines of their own.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.deployment import DEPLOY
from tests.processes import START, Process, free_port, wait_port
from tests.tools import venv_program

HOST: Final = "127.0.0.1"
REPLICAS: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
EDGES: Final = ("envoy", "traefik")


def free_everywhere() -> int:
    """Return a port that nobody listened on a moment ago on any of the replicas' addresses."""
    while True:
        port = free_port()
        try:
            for host in REPLICAS:
                socket.create_server((host, port)).close()
        except OSError:
            continue
        return port


class Replica:
    """A gateway on an address of its own."""

    def __init__(self, host: str, ports: tuple[int, int], config: Mapping[str, Any], place: Path) -> None:
        self.host, (self.port, self.admin_port) = host, ports
        whole = {
            **config,
            "listen": {"host": host, "port": self.port},
            "admin": {"host": host, "port": self.admin_port},
        }
        file = place / f"gateway-{host}.yaml"
        file.write_text(json.dumps(whole), encoding="utf-8")
        self.process = Process([sys.executable, "-m", "gateway", "serve", "-c", str(file)])

    def admin(self, path: str) -> tuple[int, str]:
        """Return status and body of a GET on the admin port."""
        connection = http.client.HTTPConnection(self.host, self.admin_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait(self, status: int, path: str = "/readyz") -> None:
        """Wait for a status of the admin port."""
        deadline = time.monotonic() + START
        last: object = None
        while time.monotonic() < deadline and self.process.code is None:
            try:
                last = self.admin(path)
                if last[0] == status:
                    return
            except OSError as fault:
                last = fault
            time.sleep(0.05)
        raise AssertionError(f"{last}\n{self.process.text}")

    def end(self) -> None:
        """End it; raise `AssertionError` for a traceback in its output."""
        self.process.stop()
        assert "Traceback (most recent call last)" not in self.process.text, self.process.text


class Edge:
    """A running Envoy or Traefik, in front of `REPLICAS` on a port for clients and one for operators."""

    def __init__(self, kind: str, ports: tuple[int, int], place: Path) -> None:
        self.port = free_port()
        self.process = Process(_COMMANDS[kind](self.port, ports, place))
        try:
            wait_port(self.process, self.port)
            self._wait_routes()
        except AssertionError:
            self.process.kill()
            raise

    def _wait_routes(self) -> None:
        """Wait until requests have a way: Traefik listens before it has one, and answers 404."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
            with closing(connection):
                connection.request("GET", "/demo/mcp")
                if connection.getresponse().status != 404:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{self.process}\n{self.process.text}")

    def end(self) -> None:
        """End it; raise `AssertionError` where it had ended by itself."""
        code = self.process.code
        self.process.stop()
        assert code is None, self.process.text


def _envoy(port: int, ports: tuple[int, int], place: Path) -> list[str]:
    text = (DEPLOY / "envoy/envoy.yaml").read_text(encoding="utf-8")
    text = _swap(text, "address: 0.0.0.0, port_value: 8080", f"address: {HOST}, port_value: {port}")
    for number, host in enumerate(REPLICAS, 1):
        text = _swap(text, f"gateway-{number}, port_value: 8080", f"{host}, port_value: {ports[0]}")
    text = _swap(text, "{port_value: 9090}", f"{{port_value: {ports[1]}}}", len(REPLICAS))
    file = place / f"envoy-{port}.yaml"
    file.write_text(text, encoding="utf-8")
    options = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
    return [str(venv_program("deploy", "envoy")), "-c", str(file), *options]


def _traefik(port: int, ports: tuple[int, int], place: Path) -> list[str]:
    folder = place / f"traefik-{port}"
    folder.mkdir()
    text = (DEPLOY / "traefik/traefik.yaml").read_text(encoding="utf-8")
    text = _swap(text, '":8080"', f'"{HOST}:{port}"')
    # No stream may feel how long a request may take to arrive.
    text = _swap(text, "readTimeout: 60s", "readTimeout: 1s")
    text = _swap(text, "deploy/traefik/dynamic.yaml", f"{folder}/dynamic.yaml", 1)
    (folder / "traefik.yaml").write_text(text, encoding="utf-8")
    text = (DEPLOY / "traefik/dynamic.yaml").read_text(encoding="utf-8")
    for number, host in enumerate(REPLICAS, 1):
        text = _swap(text, f"//gateway-{number}:8080", f"//{host}:{ports[0]}")
    text = _swap(text, 'upstreams", port: 9090', f'upstreams", port: {ports[1]}')
    (folder / "dynamic.yaml").write_text(text, encoding="utf-8")
    return [str(venv_program("deploy", "traefik")), f"--configFile={folder}/traefik.yaml"]


_COMMANDS: Final = {"envoy": _envoy, "traefik": _traefik}


def _swap(text: str, old: str, new: str, times: int = 1) -> str:
    assert text.count(old) == times, f"{old!r} is there {text.count(old)} times"
    return text.replace(old, new)
