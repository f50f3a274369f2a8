"""Which servers the real clients are tried against, and which of their tools serve which scene."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tests import upstreams
from tests.processes import Process, free_port, wait_port
from tests.tools import venv_python
from tests.upstreams import Running
from tests.wire.clients_tried import Client, pinned


class Tool(NamedTuple):
    """A tool, its arguments and a part of what it says."""

    name: str
    arguments: dict[str, Any]
    words: str


_COUNT = Tool("slow_count", {"seconds": 0.6}, "Counted for 0.6 seconds.")
_ASK = Tool("ask_name", {}, "Hello, Ada!")
_COMMON = {
    "plain": _COUNT,
    "task": _COUNT,
    "list": _COUNT,
    "progress": _COUNT,
    "fail": Tool("fail", {}, "This tool always fails."),
    "rpc_error": Tool("protocol_error", {}, "protocol error"),
    "cancel": Tool("never", {}, ""),
    "input": _ASK,
    "plain_input": _ASK,
}
_DEMO = {**_COMMON, "sample": Tool("summarise", {"text": "much"}, "In short: good.")}
_FIXTURE = {**_DEMO, "subscribe": Tool("add_tool", {"name": "late"}, "Added late")}
_RUN = Tool(
    "trigger-long-running-operation", {"duration": 0.6, "steps": 3}, "Long running operation completed."
)
_FORM = Tool("trigger-elicitation-request", {}, "Name: Ada")
# A tool that its server runs as a task alone is called plainly too; errors are lost there, see below.
_OWN = {
    **{scene: tool for scene, tool in _COMMON.items() if scene != "rpc_error"},
    "plain_only": Tool("only_as_task", {}, "Done as a task."),
}
_EVERYTHING = {
    "plain": Tool("echo", {"message": "hi"}, "Echo: hi"),
    "task": _RUN,
    "list": _RUN,
    "progress": _RUN,
    "fail": Tool("echo", {}, "Invalid arguments for tool echo"),
    "cancel": Tool("trigger-long-running-operation", {"duration": 60, "steps": 60}, ""),
    "input": _FORM,
    "plain_input": _FORM,
    "sample": Tool("trigger-sampling-request", {"prompt": "much"}, "In short: good."),
    "plain_only": Tool("simulate-research-query", {"topic": "x"}, "Research Report"),
}

TITLES = {
    "everything": pinned("servers", "@modelcontextprotocol/server-everything").partition("/")[2],
    "mcp1": f"{pinned('mcp1', 'mcp')} server",
    "mcp1-tasks": f"{pinned('mcp1', 'mcp')} task server",
    "mcp2": f"mcp {version('mcp')} server",
    "fastmcp4": f"{pinned('fastmcp4', 'fastmcp')} task server",
    "demo": "demo upstream",
}
TOOLS: Mapping[str, Mapping[str, Tool]] = {
    "everything": _EVERYTHING,
    "mcp1": _FIXTURE,
    "mcp1-tasks": _OWN,
    "mcp2": _FIXTURE,
    "fastmcp4": _COMMON,
    "demo": _DEMO,
}


# The task server of `mcp` 1.x asks on `tasks/result` alone, leaves out a `ttl` that nobody asked for and
# keeps no result of a task that failed: these clients do not get on with it without a gateway either,
# which passes tasks of their dialect through.
NEVER_TRIED = {
    ("fm3", "mcp1-tasks"),
    ("fm2", "mcp1-tasks"),
    ("ext-b", "mcp1-tasks"),
    ("inspector-b", "mcp1-tasks"),
}


class Servers:
    """The servers, started together and ended together."""

    def __init__(self, place: Path) -> None:
        self._started: list[Process] = []
        self.configs: dict[str, dict[str, Any]] = {
            "demo": {"command": [sys.executable, "-m", "gateway.demo"], "era": "handshake"}
        }
        try:
            self._keep("everything", upstreams.start_everything("streamableHttp"))
            for name in ("mcp1", "mcp2"):
                self._keep(name, upstreams.start_fixture(name, "http", log=place / f"{name}.jsonl"))
            self._keep("mcp1-tasks", _start_own("mcp1", "native_b_server", "http"))
            self._keep("fastmcp4", _start_own("fastmcp4", "native_c_server"))
        except BaseException:
            self.end()
            raise

    def _keep(self, name: str, server: Running) -> None:
        self._started.append(server.process)
        self.configs[name] = {"url": server.url}

    def end(self) -> None:
        """End them all."""
        for process in self._started:
            process.stop(2)


def _start_own(environment: str, module: str, *arguments: str) -> Running:
    """Start a server that runs tasks of its own."""
    port = free_port()
    command = [
        str(venv_python(environment)),
        "-m",
        f"tests.fixture_servers.{module}",
        *arguments,
        str(port),
    ]
    process = Process(command)
    wait_port(process, port)
    return Running(process, f"http://127.0.0.1:{port}/mcp")


def shared(name: str) -> str:
    """Return the name of an upstream's twin whose tasks everybody may list, which nobody may elsewhere."""
    return f"{name}-shared"


def config(servers: Servers) -> dict[str, Any]:
    """Return a gateway's configuration for all of them, in which every call of a tool may be a task."""
    tasks = {"inline_within": "0s", "poll_interval": "200ms"}
    plain = {name: {**how, "tasks": tasks} for name, how in servers.configs.items()}
    twins = {shared(name): {**how, "scope": "shared"} for name, how in plain.items()}
    return {"upstreams": {**plain, **twins}}


def plan(client: Client, name: str, upstream: str, url: Any) -> list[dict[str, Any]]:
    """Return what a client plays against an upstream, `url` giving the address of one at the gateway."""
    tools = TOOLS[upstream]
    entries: list[dict[str, Any]] = []
    for scene in (scene for scene in client.scenes if scene in tools):
        tool = tools[scene]
        arguments = {"name": f"late_{name}_{upstream}"} if scene == "subscribe" else tool.arguments
        address = url(shared(upstream) if scene == "list" else upstream)
        entries.append({"scene": scene, "tool": tool.name, "arguments": arguments, "url": address})
    return entries
