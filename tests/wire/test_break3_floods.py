"""Upstreams that talk without pause."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import Call, tool
from tests.wire.stateless_client import Stateless

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="session")
def eras(era_alone: Eras) -> Eras:
    """Serve on one store: what is tested has nothing to do with it."""
    return era_alone


async def _talk(call: Call) -> None:
    told = {"level": "info", "data": "x" * 100}
    while not call.is_cancelled:
        for _ in range(300):
            call.tell("notifications/message", told)
        await asyncio.sleep(0.001)


async def test_a_call_whose_upstream_never_stops_talking_becomes_a_task_in_time(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    async with (
        meanwhile(caller.ask("tools/call", tool(key, "brief"))) as asking,
        meanwhile(_talk(await eras.upstream.called(key))),
    ):
        task = (await asking).task_id
        await caller.cancel(task)
