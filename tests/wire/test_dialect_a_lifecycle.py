"""Dialect A: a task is made, announced, runs, ends and is fetched (SEP-1686, sections 3 and 4)."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import (
    CREATED,
    INVALID_PARAMS,
    NOT_FOUND,
    RELATED,
    TASK,
    Json,
    Seed,
    new_id,
    refusal,
    related_to,
    too_early,
)
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_task_is_announced_then_works_then_answers_on_its_stream(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    assert stream.status == 200
    first = await stream.next()
    assert first == {"jsonrpc": "2.0", "method": CREATED, "params": {"_meta": {RELATED: {"taskId": task}}}}
    assert (await seed.get(task))["result"]["status"] in ("submitted", "working")
    call = await house.upstream.called(task)
    got = await seed.reach(task, "working")
    assert got == {
        "taskId": task,
        "status": "working",
        "keepAlive": 30_000,
        "pollFrequency": 250,
        "_meta": {RELATED: {"taskId": task}},
    }
    call.finish(text("72 F"))
    answer = await stream.response(1)
    assert answer["result"] == {**text("72 F"), "_meta": {RELATED: {"taskId": task}}}
    assert await stream.next() is None
    assert (await seed.reach(task, "completed"))["keepAlive"] == 30_000
    for _ in range(3):
        assert (await seed.fetch(task))["result"] == answer["result"]


async def test_I2_the_announced_task_is_found_on_every_replica_at_once(pair: House) -> None:
    async with pair.client("Bearer announced") as seed:
        other = seed.twin(pair.url(replica=1))
        for _ in range(20):
            task = new_id()
            stream = await seed.begin(task, tool(task))
            assert (await stream.next() or {}).get("method") == CREATED
            assert (await other.get(task))["result"]["taskId"] == task
            stream.cut()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_version_of_the_handshake_era_may_use_tasks(house: House, version: str) -> None:
    seed = Seed(house.url(), "Bearer versions", version)
    async with seed:
        assert seed.version == version
        assert "tasks" in seed.welcome["capabilities"]
        task = new_id()
        stream = await seed.begin(task, tool(task))
        await stream.notification(CREATED)
        (await house.upstream.called(task)).finish()
        await seed.reach(task, "completed")


async def test_a_call_that_waits_for_its_turn_is_submitted(house: House, seed: Seed) -> None:
    first, second = new_id(), new_id()
    await seed.begin(first, tool(first, "one_by_one"))
    running = await house.upstream.called(first)
    waiting = await seed.begin(second, tool(second, "one_by_one"), ident="second")
    await waiting.notification(CREATED)
    await seed.reach(first, "working")
    assert (await seed.get(second))["result"]["status"] == "submitted"
    assert refusal(await seed.fetch(second)) == too_early("submitted")
    assert not house.upstream.calls[second]
    running.finish()
    call = await house.upstream.called(second)
    await seed.reach(second, "working")
    call.finish()
    await waiting.response("second")
    await seed.reach(second, "completed")


async def test_a_call_that_waits_can_be_cancelled_and_never_runs(house: House, seed: Seed) -> None:
    first, second, third = new_id(), new_id(), new_id()
    await seed.begin(first, tool(first, "one_by_one"))
    running = await house.upstream.called(first)
    await (await seed.begin(second, tool(second, "one_by_one"), ident="waits")).notification(CREATED)
    await seed.cancel("waits")
    await seed.reach(second, "cancelled")
    await (await seed.begin(third, tool(third, "one_by_one"))).notification(CREATED)
    running.finish()
    (await house.upstream.called(third)).finish()
    await seed.reach(third, "completed")
    assert not house.upstream.calls[second]


@pytest.mark.parametrize(
    ("name", "asked", "granted"),
    [
        ("work", {"keepAlive": 60_000}, 60_000),
        ("work", {"keepAlive": 999_999_999}, 120_000),
        ("work", {"keepAlive": 120_001}, 120_000),
        ("work", {}, 30_000),
        ("work", {"keepAlive": None}, 120_000),
        ("endless", {"keepAlive": None}, None),
        ("endless", {"keepAlive": 999_999_999}, 999_999_999),
    ],
)
async def test_the_retention_is_granted_or_capped_and_told(
    house: House, seed: Seed, name: str, asked: Json, granted: int | None
) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task, name), task=asked)
    await stream.notification(CREATED)
    got = (await seed.get(task))["result"]
    assert "keepAlive" in got
    assert got["keepAlive"] == granted
    assert (await seed.tasks())[task]["keepAlive"] == granted
    (await house.upstream.called(task)).finish()
    assert (await seed.reach(task, "completed"))["keepAlive"] == granted
    await seed.delete(task)


async def test_a_task_that_is_not_kept_still_answers_on_its_stream(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=9, task={"keepAlive": 0})
    await stream.notification(CREATED)
    (await house.upstream.called(task)).finish(text("quick"))
    assert (await stream.response(9))["result"]["content"] == text("quick")["content"]


async def test_each_message_about_a_task_names_it(house: House, seed: Seed) -> None:
    task = new_id()
    params = {**tool(task), "_meta": {"progressToken": "p-1", "example.org/mine": [1, {"x": None}]}}
    stream = await seed.begin(task, params, ident="named")
    call = await house.upstream.called(task)
    assert call.meta["example.org/mine"] == [1, {"x": None}]
    assert TASK not in call.meta
    call.tell("notifications/progress", {"progressToken": call.meta["progressToken"], "progress": 0.5})
    call.tell("notifications/message", {"level": "info", "data": {"n": 1.0}, "_meta": {"example.org/a": 1}})
    question = call.ask()
    asked = await stream.asked()
    assert asked["params"]["message"] == "What is your name?"
    await seed.answer(asked, {"action": "decline"})
    await question.answered()
    call.finish({**text("ok"), "_meta": {"example.org/b": 2}, "example": {"unknown": 1}})
    answer = await stream.response("named")
    assert [related_to(m) for m in stream.seen] == [task] * 5
    assert stream.seen[1]["params"]["progressToken"] == "p-1"
    assert stream.seen[2]["params"]["_meta"] == {"example.org/a": 1, RELATED: {"taskId": task}}
    assert answer["result"]["_meta"] == {"example.org/b": 2, RELATED: {"taskId": task}}
    assert answer["result"]["example"] == {"unknown": 1}
    assert related_to(await seed.get(task)) == task
    assert related_to(await seed.fetch(task)) == task
    assert related_to(await seed.delete(task)) == task


async def test_a_client_that_asked_for_no_progress_gets_none(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=5)
    call = await house.upstream.called(task)
    token = call.meta.get("progressToken", "none")
    call.tell("notifications/progress", {"progressToken": token, "progress": 1})
    call.finish()
    await stream.response(5)
    assert [m.get("method") for m in stream.seen] == [CREATED, None]


async def test_numbers_and_unknown_fields_cross_as_they_are(house: House, seed: Seed) -> None:
    task = new_id()
    arguments: Json = {"big": 12345678901234567890, "float": 1.0, "none": None, "words": "žluťoučký \u2028"}
    stream = await seed.begin(task, {**tool(task, **arguments), "unknown": True}, ident=5)
    call = await house.upstream.called(task)
    assert call.message["params"]["arguments"] == {"key": task, **arguments}
    assert isinstance(call.message["params"]["arguments"]["float"], float)
    assert call.message["params"]["unknown"] is True
    call.finish({**text("x"), "structuredContent": arguments})
    answer = await stream.response(5)
    assert answer["result"]["structuredContent"] == arguments
    assert (await seed.fetch(task))["result"]["structuredContent"] == arguments


async def test_a_tool_that_fails_in_its_result_is_completed(house: House, seed: Seed) -> None:
    task = new_id()
    failed = {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    stream = await seed.begin(task, tool(task), ident=2)
    (await house.upstream.called(task)).finish(failed)
    assert (await stream.response(2))["result"]["isError"] is True
    assert "error" not in await seed.reach(task, "completed")
    assert (await seed.fetch(task))["result"]["content"] == failed["content"]


async def test_an_error_of_the_upstream_fails_the_task_and_crosses_on_the_stream(
    house: House, seed: Seed
) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=2)
    (await house.upstream.called(task)).refuse(-32050, "API rate limit exceeded", {"left": 0})
    answer = await stream.response(2)
    assert answer["error"]["code"] == -32050
    assert answer["error"]["message"] == "API rate limit exceeded"
    assert answer["error"]["data"]["left"] == 0
    got = await seed.reach(task, "failed")
    assert "API rate limit exceeded" in got["error"]
    assert got["keepAlive"] == 30_000
    assert "API rate limit exceeded" in (await seed.tasks())[task]["error"]
    assert refusal(await seed.fetch(task)) == too_early("failed")


async def test_a_result_is_refused_while_the_task_works(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    await seed.reach(task, "working")
    assert refusal(await seed.fetch(task)) == too_early("working")
    call.finish()
    await seed.reach(task, "completed")


async def test_an_unknown_id_is_not_found(seed: Seed) -> None:
    assert refusal(await seed.get("nope")) == NOT_FOUND
    for answer in (await seed.fetch("nope"), await seed.delete("nope")):
        code, words = refusal(answer)
        assert code == INVALID_PARAMS
        assert words.endswith(": Task not found")


@pytest.mark.parametrize("ident", [0, -7, "seven", 2**53, ""])
async def test_the_response_carries_the_id_of_the_request(
    house: House, seed: Seed, ident: str | int
) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=ident)
    (await house.upstream.called(task)).finish()
    await stream.response(ident)


@pytest.mark.parametrize("task", ["x", "spaces and ünïcode ✓", "{braces}:*?[a]", "../..", "a" * 1000, "0"])
async def test_any_reasonable_string_is_a_task_id(house: House, task: str) -> None:
    async with house.client() as seed:
        key = new_id()
        stream = await seed.begin(task, tool(key))
        assert related_to(await stream.notification(CREATED)) == task
        (await house.upstream.called(key)).finish()
        await seed.reach(task, "completed")
        assert list(await seed.tasks()) == [task]
        assert "result" in await seed.fetch(task)
        assert "result" in await seed.delete(task)


async def test_reading_a_resource_may_be_a_task(house: House, seed: Seed) -> None:
    task = new_id()
    params = {"uri": f"test://thing?key={task}"}
    stream = await seed.begin(task, params, method="resources/read", ident=3)
    await stream.notification(CREATED)
    call = await house.upstream.called(task)
    assert call.message["method"] == "resources/read"
    contents = {"contents": [{"uri": params["uri"], "text": "a thing"}]}
    call.finish(contents)
    assert (await stream.response(3))["result"]["contents"] == contents["contents"]
    await seed.reach(task, "completed")
    assert (await seed.fetch(task))["result"]["contents"] == contents["contents"]


async def test_getting_a_prompt_may_be_a_task(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, {"name": task, "arguments": {}}, method="prompts/get")
    (await house.upstream.called(task)).finish({"messages": []})
    await seed.reach(task, "completed")
    assert (await seed.fetch(task))["result"]["messages"] == []


async def test_metadata_on_a_method_without_policy_is_ignored(seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, {}, method="tools/list", ident=1)
    answer = await stream.response(1)
    assert stream.seen == [answer]
    assert answer["result"]["tools"]
    assert refusal(await seed.get(task)) == NOT_FOUND


@pytest.mark.parametrize("metadata", [{"taskId": "t"}, {"taskId": 5}, "junk", None, [], {}])
async def test_a_forbidden_tool_runs_as_ever_and_its_metadata_is_ignored(
    house: House, seed: Seed, metadata: object
) -> None:
    key = new_id()
    params = {**tool(key, "never_task"), "_meta": {TASK: metadata}}
    message = {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": params}
    async with asyncio.TaskGroup() as group:
        posting = group.create_task(seed.post(message))
        call = await house.upstream.called(key)
        call.finish()
    stream = await posting
    answer = await stream.response(4)
    assert stream.seen == [answer]
    assert related_to(answer) is None
    assert refusal(await seed.get("t")) == NOT_FOUND


async def test_a_required_tool_works_without_metadata(house: House, seed: Seed) -> None:
    key = new_id()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(seed.ask("tools/call", tool(key, "always_task")))
        (await house.upstream.called(key)).finish(text("plain"))
    assert (await asking)["result"] == text("plain")
    assert await seed.tasks() == {}


async def test_a_required_tool_is_refused_without_metadata_where_the_policy_says_so(
    house: House, seed: Seed
) -> None:
    key = new_id()
    code, words = refusal(await seed.ask("tools/call", tool(key, "task_or_nothing")))
    assert code in (-32600, -32601, -32602)
    assert "task" in words
    assert not house.upstream.calls[key]
    await seed.begin(key, tool(key, "task_or_nothing"))
    (await house.upstream.called(key)).finish()
    await seed.reach(key, "completed")


async def test_a_client_that_takes_no_stream_gets_the_original_response(house: House, seed: Seed) -> None:
    task = new_id()
    only = {"Accept": "application/json"}
    async with asyncio.TaskGroup() as group:
        posting = group.create_task(seed.begin(task, tool(task), ident=6, headers=only))
        call = await house.upstream.called(task)
        await seed.reach(task, "working")
        call.tell("notifications/message", {"level": "info", "data": "not for JSON"})
        call.finish(text("json"))
    exchange = await posting
    assert exchange.status == 200
    assert exchange.headers["content-type"].startswith("application/json")
    answer = await exchange.json()
    assert answer["id"] == 6
    assert answer["result"] == {**text("json"), "_meta": {RELATED: {"taskId": task}}}
    assert "result" in await seed.fetch(task)


@pytest.mark.parametrize("accept", ["*/*", None, "text/event-stream", "application/*, text/*;q=0.5"])
async def test_lenient_accept_headers_get_the_stream(house: House, seed: Seed, accept: str | None) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), headers={"Accept": accept})
    assert (stream.status, stream.is_stream) == (200, True)
    await stream.notification(CREATED)
    (await house.upstream.called(task)).finish()
    await seed.reach(task, "completed")
