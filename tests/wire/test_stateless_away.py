"""The stateless era while Redis is away or has lost its memory, and when a replica dies (I9; section 5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.balancers import CHOICE
from tests.redis_servers import RedisServer
from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import NOT_FOUND, Eras, configuration, deployed, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Reply, Stateless
from tests.wire.stateless_rules import INVALID_PARAMS, PAUSE, accept, retry

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
AWAY = -32603


@pytest_asyncio.fixture(loop_scope="session")
async def shaky(
    era_upstream: EraUpstream, own_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve with that Redis."""
    config = configuration(era_upstream, own_redis.url)
    config["store"]["timeout"] = "200ms"
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("shaky")) as eras:
        yield eras


async def back(caller: Stateless) -> None:
    """Wait until the gateway, and each replica behind its port, can read and write its store again."""
    async with asyncio.timeout(10):
        good = 0
        while good < CHOICE.doors:
            reply = await caller.ask("tools/call", tool(new_key(), "must"))
            made = reply.response.get("result", {}).get("resultType") == "task"
            good = good + 1 if made else 0
            await (caller.cancel(reply.task_id) if made else asyncio.sleep(PAUSE))
        good = 0
        while good < CHOICE.doors:
            good = good + 1 if (await caller.get("nothing")).refusal == NOT_FOUND else 0
            await asyncio.sleep(0 if good else PAUSE)


async def plain(eras: Eras, caller: Stateless, name: str = "plain") -> Reply:
    """Call a tool that ends when it was called."""
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, name))) as asking:
        (await eras.upstream.called(key)).finish(text("as ever"))
        reply = await asking
    assert len(eras.upstream.calls[key]) == 1
    return reply


async def held(eras: Eras, caller: Stateless) -> tuple[Json, Call, Json]:
    """Begin a call that waits for input; return its params, the upstream's side, and what it asks for."""
    params = tool(new_key(), "plain")
    async with meanwhile(caller.ask("tools/call", params)) as asking:
        call = await eras.upstream.called(params["arguments"]["key"])
        call.ask()
        return params, call, (await asking).result


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_I9_plain_traffic_and_running_tasks_outlive_redis(
    shaky: Eras, own_redis: RedisServer
) -> None:
    async with shaky.client() as caller, caller.listen({"toolsListChanged": True}) as changes:
        key = new_key()
        made = await caller.ask("tools/call", tool(key, "work"))
        call = await shaky.upstream.called(key)
        own_redis.hang()
        assert (await caller.discover())["capabilities"]["extensions"]
        assert (await caller.ask("tools/list")).result["tools"]
        assert (await plain(shaky, caller)).text == "as ever"
        # What may be a task, but need not, is answered as an ordinary call.
        assert (await plain(shaky, caller, "work")).text == "as ever"
        assert (await plain(shaky, caller, "patient")).text == "as ever"
        status, code, words = (await caller.get(made.task_id)).refusal
        assert (status, code) == (200, AWAY)
        assert "store" in words
        shaky.upstream.beside(call.session, "notifications/tools/list_changed")
        assert await changes.next()
        call.finish(text("meanwhile"))
        own_redis.wake()
        await back(caller)
        task = await caller.reach(made.task_id, "completed")
        assert task["result"]["content"] == text("meanwhile")["content"]
        assert not call.is_cancelled


async def test_I9_a_call_that_must_be_a_task_fails_at_once_and_does_not_run(
    shaky: Eras, own_redis: RedisServer
) -> None:
    async with shaky.client() as caller:
        assert (await plain(shaky, caller)).text == "as ever"
        own_redis.hang()
        key = new_key()
        status, code, words = (await caller.ask("tools/call", tool(key, "must"))).refusal
        assert (status, code) == (200, AWAY)
        assert "store" in words
        about: dict[str, Json] = {"tasks/cancel": {}, "tasks/update": {"inputResponses": {}}}
        for method, more in about.items():
            reply = await caller.ask(method, {"taskId": "x", **more})
            assert reply.refusal[:2] == (200, AWAY)
        wanted: Json = {"notifications": {"taskIds": ["x"]}}
        assert (await caller.ask("subscriptions/listen", wanted)).refusal[:2] == (200, AWAY)
        assert key not in shaky.upstream.calls
        own_redis.wake()
        await back(caller)
        made = await caller.ask("tools/call", tool(key, "must"))
        (await shaky.upstream.called(key)).finish()
        await caller.reach(made.task_id, "completed")


