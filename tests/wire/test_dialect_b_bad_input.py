"""Dialect B: what a client may get wrong, and the code and words it hears (I12)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.scripted_upstream import tool
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import INVALID_PARAMS, Json, TasksB
from tests.wire.tasks_b_world import Place, refusal

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
PARSE, INVALID = -32700, -32600


async def said(client: TasksB, body: bytes) -> tuple[int, Any]:
    """Return status and body of the answer to any bytes."""
    async with await client.send("POST", body) as answer:
        return answer.status, json.loads(await answer.text())


def a_call(task: str, key: str = "none") -> bytes:
    """Return a call whose `task` is any text."""
    params = f'{{"name":"work","arguments":{{"key":"{key}"}},"task":{task}}}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()


@pytest.mark.parametrize(
    ("task", "status", "code"),
    [
        ('{"ttl":-1e999}', 200, INVALID_PARAMS),
        ('{"ttl":-99999999999999999999999999999999}', 200, INVALID_PARAMS),
        ('{"ttl":60000.5}', 200, INVALID_PARAMS),
        ('{"ttl":"1h"}', 200, INVALID_PARAMS),
        ('"\\u0000"', 200, INVALID_PARAMS),
        ('[[[[{"ttl":1}]]]]', 200, INVALID_PARAMS),
        ('{"ttl":NaN}', 400, PARSE),
        ('{"ttl":01}', 400, PARSE),
        ('{"ttl":1', 400, PARSE),
        ("[" * 100_000, 400, PARSE),
        ('{"ttl":' * 100_000, 400, PARSE),
    ],
)
async def test_a_wish_that_is_odd_on_the_wire_is_refused_and_nothing_runs(
    place: Place, client: TasksB, task: str, status: int, code: int
) -> None:
    key = new_id()
    got, answer = await said(client, a_call(task, key))
    assert got == status
    assert refusal(answer)[0] in (code, INVALID if code == PARSE else code)
    assert await client.list() == {}
    assert not place.upstream.calls[key]


@pytest.mark.parametrize("task", ['{"ttl":60000,"ttl":"x"}', '{"\\u0074tl":70000}', '{"ttl":70000,"":{}}'])
async def test_a_wish_that_can_be_read_in_two_ways_is_taken_or_refused_whole(
    place: Place, client: TasksB, task: str
) -> None:
    key = new_id()
    status, answer = await said(client, a_call(task, key))
    assert status == 200
    if "error" in answer:
        assert refusal(answer)[0] == INVALID_PARAMS
        assert not place.upstream.calls[key]
        return
    made = answer["result"]["task"]["taskId"]
    call = await place.upstream.called(key)
    assert "task" not in call.message["params"]
    call.finish()
    await client.reach(made, "completed")


async def test_an_escaped_name_is_the_same_name(place: Place, client: TasksB) -> None:
    key = new_id()
    body = a_call('{"ttl":70000}', key).replace(b'"task"', b'"t\\u0061sk"')
    _, answer = await said(client, body)
    assert answer["result"]["task"]["ttl"] == 70_000
    call = await place.upstream.called(key)
    assert "task" not in call.message["params"]
    call.finish()


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@pytest.mark.parametrize(
    "params", [None, {}, {"taskId": None}, {"taskId": 5}, {"taskId": ["x"]}, {"taskId": ""}]
)
async def test_a_request_that_names_no_task_is_refused(
    client: TasksB, method: str, params: Json | None
) -> None:
    code, words = refusal(await client.ask(method, params, wrong=True))
    assert code == INVALID_PARAMS
    assert "taskId" in words


@pytest.mark.parametrize("params", [[], ["x"], "x", 5, None])
async def test_params_that_are_no_object_are_refused(client: TasksB, params: object) -> None:
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        message = {"jsonrpc": "2.0", "id": 3, "method": method, "params": params}
        _, answer = await said(client, json.dumps(message).encode())
        assert refusal(answer)[0] in (INVALID, INVALID_PARAMS)


async def test_a_call_without_a_tool_is_no_reason_to_fail(client: TasksB) -> None:
    nothing: Json = {}
    shapes: list[Json] = [{}, {"name": 5}, {"name": None, "arguments": []}]
    for params in ({**shape, "task": nothing} for shape in shapes):
        answer = await client.ask("tools/call", params, wrong=True)
        # A task whose call the upstream refuses, or a refusal: never an internal error.
        if "error" in answer:
            assert refusal(answer)[0] in (INVALID_PARAMS, -32601)
        else:
            ended = await client.reach(answer["result"]["task"]["taskId"], "completed", "failed")
            assert ended["status"]


async def test_an_answer_to_a_question_that_never_was_is_taken_and_dropped(client: TasksB) -> None:
    for ident in ("mtg-ask.nonsense", f"mtg-ask.{'0' * 32}.1-1", "mtg-ask.", "mtg-ask.\0"):
        message = {"jsonrpc": "2.0", "id": ident, "result": {"action": "accept"}}
        async with await client.post(message) as answer:
            assert answer.status in (202, 400)


async def test_a_lookup_as_a_notification_is_no_lookup(place: Place, client: TasksB) -> None:
    key = new_id()
    task = await client.start("work", {"key": key})
    call = await place.upstream.called(key)
    message = {"jsonrpc": "2.0", "method": "tasks/cancel", "params": {"taskId": task}}
    async with await client.post(message, wrong=True) as answer:
        assert answer.status < 500
    assert (await client.get(task))["result"]["status"] == "working"
    call.finish()
    await client.reach(task, "completed")


async def test_a_call_with_a_task_as_a_notification_makes_none(place: Place, client: TasksB) -> None:
    key = new_id()
    params: Json = {**tool(key), "task": {}}
    message: Json = {"jsonrpc": "2.0", "method": "tools/call", "params": params}
    async with await client.post(message, wrong=True) as answer:
        assert answer.status < 500
    assert await client.list() == {}


@pytest.mark.parametrize("header", [{"Mcp-Session-Id": "forged"}, {"Mcp-Session-Id": "x" * 3000}])
async def test_a_session_that_is_not_there_is_404(client: TasksB, header: dict[str, str | None]) -> None:
    async with await client.post(client.request("tasks/get", {"taskId": "t"}), header) as answer:
        assert answer.status == 404
        assert "error" in await answer.text()


async def test_without_a_session_there_is_no_task(client: TasksB) -> None:
    nothing: dict[str, str | None] = {"Mcp-Session-Id": None}
    async with await client.post(client.request("tasks/get", {"taskId": "t"}), nothing) as answer:
        assert refusal(await answer.response())[0] == INVALID_PARAMS


async def test_a_batch_is_refused(client: TasksB) -> None:
    one = client.request("tasks/list")
    status, answer = await said(client, json.dumps([one]).encode())
    assert status == 400
    assert refusal(answer)[0] == INVALID
