"""Who is measured: the direct connection, the bare proxy, the gateway, FastMCP 4's task server."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.bench.load import Kind
from tests.bench.process import ROOT, Child, Family, free_port, start_module
from tests.bench.wire import Target, WrongAnswer
from tests.tools import find

FASTMCP_PYTHON: Final = find.venv("fastmcp4") / "bin" / "python"
# The quickest loop and parser that uvicorn knows, as the other contenders have them.
SERVER_PARTS: Final = ("uvloop==0.23.0", "httptools==0.9.0")
PIP_OPTIONS: Final = ("--quiet", "--disable-pip-version-check")
# Far above any load, yet not `off`: what the checks cost stays in the measurement.
UNREACHED: Final = "100000000/minute"
CONNECTIONS: Final = 1000  # to the upstream; the default


class Contender(msgspec.Struct):
    """One way to the tools; `children` are the processes under test, the first the one that listens.

    `admin` is the port of its `/readyz`, where it has one.
    """

    name: str
    target: Target
    children: list[Child]
    task_kind: Kind = "task_a"
    call_kind: Kind = "calls"
    admin: int = 0

    def cpu(self) -> float:
        """Return the CPU seconds of the processes under test."""
        return sum(child.cpu() for child in self.children)

    def rss(self) -> int:
        """Return their resident bytes."""
        return sum(child.rss() for child in self.children)

    async def close(self) -> None:
        """End the processes under test."""
        for child in self.children:
            await child.close()


def in_dialects(gateway: Contender) -> list[Contender]:
    """Return the gateway as the clients of each dialect of tasks have it."""
    kinds: dict[str, Kind] = {"gateway A": "task_a", "gateway B": "task_b", "gateway C": "task_c"}
    return [msgspec.structs.replace(gateway, name=name, task_kind=kind) for name, kind in kinds.items()]


def over_the_bridge(gateway: Contender) -> list[Contender]:
    """Return the gateway as clients of the upstream's era and of the stateless era have it.

    Those of the last kind can be asked, so that the upstream's own stream must be heard for them.
    """
    kinds: dict[str, Kind] = {"unbridged": "calls", "bridged": "bridged", "bridged, askable": "askable"}
    return [msgspec.structs.replace(gateway, name=name, call_kind=kind) for name, kind in kinds.items()]


class Unavailable(Exception):
    """A contender cannot be started here; the message says why."""


async def start_bare(upstream: Target, loop: str) -> Contender:
    """Start the bare proxy on `asyncio` or `uvloop`."""
    port = free_port()
    child = await start_module("bare_proxy", str(port), f"http://127.0.0.1:{upstream.port}", loop)
    return Contender(f"bare-{loop}", Target(port, upstream.path), [child])


def gateway_config(
    port: int, admin: int, upstream: Target, store: str, connections: int = CONNECTIONS
) -> dict[str, Any]:
    """Return the gateway's configuration: the defaults, with limits that the load does not reach."""
    rates = dict.fromkeys(("create", "get", "result", "list"), UNREACHED)
    return {
        "listen": {"host": "127.0.0.1", "port": port},
        "admin": {"host": "127.0.0.1", "port": admin},
        "store": {"url": store},
        "upstreams": {
            "bench": {
                "url": f"http://127.0.0.1:{upstream.port}{upstream.path}",
                "max_connections": connections,
                # Clients of dialect C get a task for each call, as from FastMCP. Calls that are held
                # leave some of the connections to the upstream (1000) to other calls.
                "tasks": {
                    "inline_within": "0s",
                    "keep_alive": {"default": "1m"},
                    "tools": {"held": {"max_concurrent": 900}},
                },
            }
        },
        "limits": {
            "tasks_per_scope": 100_000,
            "stored_tasks_per_scope": 1_000_000,
            "anonymous_tasks": 100_000,
            "rates": rates,
        },
    }


async def start_gateway(
    upstream: Target, store: str, workers: int = 1, connections: int = CONNECTIONS
) -> Contender:
    """Start the gateway of so many processes; raise `Unavailable` where it does not get ready."""
    port, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        config = Path(folder) / "gateway.yaml"
        # JSON is YAML too.
        config.write_bytes(msgspec.json.encode(gateway_config(port, admin, upstream, store, connections)))
        command = [sys.executable, "-m", "gateway", "serve", "-c", str(config), "--workers", str(workers)]
        child = await (Child if workers == 1 else Family).start("gateway", command)
        await _ready(child, f"http://127.0.0.1:{admin}/readyz")
    return Contender("gateway", Target(port, "/bench/mcp"), [child], admin=admin)


async def start_fastmcp4(redis_url: str, concurrency: int = 32, check_ms: int = 5) -> Contender:
    """Start FastMCP 4's task server with its worker; raise `Unavailable` where it does not get ready.

    The worker's settings are the quickest we found: by default (10, 50 ms) it makes fewer tasks/s, and
    at 64 it runs out of Redis connections and loses tasks.
    """
    if not FASTMCP_PYTHON.exists():
        raise Unavailable("not installed")
    port = free_port()
    words = [str(port), redis_url, str(concurrency), str(check_ms)]
    child = await Child.start(
        "fastmcp4", [str(FASTMCP_PYTHON), "-m", "tests.bench.fastmcp4_server", *words]
    )
    await _ready(child, f"http://127.0.0.1:{port}/mcp")
    return Contender("fastmcp4", Target(port, "/mcp"), [child], "task_c")


async def install_fastmcp4() -> None:
    """Install FastMCP 4 in its virtual environment; raise `Unavailable` where that cannot be done."""
    await _run(sys.executable, "-m", "tests.tools.install", "fastmcp4")
    await _run(str(FASTMCP_PYTHON), "-m", "pip", "install", *PIP_OPTIONS, *SERVER_PARTS)


async def _run(*command: str) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
    _, words = await process.communicate()
    if process.returncode != 0:
        raise Unavailable(words.decode(errors="replace").strip().rpartition("\n")[2])


async def _ready(child: Child, url: str) -> None:
    try:
        await child.wait_url(url)
    except WrongAnswer as wrong:
        await child.close()
        raise Unavailable(str(wrong)) from wrong
    except BaseException:
        await child.close()
        raise
