"""Upstream servers as the tests start them: official ones and our own fixture servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast

from tests.processes import Process, free_port, wait_port
from tests.tools import npm_program, venv_python

Server: TypeAlias = Literal["mcp1", "mcp2", "conformance"]
EVERYTHING = "@modelcontextprotocol/server-everything"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"


class Running:
    """A server that is reached by URL."""

    def __init__(self, process: Process, url: str, log: Path | None = None) -> None:
        self.process = process
        self.url = url
        self.log = log

    def runs(self) -> list[dict[str, Any]]:
        """Return the lines of the execution log: event, tool, arguments, pid."""
        return read_runs(self.log) if self.log else []


def read_runs(log: Path) -> list[dict[str, Any]]:
    """Return the lines of an execution log that may not be there yet."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [cast("dict[str, Any]", json.loads(line)) for line in lines]


def fixture_command(server: Server, *arguments: str) -> list[str]:
    """Return the command of a fixture server, to be run in the project's folder; raise `ToolMissing`.

    For the arguments see `tests.fixture_servers.serving`: `stdio`, or `http` and `sse` with a port,
    and options.
    """
    python = sys.executable if server == "mcp2" else str(venv_python("mcp1"))
    return [python, "-m", f"tests.fixture_servers.{server}_server", *arguments]


def start_fixture(
    server: Server, transport: Literal["http", "sse"], *options: str, log: Path | None
) -> Running:
    """Start a fixture server on a port of its own and wait until it listens."""
    logging = ["--log", str(log)] if log else []
    process = Process(fixture_command(server, transport, "0", *options, *logging))
    return Running(process, process.wait_line(r"^ready (\S+)$")[1], log)


def everything_command() -> list[str]:
    """Return the command of server-everything on stdio; raise `ToolMissing`."""
    return [*npm_program("servers", EVERYTHING), "stdio"]


def start_everything(mode: Literal["sse", "streamableHttp"]) -> Running:
    """Start server-everything on a free port."""
    port = free_port()
    env: Mapping[str, str] = {"PORT": str(port)}
    process = Process([*npm_program("servers", EVERYTHING), mode], env)
    wait_port(process, port)
    return Running(process, f"http://127.0.0.1:{port}/{'sse' if mode == 'sse' else 'mcp'}")


def filesystem_command(folder: Path) -> list[str]:
    """Return the command of server-filesystem on stdio for a folder; raise `ToolMissing`."""
    return [*npm_program("servers", FILESYSTEM), str(folder)]


def time_command() -> list[str]:
    """Return the command of mcp-server-time on stdio; raise `ToolMissing`."""
    return [str(venv_python("time")), "-m", "mcp_server_time", "--local-timezone", "UTC"]


class StartServer(Protocol):
    """The `fixture_server` fixture."""

    def __call__(
        self, server: Server, transport: Literal["http", "sse"] = "http", *options: str
    ) -> Running:
        """Start a fixture server whose runs are logged."""
        ...
