"""Subscriptions to tasks: many at once, large ones, unknown ones, and without an upstream."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import Eras, configuration, deployed, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LARGE = 700_000
MANY = 12


async def begun(eras: Eras, caller: Stateless) -> tuple[str, Call]:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "work"))
    return reply.task_id, await eras.upstream.called(key)


async def test_I10_results_that_are_larger_than_the_queue_all_come_one_after_another(
    era_alone: Eras,
) -> None:
    async with era_alone.client() as caller:
        found = [await begun(era_alone, caller) for _ in range(MANY)]
        for _, call in found:
            call.finish(text("x" * LARGE))
        for task, _ in found:
            await caller.reach(task, "completed")
        async with caller.listen({"taskIds": [task for task, _ in found]}) as changes:
            await asyncio.sleep(0.3)
            told: set[str] = set()
            while len(told) < MANY:
                message = await changes.next()
                assert message is not None
                assert len(message["params"]["result"]["content"][0]["text"]) == LARGE
                told.add(message["params"]["taskId"])
        assert told == {task for task, _ in found}


async def test_unknown_tasks_are_left_out_and_count_as_one_request(
    era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    limits = {"rates": {"list": "5/minute"}}
    config = configuration(era_upstream, "memory://", limits=limits)
    async with (
        deployed(era_upstream, config, tmp_path_factory.mktemp("rates")) as eras,
        eras.client() as caller,
    ):
        task, call = await begun(eras, caller)
        wanted = [*(new_key() for _ in range(200)), task]
        async with caller.listen({"taskIds": wanted}) as changes:
            assert changes.acknowledged == {"taskIds": [task]}
        call.finish()


async def test_tasks_are_told_of_while_the_upstream_is_away(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    upstream = EraUpstream()
    await upstream.start()
    config = configuration(upstream, "memory://")
    async with deployed(upstream, config, tmp_path_factory.mktemp("away")) as eras, eras.client() as caller:
        task, call = await begun(eras, caller)
        call.finish()
        await caller.reach(task, "completed")
        await upstream.stop()
        # Another set of capabilities, for which no session with the upstream is open.
        caller.capabilities = {"roots": {}}
        async with caller.listen({"taskIds": [task]}) as changes:
            message = await changes.next()
            assert message is not None
            assert message["params"]["status"] == "completed"


@pytest.mark.one_replica("each replica has a limit of its own")
async def test_I10_there_are_no_more_subscriptions_than_there_may_be(
    era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, "memory://", limits={"sessions": 2})
    async with (
        deployed(era_upstream, config, tmp_path_factory.mktemp("few")) as eras,
        eras.client() as caller,
    ):
        wanted: Json = {"notifications": {}}
        async with caller.listen({}), caller.listen({}) as other:
            refused = await caller.ask("subscriptions/listen", wanted)
            assert refused.refusal[:2] == (503, -32603)
            assert "sessions" in refused.refusal[2]
            other.cut()
            async with asyncio.timeout(10):
                while "error" in (await one(caller)):  # noqa: ASYNC110 nobody tells of its end
                    await asyncio.sleep(0.01)


async def one(caller: Stateless) -> Json:
    """Open a subscription and return its first message."""
    answer = await caller.begin("subscriptions/listen", {"notifications": {}})
    try:
        return await answer.next() or {}
    finally:
        answer.cut()
