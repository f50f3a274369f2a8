"""Dialect C: rates and bounds, each with the code of its era (I10)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import Eras, configuration, deployed, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LIMITS: Json = {
    "tasks_per_scope": 2,
    "anonymous_tasks": 3,
    "result_bytes": "2KiB",
    "request_bytes": "8KiB",
    "pending_requests": 2,
    "rates": {"create": "9/minute", "get": "20/minute"},
}


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["memory", "redis"])
async def tight(
    request: pytest.FixtureRequest, era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve with tight limits."""
    url = "memory://" if request.param == "memory" else str(request.getfixturevalue("redis_url"))
    config = configuration(era_upstream, url, limits=LIMITS)
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("tight")) as eras:
        yield eras


@pytest_asyncio.fixture(loop_scope="session")
async def cramped(tight: Eras) -> AsyncIterator[Stateless]:
    """Return a client with a scope of its own."""
    async with tight.client() as made:
        yield made


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_I10_asking_too_often_is_answered_429_with_the_time(
    tight: Eras, cramped: Stateless, method: str
) -> None:
    params: Json = {"taskId": "x"} | ({"inputResponses": {}} if method == "tasks/update" else {})
    for _ in range(20):
        assert (await cramped.ask(method, params)).refusal[0] == 200
    reply = await cramped.ask(method, params)
    assert reply.refusal[:2] == (429, -32603)
    assert 0 < int(reply.headers["retry-after"]) <= 60
    assert "imit" in reply.refusal[2]
    assert reply.response["error"]["data"]["limit"] == "rates.get"
    async with tight.client() as other:
        assert (await other.ask(method, params)).refusal[0] == 200


async def test_I10_more_tasks_than_a_scope_may_have(tight: Eras, cramped: Stateless) -> None:
    keys = [new_key(), new_key()]
    for key in keys:
        await cramped.ask("tools/call", tool(key, "must"))
    late = new_key()
    reply = await cramped.ask("tools/call", tool(late, "must"))
    assert reply.refusal[:2] == (429, -32603)
    assert reply.response["error"]["data"]["limit"] == "tasks_per_scope"
    assert late not in tight.upstream.calls
    # What need not be a task is answered all the same.
    async with meanwhile(cramped.ask("tools/call", tool(late, "work"))) as asking:
        (await tight.upstream.called(late)).finish(text("inline"))
        assert (await asking).text == "inline"
    for key in keys:
        (await tight.upstream.called(key)).finish()


async def test_I10_more_tasks_of_nobody_than_an_upstream_may_have(tight: Eras) -> None:
    async with tight.client(None) as nobody:
        keys = [new_key() for _ in range(3)]
        made = [await nobody.ask("tools/call", tool(key, "must")) for key in keys]
        reply = await nobody.ask("tools/call", tool(new_key(), "must"))
        assert reply.refusal[:2] == (429, -32603)
        assert made[0].task_id
        async with tight.client() as somebody:
            key = new_key()
            await somebody.ask("tools/call", tool(key, "must"))
            (await tight.upstream.called(key)).finish()
        for key in keys:
            (await tight.upstream.called(key)).finish()


async def test_I10_creating_too_often_is_refused_or_inline(tight: Eras, cramped: Stateless) -> None:
    for _ in range(9):
        key = new_key()
        reply = await cramped.ask("tools/call", tool(key, "must"))
        (await tight.upstream.called(key)).finish()
        async with cramped.listen({"taskIds": [reply.task_id]}) as changes:
            while (change := await changes.next()) and change["params"]["status"] != "completed":
                pass
    late = new_key()
    reply = await cramped.ask("tools/call", tool(late, "must"))
    assert reply.refusal[:2] == (429, -32603)
    assert int(reply.headers["retry-after"]) > 0
    assert late not in tight.upstream.calls


async def test_I10_a_result_that_is_too_large_fails_the_task(tight: Eras, cramped: Stateless) -> None:
    key = new_key()
    made = await cramped.ask("tools/call", tool(key, "work"))
    (await tight.upstream.called(key)).finish(text("x" * 4096))
    task = await cramped.reach(made.task_id, "failed")
    assert "result_bytes" in task["error"]["message"]


async def test_I10_a_body_that_is_too_large_is_413(tight: Eras, cramped: Stateless) -> None:
    key = new_key()
    message = cramped.request("tools/call", tool(key, "work", more="x" * 10_000))
    async with await cramped.send(json.dumps(message).encode(), cramped.fields(message)) as answer:
        assert answer.status == 413
        assert json.loads(await answer.text())["error"]["data"]["limit"] == "request_bytes"
    assert key not in tight.upstream.calls


async def test_I10_more_questions_than_a_task_may_have_are_refused_to_the_upstream(
    tight: Eras, cramped: Stateless
) -> None:
    key = new_key()
    made = await cramped.ask("tools/call", tool(key, "work"))
    call = await tight.upstream.called(key)
    questions = [call.ask() for _ in range(3)]
    assert "pending_requests" in (await questions[2].answered())["error"]["message"]
    assert len((await cramped.reach(made.task_id, "input_required"))["inputRequests"]) == 2
    await cramped.cancel(made.task_id)


async def test_I10_more_held_calls_than_a_scope_may_have(tight: Eras, cramped: Stateless) -> None:
    calls: list[Call] = []
    for number in range(3):
        key = new_key()
        async with meanwhile(cramped.ask("tools/call", tool(key, "plain"))) as asking:
            calls.append(await tight.upstream.called(key))
            calls[-1].ask()
            reply = await asking
        if number < 2:
            assert reply.result["resultType"] == "input_required"
        else:
            assert reply.refusal[:2] == (429, -32603)
            await calls[-1].cancelled()
    # Calls that ask nothing are not held, and not counted.
    key = new_key()
    async with meanwhile(cramped.ask("tools/call", tool(key, "plain"))) as asking:
        (await tight.upstream.called(key)).finish(text("plain"))
        assert (await asking).text == "plain"
    for call in calls[:2]:
        call.finish()
