"""The client with tasks, against a server written from the text of SEP-1686."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator

import pytest
from aiohttp import web

from tests.warm.client_fake import RELATED, Fake, fake
from tests.warm.client_run import client, command, words_of


@pytest.fixture
async def server() -> AsyncGenerator[Fake]:
    async with fake() as running:
        yield running


async def test_A_a_task_call_carries_the_task_metadata_of_section_3_1(server: Fake) -> None:
    server.go.set()
    ran = await client("call", server.url, "slow", "rows=3", "--task", "--keep-alive", "90s", "--json")
    (sent,) = server.sent("tools/call")
    task = sent["params"]["_meta"]["modelcontextprotocol.io/task"]
    assert task == {"taskId": ran.object["taskId"], "keepAlive": 90_000}
    assert sent["params"]["arguments"] == {"rows": 3}
    assert ran.object["result"]["content"][0]["text"] == "slow is done"
    assert (ran.code, ran.object["status"]) == (0, "completed")


async def test_A_polls_only_after_the_created_notification(server: Fake) -> None:
    running = asyncio.gather(client("call", server.url, "slow", "--task"))
    await server.until(lambda: "tasks/get" in server.methods())
    server.go.set()
    (ran,) = await running
    assert (ran.code, ran.out) == (0, "slow is done\n")
    assert "working" in ran.err
    assert "[info fake] at work" in ran.err
    asked = server.sent("tasks/get")[0]["params"]
    assert asked["_meta"] == {RELATED: {"taskId": asked["taskId"]}}


async def test_A_a_result_that_only_polling_brings_is_fetched(server: Fake) -> None:
    server.go.set()
    ran = await client("call", server.url, "quiet", "--task")
    assert (ran.code, ran.out) == (0, "quiet is done\n")
    assert len(server.sent("tasks/result")) == 1


async def test_I11_a_broken_stream_is_survived_by_polling(server: Fake) -> None:
    running = asyncio.gather(client("call", server.url, "slow", "--task"))
    await server.until(lambda: "tasks/get" in server.methods())
    server.cut.set()
    looks = len(server.sent("tasks/get"))
    await server.until(lambda: len(server.sent("tasks/get")) > looks + 1)
    server.go.set()
    (ran,) = await running
    assert (ran.code, ran.out) == (0, "slow is done\n")
    assert "the task runs on" in ran.err
    assert len(server.sent("tools/call")) == 1


async def test_A_a_stream_that_breaks_before_created_is_looked_after(server: Fake) -> None:
    server.announces = False
    server.cut.set()
    server.go.set()
    ran = await client("call", server.url, "quiet", "--task")
    assert (ran.code, ran.out) == (0, "quiet is done\n")
    assert "looking for the task" in ran.err


async def test_A_a_server_without_tasks_answers_as_ever(server: Fake) -> None:
    server.tasks_known = False
    server.go.set()
    ran = await client("call", server.url, "slow", "--task", "--json")
    assert ran.code == 0
    assert "taskId" not in ran.object
    assert "tasks/get" not in server.methods()


async def test_A_an_is_error_result_is_a_completed_task_and_exit_code_1(server: Fake) -> None:
    ran = await client("call", server.url, "failing", "--task", "--json")
    assert (ran.code, ran.object["status"], ran.object["isError"]) == (1, "completed", True)


async def test_A_the_original_error_is_reported_with_code_and_data(server: Fake) -> None:
    ran = await client("call", server.url, "broken", "--task", "--json")
    assert (ran.code, ran.object["status"]) == (1, "failed")
    assert ran.object["error"] == {"code": -32050, "message": "API rate limit exceeded", "data": [1, 2]}


async def test_A_the_error_of_a_failed_task_is_reported(server: Fake) -> None:
    ran = await client("call", server.url, "lost", "--task")
    assert ran.code == 1
    assert "Tool execution failed: API rate limit exceeded" in ran.err


async def test_A_an_answer_to_a_question_is_related_to_the_task(server: Fake) -> None:
    ran = await client("call", server.url, "ask", "--task", typed=["a", "pear"])
    sent = json.loads(ran.out)
    assert sent["result"]["action"] == "accept"
    assert sent["result"]["content"] == {"word": "pear"}
    assert sent["result"]["_meta"][RELATED]["taskId"] in server.calls


async def test_A_a_question_is_taken_from_the_get_stream_when_the_first_one_broke(server: Fake) -> None:
    server.cut.clear()
    left = await client("call", server.url, "slow", "--detach", "--json")
    session = left.object["session"]
    call = server.calls[left.object["taskId"]]
    asking = asyncio.gather(
        client(
            "tasks",
            "result",
            server.url,
            str(call.task_id),
            "--session",
            session,
            "--wait",
            "--answer",
            "word=fig",
        )
    )
    await server.until(lambda: len(server.listeners) == 2)
    call.stream = server.listeners[-1]
    found = asyncio.gather(server.tool_ask(call))
    (ran,) = await asking
    await found
    assert json.loads(ran.out)["result"]["content"] == {"word": "fig"}


async def test_sampling_is_answered_by_the_person(server: Fake) -> None:
    ran = await client("call", server.url, "sample", "--task", typed=["four"])
    assert json.loads(ran.out)["result"]["content"] == {"type": "text", "text": "four"}
    assert "user: two and two?" in ran.err


async def test_sampling_can_be_refused(server: Fake) -> None:
    ran = await client("call", server.url, "sample", "--task", typed=[""])
    assert json.loads(ran.out)["error"]["code"] == -1


async def test_numbers_keep_their_spelling_both_ways(server: Fake) -> None:
    ran = await client("call", server.url, "exact", "n=12345678901234567890123", "x:=1.0", "--json")
    assert '"n":12345678901234567890123,"x":1.0' in ran.out
    assert server.sent("tools/call")[0]["params"]["arguments"] == {"n": 12345678901234567890123, "x": 1.0}


async def test_a_detached_task_is_left_with_its_session_and_the_way_back(server: Fake) -> None:
    left = await client("call", server.url, "slow", "--detach")
    assert left.code == 0
    assert not server.ended
    task_id = left.out.strip()
    lines = {
        line.split()[2]: line for line in left.err.splitlines() if line.startswith("  mcp-task-gateway")
    }
    assert set(lines) == {"get", "result", "cancel"}
    got = await client(*words_of(lines["get"]), "--json")
    assert got.object["status"] == "working"
    early = await client(*words_of(lines["result"]))
    assert early.code == 1
    assert "Task status is 'working', not 'completed'" in early.err
    server.go.set()
    fetched = await client(*words_of(lines["result"]), "--wait")
    assert (fetched.code, fetched.out) == (0, "slow is done\n")
    assert task_id in server.calls


async def test_a_detached_task_can_be_cancelled_by_its_id(server: Fake) -> None:
    left = await client("call", server.url, "slow", "--detach", "--json")
    stopped = await client(*words_of(left.object["next"]["cancel"]), "--json")
    assert (stopped.code, stopped.object["status"]) == (0, "cancelled")
    (sent,) = server.sent("notifications/cancelled")
    assert sent["params"]["requestId"] == left.object["requestId"]
    late = await client(*words_of(left.object["next"]["cancel"]))
    assert late.code == 0


async def test_a_cancel_that_the_server_ignores_is_exit_code_1(server: Fake) -> None:
    left = await client("call", server.url, "slow", "--detach", "--json")
    words = [*words_of(left.object["next"]["cancel"]), "--request-id", "7"]
    ran = await client(*words)
    assert ran.code == 1
    assert "--request-id" in ran.err
    assert server.sent("notifications/cancelled")[0]["params"]["requestId"] == 7


async def test_a_task_is_deleted(server: Fake) -> None:
    left = await client("call", server.url, "slow", "--detach", "--json")
    words = (server.url, left.object["taskId"], "--session", left.object["session"])
    gone = await client("tasks", "delete", *words, "--json")
    assert gone.object == {"taskId": left.object["taskId"], "deleted": True}
    again = await client("tasks", "get", *words)
    assert again.code == 1
    assert "Failed to retrieve task: Task not found (-32602)" in again.err


async def test_a_list_follows_its_cursors_up_to_the_limit(server: Fake) -> None:
    lefts = [await client("call", server.url, "slow", "--detach", "--json") for _ in range(5)]
    session = lefts[-1].object["session"]
    every = await client("tasks", "list", server.url, "--session", session, "--json")
    assert [task["taskId"] for task in every.object["tasks"]] == list(server.calls)
    assert '"keepAlive":60000,' in every.out
    some = await client("tasks", "list", server.url, "--session", session, "--limit", "3")
    assert len(some.out.splitlines()) == 3
    assert "there are more" in some.err


async def test_the_session_is_ended_when_nothing_was_left(server: Fake) -> None:
    server.go.set()
    await client("call", server.url, "slow", "--task")
    assert server.sessions == server.ended
    probe, first, *others = server.headers
    assert probe["mcp-method"] == "server/discover"
    assert "mcp-session-id" not in {**probe, **first}
    assert "mcp-method" not in {**first, **others[0]}
    assert all(h["mcp-session-id"] in server.sessions for h in others)
    assert {h["mcp-protocol-version"] for h in others} == {"2025-11-25"}


async def test_polling_waits_as_long_as_a_429_says(server: Fake) -> None:
    server.refuse_method = "tasks/get"
    server.refusals = [web.Response(status=429, headers={"Retry-After": "0"})]
    server.go.set()
    ran = await client("call", server.url, "quiet", "--task")
    assert (ran.code, ran.out) == (0, "quiet is done\n")
    assert "too many requests (429); trying again in 0.5 s" in ran.err


async def test_an_interrupted_task_call_cancels_the_task(server: Fake) -> None:
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
    (call,) = server.calls.values()
    assert call.status == "cancelled"


async def test_a_server_that_goes_away_leaves_the_way_back_and_the_session(server: Fake) -> None:
    running = asyncio.gather(client("call", server.url, "slow", "--task", "--json"))
    await server.until(lambda: "tasks/get" in server.methods())
    server.refuse_method = "tasks/get"
    server.refusals = [web.Response(status=502) for _ in range(8)]
    server.cut.set()
    (ran,) = await running
    assert ran.code == 2
    assert ran.object["taskId"] in server.calls
    assert not server.ended
    server.go.set()
    fetched = await client(*words_of(ran.object["next"]["result"]), "--wait")
    assert fetched.out == "slow is done\n"


async def test_a_task_that_another_session_owns_is_hinted_at(server: Fake) -> None:
    ran = await client("tasks", "get", server.url, "t-1")
    assert ran.code == 1
    assert "--session ID" in ran.err
