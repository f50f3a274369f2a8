"""SIGHUP when nobody expects it: at the start, and while calls wait for their turns (issue 4, reload)."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.gateways import Gateway
from tests.wire.recovery_world import Doomed
from tests.wire.scripted_upstream import Upstream, tool
from tests.wire.seed_client import new_id

pytest_plugins = ["tests.wire.seed_fixtures"]


def test_a_reload_that_is_asked_for_while_the_store_is_awaited_kills_nobody(tmp_path: Path) -> None:
    """Without a secret of its own a replica waits for the store that has it."""
    config: dict[str, Any] = {
        "store": {"url": f"unix://{tmp_path}/nobody-there"},
        "upstreams": {"gone": {"url": "http://127.0.0.1:9/mcp"}},
    }
    gateway = Gateway(config, tmp_path)
    try:
        gateway.process.wait_line("waiting for the store, which has the secret")
        gateway.process.send(signal.SIGHUP)
        gateway.process.send(signal.SIGTERM)
        assert gateway.process.wait_end() == 0
    finally:
        gateway.end()


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.one_replica("says which replica reads its configuration anew")
async def test_those_who_wait_for_their_turn_hear_of_another_bound(
    scripted: Upstream, redis_url: str, tmp_path: Path
) -> None:
    world = Doomed(scripted, redis_url, tmp_path)
    gateway = await world.start()
    config = json.loads(gateway.file.read_text())
    rules = config["upstreams"]["main"]["tasks"]["tools"]
    try:
        async with world.client("Bearer bounds") as seed:
            tasks = [new_id() for _ in range(4)]
            for task in tasks:
                await seed.begin(task, tool(task, "one_by_one"))
            await scripted.called(tasks[0])
            for rule, called in (({"max_concurrent": 2}, 2), ({}, 4)):
                rules["one_by_one"] = rule
                gateway.file.write_text(json.dumps(config))
                gateway.process.send(signal.SIGHUP)
                for task in tasks[:called]:
                    await scripted.called(task)
                assert [len(scripted.calls[task]) for task in tasks[called:]] == [0] * (4 - called)
            for task in tasks:
                scripted.calls[task][0].finish()
            await asyncio.gather(*(seed.reach(task, "completed") for task in tasks))
    finally:
        await world.end()
