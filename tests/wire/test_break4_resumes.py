"""Streams of calls that are cut, and upstreams that take them up in odd ways (I3, I5, I10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.wire.recovery_world import LEASE, Doomed, Survivor, killed, surviving
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, new_id

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("ends the gateways that it speaks to"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def survivor(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Survivor]:
    """Serve by a replica that stays."""
    async with surviving(scripted, redis_url, tmp_path_factory.mktemp("survivor")) as stays:
        yield stays


@pytest_asyncio.fixture(loop_scope="session")
async def doomed(
    scripted: Upstream, redis_url: str, survivor: Survivor, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Doomed]:
    """Serve by a replica that the test may end, beside the one that stays; the lease is a second."""
    world = Doomed(scripted, redis_url, tmp_path_factory.mktemp("doomed"), survivor)
    await world.begin()
    yield world
    await world.end()


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (405, "text/plain", b"no"),
        (404, "application/json", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"gone"}}'),
        (200, "application/json", b"{}"),
        (204, "text/plain", b""),
        (400, "text/plain", b"what?"),
    ],
)
async def test_I5_what_may_be_repeated_is_where_its_cut_stream_cannot_be_taken_up(
    doomed: Doomed, status: int, kind: str, body: bytes
) -> None:
    async with doomed.client(f"Bearer cut {status}") as seed:
        task = new_id()
        await seed.begin(task, tool(task, "repeatable"), ident=1)
        first = await doomed.upstream.called(task)
        first.numbered_log(f"{task}.1", "one")
        first.cut()
        first.reply(status, kind, body)
        second = await doomed.upstream.called(task, 2)
        second.finish(text("second"))
        await seed.reach(task, "completed", seconds=10 * LEASE)


async def test_I10_an_upstream_that_wants_to_be_asked_at_once_for_ever_is_not(doomed: Doomed) -> None:
    async with doomed.client("Bearer eager") as seed:
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        for number in range(5000):
            call.raw(f"retry: 0\nid: {task}.{number}\ndata:\n\n".encode())
            call.end()
        await asyncio.sleep(2)
        print("RESUMED", len(call.resumed))
        assert len(call.resumed) < 60
        call.take_up()
