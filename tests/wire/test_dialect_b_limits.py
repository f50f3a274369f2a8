"""Dialect B: rates and bounds, told within HTTP 200 (2025-11-25 tasks, "Security Considerations"; I10).

Clients of the official Python package end the whole session at any HTTP status but 404.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.wire.scripted_upstream import Upstream, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import INVALID_PARAMS, Json, TasksB, always
from tests.wire.tasks_b_world import Place, configuration, credential, refusal, served, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LIMITS: Final[Json] = {
    "tasks_per_scope": 2,
    "stored_tasks_per_scope": 4,
    "result_bytes": "2KiB",
    "request_bytes": "4KiB",
    "pending_requests": 2,
    "rates": {"create": "7/minute", "get": "39/minute", "result": "3/minute", "list": "3/minute"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["memory", "redis"])
async def tight(
    request: pytest.FixtureRequest, works: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    """Serve with tight limits."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    folder = tmp_path_factory.mktemp("tight")
    async with served(configuration(works, url, limits=LIMITS), folder) as gateways:
        yield Place(works, gateways)


async def ask(client: TasksB, method: str, params: Json) -> Json:
    """Return the response to a request, whose HTTP status must be 200."""
    async with await client.post(client.request(method, params)) as answer:
        assert answer.status == 200
        return await answer.response()


def assert_told_when(answer: Json, limit: str) -> None:
    """The error says which limit it was and when to come back, in seconds."""
    assert limit in answer["error"]["message"]
    assert answer["error"]["data"]["limit"] == limit
    assert 0 < answer["error"]["data"]["retryAfter"] <= 60


@pytest.mark.parametrize(
    ("method", "kind", "times"),
    [
        ("tasks/get", "get", 39),
        ("tasks/cancel", "get", 39),
        ("tasks/result", "result", 3),
        ("tasks/list", "list", 3),
    ],
)
async def test_I10_asking_too_often_is_refused_with_the_time(
    tight: Place, method: str, kind: str, times: int
) -> None:
    params: Json = {} if method == "tasks/list" else {"taskId": "t"}
    async with tight.client(credential()) as client, tight.client(credential()) as free:
        for _ in range(times):
            answer = await ask(client, method, params)
            assert "result" in answer or answer["error"]["code"] == INVALID_PARAMS
        assert_told_when(await ask(client, method, params), f"rates.{kind}")
        assert "result" in await ask(client, "ping", {})
        answer = await ask(free, method, params)
        assert "result" in answer or answer["error"]["code"] == INVALID_PARAMS


async def test_I10_creating_too_often_is_refused_and_runs_nothing(tight: Place) -> None:
    async with tight.client(credential()) as client:
        for _ in range(7):
            answer = await ask(client, "tools/call", {"name": "echo", "arguments": {}, "task": {}})
            assert "result" in answer or "rates" not in answer["error"]["message"]
        key = new_id()
        wish: Json = {"name": "work", "arguments": {"key": key}, "task": {}}
        assert_told_when(await ask(client, "tools/call", wish), "rates.create")
        assert not tight.upstream.calls[key]


async def test_I10_a_requester_has_so_many_running_tasks(tight: Place) -> None:
    async with tight.client(credential()) as client:
        keys = [new_id() for _ in range(3)]
        tasks = [await client.start("work", {"key": key}) for key in keys[:2]]
        wish: Json = {"name": "work", "arguments": {"key": keys[2]}, "task": {}}
        assert_told_when(await ask(client, "tools/call", wish), "tasks_per_scope")
        assert not tight.upstream.calls[keys[2]]
        for key, task in zip(keys, tasks, strict=False):
            (await tight.upstream.called(key)).finish()
            await client.reach(task, "completed")
        third = await client.start("work", {"key": keys[2]})
        (await tight.upstream.called(keys[2])).finish()
        await client.reach(third, "completed")


async def test_I10_a_requester_keeps_so_many_tasks(tight: Place) -> None:
    async with tight.client(credential()) as client:
        for _ in range(4):
            await client.reach(await client.start("echo"), "completed")
        wish: Json = {"name": "echo", "arguments": {}, "task": {}}
        assert_told_when(await ask(client, "tools/call", wish), "stored_tasks_per_scope")


async def test_I10_a_result_that_is_too_large_fails_the_task_in_words(tight: Place) -> None:
    async with tight.client(credential()) as client:
        key = new_id()
        task = await client.start("work", {"key": key})
        (await tight.upstream.called(key)).finish(text("x" * 3000))
        assert "result_bytes" in (await client.reach(task, "failed"))["statusMessage"]
        assert "result_bytes" in refusal(await client.result(task))[1]


async def test_I10_too_many_questions_at_once_are_refused(tight: Place) -> None:
    async with tight.client(credential()) as client:
        key = new_id()
        task = await client.start("work", {"key": key})
        call = await tight.upstream.called(key)
        questions = [call.ask(), call.ask()]
        third = call.ask()
        assert "pending_requests" in json.dumps(await third.answered())
        client.responder = always({"action": "decline"})
        await client.listen()
        for question in questions:
            assert (await question.answered())["result"]["action"] == "decline"
        call.finish(text("done"))
        assert without_meta((await client.result(task))["result"]) == text("done")


async def test_I10_a_body_over_the_limit_is_refused(tight: Place) -> None:
    async with tight.client(credential()) as client:
        wish: Json = {"name": "echo", "arguments": {"x": "y" * 5000}, "task": {}}
        async with await client.post(client.request("tools/call", wish)) as answer:
            assert answer.status == 413
            assert "request_bytes" in await answer.text()
        assert await client.list() == {}
