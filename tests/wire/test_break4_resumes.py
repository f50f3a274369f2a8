"""Streams of calls that are cut, and upstreams that take them up in odd ways (I3, I5, I10)."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.recovery_world import LEASE, Doomed
from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import new_id

pytest_plugins = ["tests.wire.seed_fixtures", "tests.wire.recovery_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("ends the gateways that it speaks to"),
]


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


async def test_I10_an_event_id_that_fits_into_no_header_is_kept_nowhere(doomed: Doomed) -> None:
    async with doomed.client("Bearer long id") as seed:
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        call.numbered_log(f"{task}.{'x' * 100_000}", "one")
        await stream.notification("notifications/message")
        assert not await doomed.holds(b"x" * 1000)
        call.cut()
        got = await seed.reach(task, "failed")
        assert "lost" in got["error"].lower()
        assert not call.resumed


async def test_I10_an_upstream_that_wants_to_be_asked_at_once_for_ever_is_not(doomed: Doomed) -> None:
    async with doomed.client("Bearer eager") as seed:
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        for number in range(500):
            call.raw(f"retry: 0\nid: {task}.{number}\ndata:\n\n".encode())
            call.end()
        await asyncio.sleep(1)
        assert 0 < len(call.resumed) < 30
        await seed.delete(task)
