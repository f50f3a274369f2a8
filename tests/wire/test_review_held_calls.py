"""Calls of the stateless era that wait for their client: who leaves at any moment, and who comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from tests.redis_servers import RedisServer
from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import Eras, configuration, deployed, left_in, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import accept, retry

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def slow(
    era_upstream: EraUpstream, own_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve with that Redis, for whose answers the gateway waits long."""
    config = configuration(era_upstream, own_redis.url)
    config["store"]["timeout"] = "1s"
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("slow")) as eras:
        yield eras


async def chatter(call: Call) -> None:
    """Report progress all the time, so that the upstream is never quiet."""
    with suppress(KeyError):
        token = call.meta["progressToken"]
        for number in range(1000):
            call.tell("notifications/progress", {"progressToken": token, "progress": number})
            await asyncio.sleep(0.01)


async def test_I11_a_client_that_leaves_right_after_a_question_gives_the_call_up(
    era_alone: Eras,
) -> None:
    async with era_alone.client() as caller:
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "plain"))):
            call = await era_alone.upstream.called(key)
            call.ask()
            async with meanwhile(chatter(call)):
                await asyncio.sleep(0.2)
        assert (await call.cancelled())["params"]["reason"]


async def test_I11_a_client_that_leaves_while_its_call_cannot_be_kept_gives_it_up(
    slow: Eras, own_redis: RedisServer
) -> None:
    async with slow.client() as caller:
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "plain"))):
            call = await slow.upstream.called(key)
            own_redis.hang()
            call.ask()
            await asyncio.sleep(0.3)
        assert (await call.cancelled())["params"]["reason"]
        own_redis.wake()


async def test_a_result_that_comes_with_the_question_is_not_lost(era_alone: Eras) -> None:
    async with era_alone.client() as caller:
        params = tool(new_key(), "plain")
        async with meanwhile(caller.ask("tools/call", params)) as asking:
            call = await era_alone.upstream.called(params["arguments"]["key"])
            call.ask("roots/list", {})
            call.finish(text("done at once"))
            reply = await asking
        if reply.result["resultType"] == "input_required":
            answers: Json = {"roots/list": {"roots": []}}
            reply = await caller.ask("tools/call", {**params, **retry(reply.result, answers)})
        assert reply.text == "done at once"


async def test_I3_a_retry_that_declares_more_goes_on_with_its_call_and_begins_no_other(
    eras: Eras, caller: Stateless
) -> None:
    params = tool(new_key(), "work")
    key = params["arguments"]["key"]
    async with meanwhile(caller.ask("tools/call", params, tasks=False)) as asking:
        call = await eras.upstream.called(key)
        question = call.ask()
        reply = await asking
    answers = {"elicitation/create": accept(name="Ada")}
    again = {**params, **retry(reply.result, answers)}
    async with meanwhile(caller.ask("tools/call", again, tasks=True)) as retrying:
        await question.answered()
        call.finish(text("once"))
        assert (await retrying).text == "once"
    assert len(eras.upstream.calls[key]) == 1


async def test_I10_calls_that_are_left_at_any_moment_keep_nothing(
    era_upstream: EraUpstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, redis_url)
    # A client may leave with what it asked for on the wire: such a call waits for its answer.
    config["upstreams"]["main"] |= {"max_sessions": 1, "answer_within": "1s"}
    chance = random.Random(7)
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("left")) as eras:
        async with eras.client() as caller:
            for _ in range(60):
                params = tool(new_key(), chance.choice(["plain", "patient"]))
                async with meanwhile(caller.ask("tools/call", params)) as asking:
                    if chance.random() < 0.7:
                        call = await era_upstream.called(params["arguments"]["key"])
                        await asyncio.sleep(chance.random() * 0.08)
                        call.ask()
                    await asyncio.wait([asking], timeout=chance.random() * 0.12)
                if asking.done() and not asking.cancelled() and "result" in asking.result().response:
                    answer = retry(asking.result().result, {"elicitation/create": accept(name="Ada")})
                    async with meanwhile(caller.ask("tools/call", {**params, **answer})) as retrying:
                        await asyncio.wait([retrying], timeout=chance.random() * 0.1)
        # One session alone may be open: it makes room only where nobody uses it.
        async with eras.client() as other, asyncio.timeout(20):
            while "error" in (await other.ask("tools/list")).response:  # noqa: ASYNC110 nobody tells of it
                await asyncio.sleep(0.1)
        await asyncio.to_thread(eras.gateways[0].end)
        keys = await left_in(redis_url, config["store"]["prefix"])
        assert not {key for key, ms in keys.items() if ms < 0}


async def test_I5_an_answer_reaches_its_task_though_the_client_that_brought_it_has_left(
    slow: Eras, own_redis: RedisServer
) -> None:
    async with slow.client() as caller:
        key = new_key()
        made = await caller.ask("tools/call", tool(key, "work"))
        call = await slow.upstream.called(key)
        question = call.ask()
        (name,) = (await caller.reach(made.task_id, "input_required"))["inputRequests"]
        inputs = {name: accept(name="Ada")}
        params = {"taskId": made.task_id, "inputResponses": inputs}
        async with meanwhile(caller.ask("tasks/update", params)):
            await asyncio.sleep(0.002)
            own_redis.hang()
            await asyncio.sleep(0.3)
        own_redis.wake()
        # It was taken, or it was not and can be brought again: it is not lost.
        async with asyncio.timeout(10):
            while not question.is_answered:
                found = await caller.get(made.task_id)
                if name in found.response.get("result", {}).get("inputRequests", {}):
                    await caller.ask("tasks/update", params)
                await asyncio.sleep(0.05)
        call.finish()
        await caller.reach(made.task_id, "completed")
