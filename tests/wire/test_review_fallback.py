"""A creation whose answer is lost: the store may have the task all the same (I3 against I9)."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.scripts import CREATE
from tests.troubled import Troubled
from tests.wire.raw_upstream import soon
from tests.wire.recovery_world import LEASE, Doomed, command
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, WAIT, new_id, refusal

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("cuts the gateway that it speaks to off from Redis"),
]


async def test_I3_what_another_replica_may_begin_does_not_run_as_an_ordinary_request_too(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = Doomed(scripted, redis_url, tmp_path_factory.mktemp("fallback"))
    prefix = world.config["store"]["prefix"]
    async with Troubled.to(redis_url) as way:
        try:
            await world.start(store={"url": way.url, "prefix": prefix, "timeout": "500ms"})
            await world.start()
            # Nothing is claimed before a whole lease of contact.
            await asyncio.sleep(2 * LEASE)
            first, second = new_id(), new_id()
            async with world.client("Bearer fallback") as seed:
                stream = await seed.begin(first, tool(first, "one_by_one"), ident=1)
                await scripted.called(first)
                await stream.notification(CREATED)

                asked = asyncio.Event()

                def on_its_way(chunk: bytes) -> None:
                    if CREATE.sha in chunk:
                        way.cut_after(0)
                        asked.set()

                way.on_request = on_its_way
                posting = asyncio.ensure_future(seed.begin(second, tool(second, "one_by_one"), ident=2))
                async with asyncio.timeout(WAIT):
                    await asked.wait()
                await soon(lambda: way.reply_bytes_left is None)
                way.shut()
                assert len(await command(redis_url, "KEYS", f"{prefix}*:t:*")) == 2
                other = seed.twin(world.url(1))
                call = await scripted.called(second)
                await other.reach(second, "working", seconds=10 * LEASE)
                call.finish(text("once"))
                assert "store" in refusal(await (await posting).response(2))[1]
                await other.reach(second, "completed")
                assert len(scripted.calls[second]) == 1
        finally:
            way.open_again()
            await world.end()
