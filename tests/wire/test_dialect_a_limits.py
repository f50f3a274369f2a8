"""Dialect A: rates and bounds (SEP-1686, sections 8.1 and 8.2; I10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.balancers import serve
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, NOT_FOUND, Json, Seed, new_id, refusal, too_early
from tests.wire.seed_world import House, configuration

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LIMITS: Json = {
    "tasks_per_scope": 2,
    "stored_tasks_per_scope": 4,
    "result_bytes": "2KiB",
    "request_bytes": "4KiB",
    "pending_requests": 2,
    "log_entries": 20,
    "rates": {"create": "7/minute", "get": "39/minute", "result": "3/minute", "list": "3/minute"},
}


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["memory", "redis"])
async def tight(
    request: pytest.FixtureRequest, scripted: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Serve with tight limits."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    gateway = serve(configuration(scripted, url, limits=LIMITS), tmp_path_factory.mktemp("tight"))
    await asyncio.to_thread(gateway.wait)
    yield House(scripted, [gateway], None)
    await asyncio.to_thread(gateway.end)


async def ask(seed: Seed, method: str, params: Json) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and the response to a request."""
    async with await seed.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) as exchange:
        return exchange.status, exchange.headers, await exchange.json()


@pytest.mark.parametrize(
    ("method", "times", "params"),
    [("tasks/get", 39, {"taskId": "t"}), ("tasks/result", 3, {"taskId": "t"}), ("tasks/list", 3, {})],
)
async def test_I10_asking_too_often_is_answered_429_with_the_time(
    tight: House, method: str, times: int, params: Json
) -> None:
    async with tight.client(f"Bearer rate-{method}") as seed, tight.client("Bearer rate-free") as free:
        for _ in range(times):
            assert (await ask(seed, method, params))[0] != 429
        status, headers, answer = await ask(seed, method, params)
        assert status == 429
        assert answer["id"] == 1
        assert answer["error"]["data"]
        assert 0 < int(headers["retry-after"]) <= 60
        assert any(
            0 < value <= 60_000
            for value in answer["error"]["data"].values()
            if isinstance(value, int | float)
        )
        assert "rate" in answer["error"]["message"].lower() or "limit" in answer["error"]["message"].lower()
        assert (await ask(free, "ping", {}))[0] == 200
        assert (await ask(seed, "ping", {}))[0] == 200


async def test_I10_creating_too_often_is_answered_429_and_runs_nothing(tight: House) -> None:
    async with tight.client("Bearer rate-create") as seed:
        for _ in range(7):
            task = new_id()
            stream = await seed.begin(task, {"name": "echo", "arguments": {}}, ident=task)
            await stream.response(task)
            await seed.delete(task)
        task = new_id()
        exchange = await seed.begin(task, tool(task), ident=2)
        assert exchange.status == 429
        assert int(exchange.headers["retry-after"]) > 0
        answer = await exchange.json()
        assert answer["id"] == 2
        assert answer["error"]["data"]
        assert not tight.upstream.calls[task]


async def test_I10_a_scope_has_so_many_running_tasks(tight: House) -> None:
    async with tight.client("Bearer many") as seed:
        tasks = [new_id() for _ in range(2)]
        for task in tasks:
            await (await seed.begin(task, tool(task))).notification(CREATED)
        third = new_id()
        exchange = await seed.begin(third, tool(third), ident=3)
        answer = await exchange.response(3)
        assert "tasks_per_scope" in refusal(answer)[1]
        assert answer["error"]["data"]["limit"] == "tasks_per_scope"
        assert not tight.upstream.calls[third]
        assert refusal(await seed.get(third)) == NOT_FOUND
        for task in tasks:
            (await tight.upstream.called(task)).finish()
            await seed.reach(task, "completed")
        stream = await seed.begin(third, tool(third))
        await stream.notification(CREATED)
        (await tight.upstream.called(third)).finish()
        await seed.reach(third, "completed")


async def test_I10_a_scope_keeps_so_many_tasks(tight: House) -> None:
    async with tight.client("Bearer stored") as seed:
        task = new_id()
        for _ in range(4):
            task = new_id()
            await (await seed.begin(task, {"name": "echo", "arguments": {}}, ident=task)).response(task)
        exchange = await seed.begin("fifth", {"name": "echo", "arguments": {}}, ident=3)
        answer = await exchange.response(3)
        assert "stored_tasks_per_scope" in refusal(answer)[1]
        await seed.delete(task)
        exchange = await seed.begin("fifth", {"name": "echo", "arguments": {}}, ident=3)
        assert "result" in await exchange.response(3)


async def test_I10_a_result_that_is_too_large_fails_the_task_in_words(tight: House) -> None:
    async with tight.client("Bearer large") as seed:
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        (await tight.upstream.called(task)).finish(text("x" * 3000))
        answer = await stream.response(1)
        assert "error" in answer
        got = await seed.reach(task, "failed")
        assert "result_bytes" in got["error"]
        assert refusal(await seed.fetch(task)) == too_early("failed")


async def test_I10_a_result_just_within_the_limit_is_kept(tight: House) -> None:
    async with tight.client("Bearer within") as seed:
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        (await tight.upstream.called(task)).finish(text("x" * 1700))
        await seed.reach(task, "completed")
        assert "result" in await seed.fetch(task)


async def test_I10_too_many_questions_at_once_are_refused(tight: House) -> None:
    async with tight.client("Bearer questions") as seed:
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await tight.upstream.called(task)
        questions = [call.ask(), call.ask()]
        asked = [await stream.asked() for _ in questions]
        third = call.ask()
        assert "pending_requests" in json.dumps(await third.answered())
        for question in asked:
            await seed.answer(question, {"action": "decline"})
        for question in questions:
            await question.answered()
        await seed.reach(task, "working")
        call.finish()
        await stream.response(1)


async def test_I10_a_body_over_the_limit_is_refused_also_in_pieces(tight: House) -> None:
    async with tight.client("Bearer body") as seed:
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 5000}}
        ).encode()
        whole = await seed.send("POST", body)
        assert whole.status == 413
        assert "request_bytes" in refusal(await whole.json())[1]
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        pieces = await seed.send("POST", chunked, {"Transfer-Encoding": "chunked", "Content-Length": None})
        assert pieces.status == 413
        assert "request_bytes" in refusal(await pieces.json())[1]


async def test_I10_a_talkative_task_still_answers(tight: House) -> None:
    async with tight.client("Bearer talk") as seed:
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        await stream.notification(CREATED)
        call = await tight.upstream.called(task)
        stream.cut()
        for number in range(100):
            call.tell("notifications/message", {"level": "info", "data": number})
        call.finish(text("at last"))
        await seed.reach(task, "completed")
        back = await seed.listen(stream.last_id)
        assert (await back.response(1))["result"]["content"] == text("at last")["content"]
        assert len(back.seen) <= 25