async def test_I9_a_call_that_would_have_become_a_task_goes_on_as_it_is(
    shaky: Eras, own_redis: RedisServer
) -> None:
    async with shaky.client() as caller:
        assert (await plain(shaky, caller)).text == "as ever"
        own_redis.hang()
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "brief"))) as asking:
            call = await shaky.upstream.called(key)
            # Longer than the call may stay inline, and than the store may take to answer.
            done, _ = await asyncio.wait([asking], timeout=0.5)
            assert not done
            call.finish(text("inline after all"))
            assert (await asking).text == "inline after all"
        assert len(shaky.upstream.calls[key]) == 1
        own_redis.wake()


async def test_a_question_that_cannot_be_kept_is_told_and_ends_the_call(
    shaky: Eras, own_redis: RedisServer
) -> None:
    async with shaky.client() as caller:
        assert (await plain(shaky, caller)).text == "as ever"
        own_redis.hang()
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
            call = await shaky.upstream.called(key)
            call.ask()
            status, code, words = (await asking).refusal
        assert (status, code) == (200, AWAY)
        assert "store" in words
        await call.cancelled()
        own_redis.wake()


async def test_a_retry_waits_for_the_store_to_be_back(shaky: Eras, own_redis: RedisServer) -> None:
    async with shaky.client() as caller:
        params, call, asked = await held(shaky, caller)
        answered = {**params, **retry(asked, {"elicitation/create": accept(name="Ada")})}
        own_redis.hang()
        assert (await caller.ask("tools/call", answered)).refusal[:2] == (200, AWAY)
        own_redis.wake()
        await back(caller)
        async with meanwhile(caller.ask("tools/call", answered)) as asking:
            await shaky.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
            call.finish(text("in the end"))
            assert (await asking).text == "in the end"
        assert not call.is_cancelled


async def test_what_redis_forgot_is_not_found_and_stops(shaky: Eras, own_redis: RedisServer) -> None:
    async with shaky.client() as caller:
        key = new_key()
        made = await caller.ask("tools/call", tool(key, "work"))
        task = await shaky.upstream.called(key)
        params, call, asked = await held(shaky, caller)
        own_redis.stop()
        own_redis.start()
        await back(caller)
        assert (await caller.get(made.task_id)).refusal == NOT_FOUND
        answered = {**params, **retry(asked, {"elicitation/create": accept(name="Ada")})}
        assert (await caller.ask("tools/call", answered)).refusal[:2] == (200, INVALID_PARAMS)
        await task.cancelled()
        await call.cancelled()


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_I5_a_replica_that_dies_fails_its_tasks_and_its_held_calls(
    era_upstream: EraUpstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, redis_url, lease="1s")
    place = tmp_path_factory.mktemp("dies")
    async with (
        deployed(era_upstream, config, place, 2) as eras,
        eras.client() as here,
        eras.twin(here) as there,
    ):
        key = new_key()
        made = await here.ask("tools/call", tool(key, "work"))
        await eras.upstream.called(key)
        params, call, asked = await held(eras, here)
        async with there.listen({"taskIds": [made.task_id]}) as changes:
            eras.gateways[0].process.kill()
            change = await changes.next()
            while change is not None and change["params"]["status"] != "failed":
                change = await changes.next()
            assert change is not None
            assert "replica" in change["params"]["statusMessage"]
        answered = {**params, **retry(asked, {"elicitation/create": accept(name="Ada")})}
        reply = await there.ask("tools/call", answered)
        assert reply.refusal[:2] == (200, AWAY)
        assert len(eras.upstream.calls[key]) == 1
        assert len(eras.upstream.calls[params["arguments"]["key"]]) == 1
        assert call.gone
