"""Replicas in front of a stdio server whose sessions have a state, and a store that can be cut off."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import uuid
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.gateways import Gateway
from tests.processes import ROOT
from tests.wire.seed_client import PAUSE, WAIT, Seed

Json: TypeAlias = dict[str, Any]
CHILD: Final = [sys.executable, "-m", "tests.wire.far_child"]
LEASE: Final = 2.0


class Far:
    """Some replicas, and the log of what their children carried out."""

    def __init__(self, gateways: list[Gateway], place: Path) -> None:
        self.gateways = gateways
        self.place = place
        self.log = place / "calls.jsonl"
        self._files = itertools.count()

    def client(self, replica: int = 0, authorization: str | None = None) -> Seed:
        """Return a client without a session."""
        return Seed(self.gateways[replica].url("main"), authorization)

    def at(self, seed: Seed, replica: int) -> Seed:
        """Return a client with the same session at another replica."""
        other = seed.twin(self.gateways[replica].url("main"))
        # Two requests of one session must not have one id.
        other.idents = seed.idents
        return other

    def file(self) -> Path:
        """Return the name of a file that is not there."""
        return self.place / f"go-{next(self._files)}"

    def calls(self, **wanted: Any) -> list[Json]:
        """Return the calls that children carried out and that have these members."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        notes = [json.loads(line) for line in lines]
        return [note for note in notes if wanted.items() <= note.items()]

    async def until(self, **wanted: Any) -> Json:
        """Wait until a child has carried out such a call."""
        async with asyncio.timeout(WAIT):
            while not (found := self.calls(**wanted)):  # noqa: ASYNC110 another process is watched
                await asyncio.sleep(PAUSE)
        return found[0]

    async def ended(self, pid: int) -> None:
        """Wait until a child is gone."""
        async with asyncio.timeout(WAIT):
            while alive(pid):  # noqa: ASYNC110 another process is watched
                await asyncio.sleep(PAUSE)

    async def stop(self) -> None:
        """End all replicas."""
        ends = (asyncio.to_thread(gateway.end) for gateway in self.gateways)
        faults = await asyncio.gather(*ends, return_exceptions=True)
        # One that ended badly must not keep the others running.
        for fault in faults:
            if fault is not None:
                raise fault


def alive(pid: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def far(
    place: Path, store: str | list[str], *, replicas: int = 2, url: str | None = None, **more: Any
) -> Far:
    """Start replicas with short leases; each may have its own way to the one store."""
    prefix = f"{uuid.uuid4().hex}:"
    log = place / "calls.jsonl"
    upstream: Json = {"command": [*CHILD, str(log)]} if url is None else {"url": url, "transport": "sse"}
    upstream["tasks"] = {"keep_alive": {"default": "30s"}, "timeout": "1m"}
    config: Json = {
        "secret": "a secret that all replicas know",
        "upstreams": {"main": {**upstream, **more.pop("upstream", {})}},
        "lease": f"{LEASE:g}s",
        "drain": "1s",
        **more,
    }
    if url is None:
        # The child is found as a module of the project.
        config["upstreams"]["main"]["cwd"] = str(ROOT)
    stores = [store] * replicas if isinstance(store, str) else store
    gateways = [Gateway({**config, "store": {"url": url, "prefix": prefix}}, place) for url in stores]
    await asyncio.gather(*(asyncio.to_thread(gateway.wait) for gateway in gateways))
    return Far(gateways, place)


async def tool(seed: Seed, name: str, **arguments: Any) -> Json:
    """Call a tool and return what it says, or the whole answer where that is an error."""
    answer = await seed.ask("tools/call", {"name": name, "arguments": arguments})
    return answer["result"]["structuredContent"] if "result" in answer else answer
