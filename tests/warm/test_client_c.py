"""The client in dialect C and in the stateless era, against a server written from the texts."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator

import pytest
from aiohttp import web

from tests.warm.client_fake import error
from tests.warm.client_fake_c import EXTENSION, PREFIX, FakeC, Message, fake_c
from tests.warm.client_run import client, command, words_of
from tests.warm.client_terminal import Terminal


@pytest.fixture
async def server() -> AsyncGenerator[FakeC]:
    async with fake_c() as running:
        yield running


def declared(message: Message) -> Message:
    return message["params"]["_meta"][f"{PREFIX}clientCapabilities"]


async def test_C_a_task_is_polled_and_its_result_comes_with_the_status(server: FakeC) -> None:
    running = asyncio.gather(client("call", server.url, "slow", "rows=3", "--task", "--json"))
    await server.until(lambda: len(server.sent("tasks/get")) > 1)
    server.go.set()
    (ran,) = await running
    assert (ran.code, ran.object["status"]) == (0, "completed")
    assert [ran.object["taskId"]] == list(server.tasks)
    assert ran.object["result"]["content"][0]["text"] == "slow is done"
    assert server.methods()[:3] == ["server/discover", "tools/list", "tools/call"]
    assert set(server.methods()[3:]) == {"tasks/get"}
    for message in server.sent("tools/call") + server.sent("tasks/get"):
        assert declared(message) == {"extensions": {EXTENSION: {}}}


async def test_C_without_task_the_extension_is_not_declared(server: FakeC) -> None:
    ran = await client("call", server.url, "slow")
    assert (ran.code, ran.out, ran.err) == (0, "an ordinary call\n", "")
    assert all(declared(message) == {} for message in server.got)


async def test_C_what_can_be_answered_is_declared_with_every_request(server: FakeC) -> None:
    await client("call", server.url, "slow", "--answer", "word=fig")
    assert all(declared(message) == {"elicitation": {"form": {}}} for message in server.got)


async def test_C_status_messages_are_shown(server: FakeC) -> None:
    running = asyncio.gather(client("call", server.url, "slow", "--task"))
    await server.until(lambda: len(server.sent("tasks/get")) > 1)
    server.go.set()
    (ran,) = await running
    assert ": working (counting)" in ran.err


async def test_C_a_task_that_needs_the_extension_is_hinted_at(server: FakeC) -> None:
    server.required.add("slow")
    ran = await client("call", server.url, "slow")
    assert ran.code == 1
    assert "(-32021)" in ran.err
    assert "add --task" in ran.err


async def test_C_an_is_error_result_is_a_completed_task_and_exit_code_1(server: FakeC) -> None:
    ran = await client("call", server.url, "failing", "--task", "--json")
    assert (ran.code, ran.object["status"], ran.object["isError"]) == (1, "completed", True)


async def test_C_the_error_of_a_failed_task_is_the_one_of_the_call(server: FakeC) -> None:
    ran = await client("call", server.url, "broken", "--task", "--json")
    assert (ran.code, ran.object["status"]) == (1, "failed")
    assert ran.object["error"] == {"code": -32050, "message": "API rate limit exceeded", "data": [1]}


async def test_C_each_question_of_a_task_is_answered_once(server: FakeC) -> None:
    ran = await client("call", server.url, "ask", "--task", "--answer", "word=fig")
    given = json.loads(ran.out)
    assert given.keys() == {"q-1", "q-2", "q-3"}
    assert given["q-3"] == {"action": "accept", "content": {"word": "fig"}}
    sent = [message["params"]["inputResponses"].keys() for message in server.sent("tasks/update")]
    assert sent == [{"q-1", "q-2"}, {"q-3"}]


async def test_C_a_form_that_cannot_be_filled_is_cancelled_and_not_left_open(server: FakeC) -> None:
    ran = await client("call", server.url, "ask", "--task", "--answer", "other=fig")
    assert json.loads(ran.out)["q-1"] == {"action": "cancel"}


async def test_C_a_sampling_that_the_person_refuses_cancels_the_task(server: FakeC) -> None:
    ran = await client("call", server.url, "sample", "--task", typed=[""])
    assert ran.code == 1
    assert "User rejected sampling request" in ran.err
    assert not server.sent("tasks/update")
    (task,) = server.tasks.values()
    assert task.status == "cancelled"


async def test_C_a_question_that_nobody_can_answer_is_said_and_waited_for(server: FakeC) -> None:
    running = asyncio.gather(client("call", server.url, "sample", "--task"))
    await server.until(lambda: len(server.sent("tasks/get")) > 2)
    (task,) = server.tasks.values()
    other = await client(
        "tasks", "update", server.url, task.id, "--input", 's={"role": "user"}', "--dialect", "c", "--json"
    )
    assert other.object == {"taskId": task.id, "answered": ["s"]}
    (ran,) = await running
    assert "a question stays unanswered" in ran.err
    assert ran.code == 0
    # The response was the user's own, whatever it is.
    server.wrong.clear()


async def test_mrtr_rounds_give_answers_and_state_back_and_nothing_else(server: FakeC) -> None:
    ran = await client("call", server.url, "rounds", "x=1", "--answer", "word=fig")
    assert json.loads(ran.out) == {"b": {"action": "accept", "content": {"word": "fig"}}}
    first, second, third, fourth = server.sent("tools/call")
    assert len({message["id"] for message in server.got}) == len(server.got)
    for message in (first, second, third, fourth):
        assert (message["params"]["name"], message["params"]["arguments"]) == ("rounds", {"x": 1})
    assert second["params"]["requestState"] == "one=\u00e9\U0001f511"
    assert second["params"]["inputResponses"].keys() == {"a"}
    assert third["params"]["requestState"] == "two"
    assert "inputResponses" not in third["params"]
    assert "requestState" not in fourth["params"]


async def test_an_unknown_result_type_is_invalid_and_an_absent_one_is_complete(server: FakeC) -> None:
    odd = await client("call", server.url, "odd")
    assert odd.code == 2
    assert 'unknown result type: "elsewhere"' in odd.err
    old = await client("call", server.url, "old")
    assert (old.code, old.out) == (0, "old but fine\n")


async def test_a_stream_and_log_messages_of_the_request_are_understood(server: FakeC) -> None:
    server.as_stream = True
    quiet = await client("call", server.url, "old")
    assert (quiet.out, quiet.err) == ("old but fine\n", "")
    loud = await client("call", server.url, "old", "--log-level", "info")
    assert "[info fake] at work" in loud.err
    assert server.got[-1]["params"]["_meta"][f"{PREFIX}logLevel"] == "info"


async def test_arguments_are_mirrored_in_headers_where_the_tool_says_so(server: FakeC) -> None:
    part = {"where": {"type": "string", "x-mcp-header": "Region"}}
    server.schemas["region"] = {"properties": part}
    ran = await client("call", server.url, "region", "where=us-west1")
    assert ran.out == "header us-west1 for us-west1\n"
    none = await client("call", server.url, "region", "where=null")
    assert none.out == "header None for None\n"


async def test_a_header_mismatch_is_tried_again_with_the_tool_as_it_is_now(server: FakeC) -> None:
    mismatch = error(3, -32020, "Header mismatch: Mcp-Param-Region is missing")
    server.refusals["tools/call"] = [web.json_response(mismatch, status=400)]
    ran = await client("call", server.url, "region", "where=x")
    assert ran.code == 0
    assert server.methods()[-4:] == ["tools/list", "tools/call", "tools/list", "tools/call"]


async def test_a_tool_with_a_broken_header_mark_is_not_called(server: FakeC) -> None:
    part = {"where": {"type": "number", "x-mcp-header": "Region"}}
    server.schemas["region"] = {"properties": part}
    ran = await client("call", server.url, "region", "where=1.5")
    assert ran.code == 2
    assert "the definition of region is broken" in ran.err
    assert not server.sent("tools/call")


async def test_C_a_task_that_was_not_allowed_is_an_invalid_answer(server: FakeC) -> None:
    made = {"resultType": "task", "taskId": "t", "status": "working", "ttlMs": None}
    answer = {"jsonrpc": "2.0", "id": 3, "result": made}
    server.refusals["tools/call"] = [web.json_response(answer)]
    ran = await client("call", server.url, "slow")
    assert ran.code == 2
    assert "which this client did not allow" in ran.err


async def test_C_a_detached_task_needs_no_session_to_be_found_again(server: FakeC) -> None:
    left = await client("call", server.url, "slow", "--detach", "--json")
    assert left.object["dialect"] == "c"
    assert left.object.keys().isdisjoint({"session", "requestId"})
    lines = left.object["next"]
    got = await client(*words_of(lines["get"]), "--json")
    assert (got.object["status"], got.object["task"]["ttlMs"]) == ("working", 60_000)
    early = await client(*words_of(lines["result"]))
    assert early.code == 1
    assert "there is no result yet" in early.err
    server.go.set()
    fetched = await client(*words_of(lines["result"]), "--wait")
    assert (fetched.code, fetched.out) == (0, "slow is done\n")
    again = await client("tasks", "result", server.url, left.object["taskId"])
    assert (again.code, again.out) == (0, "slow is done\n")


async def test_C_tasks_cancel_is_a_request_and_the_end_is_looked_for(server: FakeC) -> None:
    left = await client("call", server.url, "slow", "--detach", "--json")
    stopped = await client(*words_of(left.object["next"]["cancel"]), "--json")
    assert (stopped.code, stopped.object["status"]) == (0, "cancelled")
    assert "notifications/cancelled" not in server.methods()


async def test_C_questions_can_be_looked_at_and_answered_by_a_command(server: FakeC) -> None:
    left = await client("call", server.url, "ask", "--detach", "--json")
    words = (server.url, left.object["taskId"])
    await server.until(lambda: server.tasks[left.object["taskId"]].status == "input_required")
    got = await client("tasks", "get", *words)
    assert "q-1: elicitation/create" in got.out
    form = '{"action": "accept", "content": {"word": "one"}}'
    one = await client("tasks", "update", *words, "--input", f"q-1={form}")
    assert (one.code, "1 answers sent (q-1)" in one.err) == (0, True)
    rest = await client("tasks", "update", *words, "--answer", "word=two", "--json")
    assert rest.object["answered"] == ["q-2"]
    ended = await client("tasks", "result", *words, "--wait", "--answer", "word=three")
    assert [found["content"]["word"] for found in json.loads(ended.out).values()] == ["one", "two", "three"]
    late = await client("tasks", "update", *words, "--answer", "word=four")
    assert late.code == 1
    assert "the task asks for nothing: it is completed" in late.err


async def test_C_an_unknown_task_is_said_to_be_one(server: FakeC) -> None:
    ran = await client("tasks", "get", server.url, "nope")
    assert ran.code == 1
    assert "Task not found (-32602)" in ran.err
    assert "--session" not in ran.err


async def test_C_an_interrupt_cancels_the_task(server: FakeC) -> None:
    process = await asyncio.create_subprocess_exec(
        *command("call", server.url, "slow", "--task"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await server.until(lambda: "tasks/get" in server.methods())
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, out) == (130, b"")
    assert b": cancelled" in err


async def test_C_polling_outlives_a_server_that_is_away_for_a_moment(server: FakeC) -> None:
    server.refusals["tasks/get"] = [web.Response(status=502), web.Response(status=502)]
    server.go.set()
    ran = await client("call", server.url, "slow", "--task")
    assert (ran.code, ran.out) == (0, "slow is done\n")
    assert "cannot look at the task" in ran.err


async def test_C_a_terminal_asks_at_the_prompt_and_takes_the_question_back(server: FakeC) -> None:
    async with Terminal("call", server.url, "ask", "--task") as terminal:
        await terminal.until("[A]ccept, [d]ecline, [c]ancel:")
        (task,) = server.tasks.values()
        form = '{"action": "decline"}'
        words = ("--input", f"q-1={form}", "--input", f"q-2={form}")
        await client("tasks", "update", server.url, task.id, *words)
        await terminal.until("the question needs no answer any more")
        await terminal.until("[A]ccept, [d]ecline, [c]ancel:", times=2)
        terminal.type("d\n")
        assert await terminal.ends() == 0
    assert task.given["q-3"] == {"action": "decline"}
