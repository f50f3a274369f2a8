"""Dialect B: a task is made, runs, ends and is fetched (2025-11-25 tasks, "Protocol Messages")."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import IMMEDIATE, METHOD_NOT_FOUND, PAUSE, RELATED, Json, TasksB
from tests.wire.tasks_b_world import POLL_MS, WORDS, Place, credential, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
RICH: Json = {
    **text("72 F"),
    "structuredContent": {"big": 12345678901234567890, "float": 1.0, "none": None, "words": "žluť \u2028"},
    "example.org/unknown": [1, {"x": None}],
}


async def plainly(place: Place, client: TasksB, result: Json) -> Json:
    """Return the response to a plain call that the upstream answers with a result."""
    key = new_id()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.ask("tools/call", tool(key)))
        (await place.upstream.called(key)).finish(result)
    return asking.result()


async def test_a_task_is_made_at_once_works_ends_and_is_fetched(place: Place, client: TasksB) -> None:
    key = new_id()
    made = (await client.call_task("work", {"key": key}, ttl=60_000))["task"]
    assert made["status"] == "working"
    assert made["ttl"] == 60_000
    assert made["pollInterval"] == POLL_MS
    call = await place.upstream.called(key)
    got = (await client.get(made["taskId"]))["result"]
    assert {name: got[name] for name in ("taskId", "status", "createdAt", "ttl", "pollInterval")} == {
        name: made[name] for name in ("taskId", "status", "createdAt", "ttl", "pollInterval")
    }
    call.finish(RICH)
    ended = await client.reach(made["taskId"], "completed")
    assert ended["createdAt"] == made["createdAt"]
    assert ended["lastUpdatedAt"] >= got["lastUpdatedAt"]
    assert ended["ttl"] == 60_000
    for _ in range(3):
        assert without_meta((await client.result(made["taskId"]))["result"]) == RICH
    assert (await client.get(made["taskId"]))["result"] == ended


async def test_the_answer_does_not_wait_for_the_upstream(place: Place, client: TasksB) -> None:
    key = new_id()
    task = await client.start("work", {"key": key})
    assert (await client.get(task))["result"]["status"] == "working"
    call = await place.upstream.called(key)
    assert not call.gone.is_set()
    call.finish()
    await client.reach(task, "completed")


async def test_I2_a_task_that_was_answered_is_found_on_every_replica_at_once(two: Place) -> None:
    async with two.client(credential()) as client:
        other = client.twin(two.url(replica=1))
        for _ in range(20):
            made = (await client.call_task("echo"))["task"]
            assert (await other.get(made["taskId"]))["result"]["createdAt"] == made["createdAt"]
        assert len(await other.list()) == 20


async def test_the_upstream_sees_no_task_and_all_else_as_it_was(place: Place, client: TasksB) -> None:
    key = new_id()
    arguments: Json = {"key": key, "big": 12345678901234567890, "float": 1.0, "none": None}
    meta: Json = {"progressToken": "mine", "example.org/mine": [1, {"x": None}]}
    await client.call_task("work", arguments, meta=meta)
    call = await place.upstream.called(key)
    params = call.message["params"]
    assert "task" not in params
    assert params["arguments"] == arguments
    assert isinstance(params["arguments"]["float"], float)
    assert params["_meta"]["example.org/mine"] == [1, {"x": None}]
    call.finish()


@pytest.mark.parametrize("authorization", [None, "Bearer ids"])
async def test_ids_are_the_gateways_own_and_cannot_be_guessed(
    place: Place, authorization: str | None
) -> None:
    async with place.client(authorization) as client:
        ids = [await client.start("echo") for _ in range(24)]
    assert len(set(ids)) == 24
    for one in ids:
        assert isinstance(one, str)
        # 128 bits are 32 hexadecimal digits or 22 of base 64.
        assert len(one) >= 22
        assert re.fullmatch(r"[!-~]+", one)
    # What is the same in all ids is no part of the random bits: hexadecimal digits hold 4 each.
    assert all(re.fullmatch(r"[0-9a-f]{32}", one[:32]) for one in ids)
    for place_in_id in range(32):
        assert len({one[place_in_id] for one in ids}) > 4


async def test_a_task_id_of_the_clients_own_is_not_taken(place: Place, client: TasksB) -> None:
    params: Json = {"name": "echo", "arguments": {}, "task": {"taskId": "mine", "ttl": 60_000}}
    made = (await client.ask("tools/call", params, wrong=True))["result"]["task"]
    assert made["taskId"] != "mine"
    assert refusal(await client.get("mine"))[0] == -32602


async def test_times_are_those_of_the_clock_in_rfc_3339(place: Place, client: TasksB) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    key = new_id()
    made = (await client.call_task("work", {"key": key}))["task"]
    call = await place.upstream.called(key)
    call.finish()
    ended = await client.reach(made["taskId"], "completed")
    after = datetime.now(UTC) + timedelta(seconds=1)
    for task in (made, ended, (await client.list())[made["taskId"]]):
        for name in ("createdAt", "lastUpdatedAt"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", task[name])
            assert before <= datetime.fromisoformat(task[name]) <= after
    assert made["createdAt"] <= ended["lastUpdatedAt"]


async def test_the_result_is_that_of_the_plain_call_and_related(place: Place, client: TasksB) -> None:
    result = {**RICH, "_meta": {"example.org/b": 2, "example.org/c": [1.0]}}
    plain = await plainly(place, client, result)
    key = new_id()
    task = await client.start("work", {"key": key})
    (await place.upstream.called(key)).finish(result)
    fetched = await client.result(task)
    assert fetched["result"]["_meta"] == {**plain["result"]["_meta"], RELATED: {"taskId": task}}
    assert without_meta(fetched["result"]) == without_meta(plain["result"])
    assert list(fetched["result"]) == list(plain["result"])


async def test_an_error_of_the_upstream_is_the_answer_byte_for_byte(place: Place, client: TasksB) -> None:
    key = new_id()
    task = await client.start("work", {"key": key})
    call = await place.upstream.called(key)
    error = b'{"data":{"float":1.0, "big":12345678901234567890},"message":"API rate limit","code":-32050}'
    call.raw(b'data: {"id":"%b","error":%b,"jsonrpc":"2.0"}\n\n' % (call.ident.encode(), error))
    call.end()
    got = await client.reach(task, "failed")
    assert "API rate limit" in got["statusMessage"]
    for _ in range(2):
        async with await client.post(client.request("tasks/result", {"taskId": task})) as answer:
            assert answer.status == 200
            assert error in (await answer.text()).encode()
    assert refusal(await client.result(task)) == (-32050, "API rate limit")


async def test_a_tool_that_fails_in_its_result_fails_the_task(place: Place, client: TasksB) -> None:
    key = new_id()
    failed: Json = {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    task = await client.start("work", {"key": key})
    (await place.upstream.called(key)).finish(failed)
    got = await client.reach(task, "failed")
    assert got["statusMessage"]
    assert without_meta((await client.result(task))["result"]) == failed
    assert (await client.list())[task]["status"] == "failed"


async def test_a_tool_that_fails_is_shown_as_completed_where_the_policy_says_so(place: Place) -> None:
    async with place.client(credential(), "lenient") as client:
        keys = [new_id() for _ in range(2)]
        tasks = [await client.start("work", {"key": key}) for key in keys]
        failed: Json = {"content": [{"type": "text", "text": "no such city"}], "isError": True}
        (await place.upstream.called(keys[0])).finish(failed)
        (await place.upstream.called(keys[1])).refuse(-32050, "no")
        assert (await client.reach(tasks[0], "completed"))["status"] == "completed"
        assert without_meta((await client.result(tasks[0]))["result"]) == failed
        assert (await client.list())[tasks[0]]["status"] == "completed"
        # An error of the protocol has no result that would be lost.
        await client.reach(tasks[1], "failed")
        code, words = refusal(await client.ask("tasks/cancel", {"taskId": tasks[0]}))
        assert code == -32602
        assert "'completed'" in words


async def test_progress_of_the_upstream_is_the_status_message(place: Place, client: TasksB) -> None:
    key = new_id()
    # The client asks for no progress: the status shows it all the same.
    task = await client.start("work", {"key": key})
    call = await place.upstream.called(key)
    token = call.meta["progressToken"]
    call.tell(
        "notifications/progress",
        {"progressToken": token, "progress": 1, "total": 2, "message": "half of it"},
    )
    async with asyncio.timeout(5):
        got = (await client.get(task))["result"]
        while got.get("statusMessage") != "half of it":
            await asyncio.sleep(PAUSE)
            got = (await client.get(task))["result"]
    assert (await client.list())[task]["statusMessage"] == "half of it"
    call.finish()
    ended = await client.reach(task, "completed")
    assert ended.get("statusMessage") != "half of it"
    assert not [one for one in client.heard if one.message.get("method") == "notifications/progress"]


async def test_the_text_for_the_model_is_that_of_the_policy(place: Place, client: TasksB) -> None:
    spoken = await client.call_task("spoken")
    assert spoken["_meta"][IMMEDIATE] == WORDS
    silent = await client.call_task("echo")
    assert IMMEDIATE not in silent.get("_meta", {})
    async with place.client(credential(), "spoken") as other:
        assert (await other.call_task("echo"))["_meta"][IMMEDIATE] == WORDS


async def test_a_call_that_is_too_long_fails_in_words(place: Place, client: TasksB) -> None:
    key = new_id()
    task = await client.start("short", {"key": key})
    call = await place.upstream.called(key)
    got = await client.reach(task, "failed")
    assert got["statusMessage"]
    await call.cancelled()
    assert "error" in await client.result(task)


async def test_a_call_that_waits_for_its_turn_is_working(place: Place, client: TasksB) -> None:
    first, second = new_id(), new_id()
    await client.start("one_by_one", {"key": first})
    running = await place.upstream.called(first)
    waiting = await client.start("one_by_one", {"key": second})
    assert (await client.get(waiting))["result"]["status"] == "working"
    assert not place.upstream.calls[second]
    running.finish()
    (await place.upstream.called(second)).finish()
    await client.reach(waiting, "completed")


async def test_many_tasks_run_at_once(place: Place, client: TasksB) -> None:
    keys = [new_id() for _ in range(20)]
    tasks = await asyncio.gather(*(client.start("work", {"key": key}) for key in keys))
    for key in keys:
        (await place.upstream.called(key)).finish(text(key))
    for key, task in zip(keys, tasks, strict=True):
        assert without_meta((await client.result(task))["result"]) == text(key)


async def test_a_method_that_the_version_does_not_have_is_not_found(client: TasksB) -> None:
    task = await client.start("echo")
    for method in ("tasks/pause", "tasks/Get"):
        assert refusal(await client.ask(method, {"taskId": task}))[0] == METHOD_NOT_FOUND


@pytest.mark.parametrize("ident", [0, -7, "seven", 2**53, ""])
async def test_the_answers_carry_the_ids_of_their_requests(client: TasksB, ident: str | int) -> None:
    made = await client.call_task("echo", ident=ident)
    task = made["task"]["taskId"]
    for method in ("tasks/result", "tasks/get"):
        response = await client.ask(method, {"taskId": task}, ident=ident)
        assert response["id"] == ident
