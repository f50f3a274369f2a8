"""Dialect C: the life of a task as its client sees it (ext-tasks "Task Polling", "Task Cancellation")."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from tests.wire.answers import Json
from tests.wire.era_world import NOT_FOUND, REQUIRED, Eras, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import MISSING_CAPABILITY

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ACK = {"resultType"}
ABOUT = ("tasks/get", "tasks/update", "tasks/cancel")


async def begun(eras: Eras, caller: Stateless, name: str = "work") -> tuple[str, Call]:
    """Begin a task and return its id and its call at the upstream."""
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, name))
    return reply.task_id, await eras.upstream.called(key)


async def test_the_answer_is_the_seed_state_of_the_task(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "work"))
    assert reply.headers["content-type"].startswith("application/json")
    task = reply.result
    assert task["status"] == "working"
    assert task["pollIntervalMs"] == 100
    assert task["createdAt"] == task["lastUpdatedAt"]
    assert re.fullmatch(r"[0-9a-f]{32}", task["taskId"])
    got = (await caller.get(task["taskId"])).result
    assert {**got, "resultType": "task"} | {"lastUpdatedAt": 0} == {**task, "lastUpdatedAt": 0} | {
        name: got[name] for name in ("_meta",) if name in got
    }
    (await eras.upstream.called(key)).finish()


async def test_the_announced_retention_covers_the_time_limit(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    assert (await caller.get(task)).result["ttlMs"] >= 60_000
    call.finish()


async def test_a_result_is_inline_and_is_what_the_call_would_have_answered(
    eras: Eras, caller: Stateless
) -> None:
    task, call = await begun(eras, caller)
    result: Json = {
        "content": [{"type": "text", "text": "x", "annotations": {"priority": 0.5}}],
        "structuredContent": {"n": 1.0, "deep": [None, {"a": []}]},
        "isError": False,
        "_meta": {"com.example/trace": "abc"},
    }
    call.finish(result)
    got = await caller.reach(task, "completed")
    assert got["result"] == {**result, "resultType": "complete"} | {
        "_meta": {**result["_meta"], **got["result"]["_meta"]}
    }
    assert datetime.fromisoformat(got["lastUpdatedAt"]) >= datetime.fromisoformat(got["createdAt"])
    again = (await caller.get(task)).result
    assert again == got


async def test_a_tool_error_completes_the_task(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    call.finish({**text("it went wrong"), "isError": True})
    got = await caller.reach(task, "completed")
    assert got["result"]["isError"] is True
    assert got["result"]["content"] == text("it went wrong")["content"]


async def test_a_json_rpc_error_fails_the_task_and_is_inline(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    call.refuse(-32010, "limit exceeded", {"at": 1})
    got = await caller.reach(task, "failed")
    assert got["error"] == {"code": -32010, "message": "limit exceeded", "data": {"at": 1}}
    assert "limit exceeded" in got["statusMessage"]


async def test_I5_an_upstream_that_is_lost_fails_the_task_with_an_error(
    eras: Eras, caller: Stateless
) -> None:
    task, call = await begun(eras, caller)
    call.cut()
    got = await caller.reach(task, "failed")
    assert isinstance(got["error"]["code"], int)
    assert len(got["error"]["message"]) > 10


async def test_I5_a_call_that_takes_too_long_fails_and_the_upstream_hears(
    eras: Eras, caller: Stateless
) -> None:
    task, call = await begun(eras, caller, "short")
    await call.cancelled()
    got = await caller.reach(task, "failed")
    assert got["error"]["message"]


async def test_cancel_is_acknowledged_with_nothing_and_the_upstream_hears(
    eras: Eras, caller: Stateless
) -> None:
    task, call = await begun(eras, caller)
    reply = await caller.cancel(task)
    assert set(reply.result) - {"_meta"} == ACK
    await call.cancelled()
    await caller.reach(task, "cancelled")


async def test_cancel_at_another_replica_reaches_the_upstream(era_replicas: Eras) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        task, call = await begun(era_replicas, here)
        await there.cancel(task)
        await call.cancelled()
        await here.reach(task, "cancelled")
        await there.reach(task, "cancelled")


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_I4_a_late_cancel_is_acknowledged_and_changes_nothing(
    eras: Eras, caller: Stateless, status: str
) -> None:
    task, call = await begun(eras, caller)
    if status == "completed":
        call.finish()
    elif status == "failed":
        call.refuse(-1, "no")
    else:
        await caller.cancel(task)
    before = await caller.reach(task, status)
    assert set((await caller.cancel(task)).result) - {"_meta"} == ACK
    assert set((await caller.update(task, {"x": {"action": "accept"}})).result) - {"_meta"} == ACK
    assert (await caller.get(task)).result == before


async def test_the_cancelled_notification_does_not_cancel_a_task(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    message = caller.request("tools/call", tool(key, "work"))
    async with await caller.begin("tools/call", tool(key, "work"), ident=message["id"]) as answer:
        task = (await answer.response())["result"]["taskId"]
    call = await eras.upstream.called(key)
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}}
    async with await caller.send(
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}' % message["id"],
        caller.fields(note),
    ) as answer:
        assert answer.status == 202
        assert await answer.text() == ""
    assert (await caller.get(task)).result["status"] == "working"
    assert not call.is_cancelled
    call.finish()
    await caller.reach(task, "completed")


async def test_I11_a_client_that_leaves_does_not_end_its_task(eras: Eras) -> None:
    async with eras.client() as one:
        task, call = await begun(eras, one)
        authorization = one.authorization
    call.finish(text("alone"))
    async with eras.client(authorization, replica=1) as two:
        got = await two.reach(task, "completed")
        assert got["result"]["content"] == text("alone")["content"]
    assert not call.is_cancelled


async def test_the_status_message_shows_the_progress_of_the_upstream(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    token = call.meta["progressToken"]
    call.tell(
        "notifications/progress",
        {"progressToken": token, "progress": 1, "total": 4, "message": "one of four"},
    )
    async with caller.listen({"taskIds": [task]}) as changes:
        found = (await caller.get(task)).result
        while "one of four" not in found.get("statusMessage", ""):
            found = (await caller.get(task)).result
        call.finish()
        async for change in changes:
            assert change["method"] == "notifications/tasks"
            if change["params"]["status"] == "completed":
                break


@pytest.mark.parametrize("method", ABOUT)
async def test_an_unknown_task_is_not_found(caller: Stateless, method: str) -> None:
    params: Json = {"taskId": "0" * 32} | ({"inputResponses": {}} if method == "tasks/update" else {})
    status, code, words = (await caller.ask(method, params)).refusal
    assert (status, code) == NOT_FOUND[:2]
    assert words.endswith("Task not found")


@pytest.mark.parametrize("method", ABOUT)
async def test_a_client_that_does_not_declare_the_extension_is_told_so(
    eras: Eras, caller: Stateless, method: str
) -> None:
    task, call = await begun(eras, caller)
    params: Json = {"taskId": task} | ({"inputResponses": {}} if method == "tasks/update" else {})
    reply = await caller.ask(method, params, tasks=False)
    assert reply.refusal[:2] == (400, MISSING_CAPABILITY)
    assert reply.response["error"]["data"] == REQUIRED
    assert (await caller.get(task)).result["status"] == "working"
    call.finish()


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/delete"])
async def test_methods_of_other_dialects_are_gone(eras: Eras, caller: Stateless, method: str) -> None:
    task, call = await begun(eras, caller)
    reply = await caller.ask(method, {"taskId": task})
    assert reply.refusal[:2] == (404, -32601)
    assert not eras.upstream.asked(method)
    call.finish()


async def test_a_task_param_on_the_task_methods_is_ignored(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    for method in ABOUT[:2]:
        more: Json = {"inputResponses": {}} if method == "tasks/update" else {}
        reply = await caller.ask(method, {"taskId": task, "task": {"ttl": 5}, "unknown": [1], **more})
        assert reply.result["resultType"] == "complete"
    call.finish()
    await caller.reach(task, "completed")


@pytest.mark.parametrize("ident", [0, -1, 2**53 - 1, "", "a" * 500, "ünï\u2028", "1"])
async def test_request_ids_come_back_in_value_and_type(
    eras: Eras, caller: Stateless, ident: object
) -> None:
    assert isinstance(ident, int | str)
    key = new_key()
    async with await caller.begin("tools/call", tool(key, "work"), ident=ident) as answer:
        made = await answer.response()
    (await eras.upstream.called(key)).finish()
    async with await caller.begin("tasks/get", {"taskId": made["result"]["taskId"]}, ident=ident) as answer:
        await answer.response()
    plain = new_key()
    async with meanwhile(caller.begin("tools/call", tool(plain, "plain"), ident=ident)) as asking:
        (await eras.upstream.called(plain)).finish()
        async with await asking as answer:
            await answer.response()
