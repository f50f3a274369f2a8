"""Which real clients are tried, with which scenes, and how their programs are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, TypeAlias, cast

from tests.processes import ROOT
from tests.tools import find, node, pins, venv_python

LIMIT = 100.0

Account: TypeAlias = dict[str, Any]
Dialect: TypeAlias = Literal["B", "C", "none"]

PLAIN = ("plain", "fail", "rpc_error", "plain_input")
TASKS = ("fail", "rpc_error", "task", "cancel", "input")


@dataclass(frozen=True)
class Client:
    """A client: its name in the table, the dialect of its tasks, its program, what it plays."""

    title: str
    dialect: Dialect
    program: str
    place: str
    option: str
    scenes: tuple[str, ...]

    def command(self) -> list[str]:
        """Return the command of its program; raise `ToolMissing`."""
        if self.place in pins.NPM and self.program.endswith(".mjs"):
            return [
                str(node()),
                "--import",
                "./tests/clients/packages.mjs",
                f"tests/clients/{self.program}",
            ]
        own = self.place == "" or self.place in pins.NPM
        python = sys.executable if own else str(venv_python(self.place))
        return [python, "-W", "ignore", "-m", f"tests.clients.{self.program}"]

    def environment(self) -> dict[str, str]:
        """Return the environment of its program."""
        return {**os.environ, "PACKAGES": str(find.npm_prefix(self.place))}


def pinned(place: str, package: str) -> str:
    """Return name and version of a package in an environment or prefix of `tests.tools`."""
    if place in pins.VENVS:
        lines = pins.VENVS[place].read_text(encoding="utf-8").splitlines()
        return next(line.replace("==", " ") for line in lines if line.startswith(f"{package}=="))
    found = next(one for one in pins.NPM[place] if one.startswith(f"{package}@"))
    return " ".join(found.rsplit("@", 1))


_TS1 = pinned("clients-ts1", "@modelcontextprotocol/sdk")
_EXT = pinned("clients-ext", "@modelcontextprotocol/ext-tasks")
_INSPECTOR = pinned("inspector", "@modelcontextprotocol/inspector")
_FM4 = pinned("fastmcp4", "fastmcp")
_FM4_TASKS = f"{_FM4} with {pinned('fastmcp4', 'fastmcp-tasks')}"
_MCP2 = f"mcp {version('mcp')}"
_B = ("plain", *TASKS, "plain_input", "list", "progress")
_PLAIN = (*PLAIN, "plain_only", "progress", "sample", "subscribe")

CLIENTS: dict[str, Client] = {
    "py1": Client(pinned("mcp1", "mcp"), "B", "py1", "mcp1", "", _B),
    "ts1": Client(_TS1, "B", "ts1.mjs", "clients-ts1", "", _B),
    "fm3": Client(pinned("fastmcp3", "fastmcp"), "B", "fastmcp_b", "fastmcp3", "", _B),
    "fm2": Client(pinned("fastmcp2", "fastmcp"), "B", "fastmcp_b", "fastmcp2", "", _B),
    "ext-b": Client(
        f"{_EXT}, `legacy`", "B", "ext.mjs", "clients-ext", "legacy", (*PLAIN, *TASKS[2:], "list")
    ),
    "inspector-b": Client(
        f"{_INSPECTOR}, `legacy`",
        "B",
        "inspector",
        "inspector",
        "legacy",
        (*PLAIN, "task", "input", "list"),
    ),
    "fm4": Client(_FM4_TASKS, "C", "fastmcp_c", "fastmcp4", "", (*PLAIN, "plain_only", *TASKS[2:])),
    "ext-c": Client(
        f"{_EXT}, `auto`", "C", "ext.mjs", "clients-ext", "auto", (*PLAIN, "plain_only", *TASKS[2:])
    ),
    "inspector-c": Client(
        f"{_INSPECTOR}, `auto`",
        "C",
        "inspector",
        "inspector",
        "auto",
        (*PLAIN, "plain_only", "task", "input"),
    ),
    "fm4-bare": Client(_FM4, "none", "fastmcp_c", "fastmcp4", "bare", (*PLAIN, "plain_only", "progress")),
    "mcp2-auto": Client(f"{_MCP2}, `auto`", "none", "mcp2", "", "auto", _PLAIN),
    "mcp2-legacy": Client(f"{_MCP2}, `legacy`", "none", "mcp2", "", "legacy", _PLAIN),
    "mcp2-pinned": Client(f"{_MCP2}, `2026-07-28`", "none", "mcp2", "", "2026-07-28", _PLAIN),
}


def run(client: Client, plan: list[dict[str, Any]]) -> dict[str, Account]:
    """Run a client's program and return its accounts; raise `AssertionError` where it gives none."""
    options = [client.option] if client.option else []
    command = [*client.command(), plan[0]["url"], json.dumps(plan), *options]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=client.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"no end in {LIMIT} s: {command}") from late
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise AssertionError(f"{command} ended {done.returncode}:\n{done.stderr[-3000:]}")
    return cast("dict[str, Account]", json.loads(lines[-1]))
