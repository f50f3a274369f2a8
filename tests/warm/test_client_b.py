"""The client in dialect B, against a server written from the text of 2025-11-25."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator

import pytest

from tests.warm.client_fake_b import RELATED, FakeB, fake_b
from tests.warm.client_run import client, command, words_of
from tests.warm.client_terminal import Terminal


@pytest.fixture
async def server() -> AsyncGenerator[FakeB]:
    async with fake_b() as running:
        yield running


async def test_B_auto_finds_the_dialect_and_asks_for_a_task_with_its_ttl(server: FakeB) -> None:
    server.go.set()
    ran = await client("call", server.url, "slow", "rows=3", "--task", "--keep-alive", "90s", "--json")
    assert server.methods()[:4] == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ]
    (sent,) = server.sent("tools/call")
    assert sent["params"] == {"name": "slow", "arguments": {"rows": 3}, "task": {"ttl": 90_000}}
    (task_id,) = server.tasks
    assert (ran.code, ran.object["status"], ran.object["taskId"]) == (0, "completed", task_id)
    assert ran.object["result"]["content"][0]["text"] == "slow is done"
    assert not server.sessions


@pytest.mark.parametrize(
    ("words", "task"), [((), {}), (("--keep-alive", "forever"), {}), (("--keep-alive", "0s"), {"ttl": 0})]
)
async def test_B_a_ttl_is_a_number_or_left_out(
    server: FakeB, words: tuple[str, ...], task: dict[str, int]
) -> None:
    server.go.set()
    await client("call", server.url, "slow", "--task", *words)
    assert server.sent("tools/call")[0]["params"]["task"] == task


async def test_B_the_result_is_asked_for_at_the_end_only(server: FakeB) -> None:
    running = asyncio.gather(client("call", server.url, "slow", "--task"))
    await server.until(lambda: len(server.sent("tasks/get")) > 1)
    assert not server.sent("tasks/result")
    server.go.set()
    (ran,) = await running
    assert (ran.code, ran.out) == (0, "slow is done\n")
    assert "working (at work)" in ran.err
    assert len(server.sent("tasks/result")) == 1
    assert all("_meta" not in m["params"] for m in server.sent("tasks/get") + server.sent("tasks/result"))


@pytest.mark.parametrize("on_get_stream", [False, True])
async def test_B_a_question_is_answered_on_whichever_stream_it_comes(
    server: FakeB, on_get_stream: bool
) -> None:
    server.on_get_stream = on_get_stream
    ran = await client("call", server.url, "ask", "--task", "--answer", "word=fig")
    answered = json.loads(ran.out)["result"]
    (task_id,) = server.tasks
    assert (answered["action"], answered["content"]) == ("accept", {"word": "fig"})
    assert answered["_meta"] == {RELATED: {"taskId": task_id}}


async def test_B_an_is_error_result_of_a_failed_task_is_shown(server: FakeB) -> None:
    ran = await client("call", server.url, "failing", "--task", "--json")
    assert (ran.code, ran.object["status"], ran.object["isError"]) == (1, "failed", True)
    assert ran.object["result"]["content"][0]["text"] == "no such row"


async def test_B_the_error_of_a_failed_task_comes_with_its_code_and_is_not_retried(server: FakeB) -> None:
    ran = await client("call", server.url, "broken", "--task", "--json")
    assert (ran.code, ran.object["status"]) == (1, "failed")
    assert ran.object["error"] == {"code": -32603, "message": "API rate limit exceeded"}
    assert len(server.sent("tasks/result")) == 1


async def test_B_a_status_notification_saves_the_wait_for_the_next_look(server: FakeB) -> None:
    running = asyncio.gather(client("call", server.url, "slow", "--task"))
    await server.until(lambda: bool(server.tasks) and bool(server.listeners))
    (task,) = server.tasks.values()
    await server.until(lambda: bool(server.sent("tasks/get")))
    server.go.set()
    await task.ended.wait()
    server.tell(task)
    (ran,) = await running
    assert ran.code == 0


@pytest.mark.parametrize("support", ["forbidden"])
async def test_B_a_tool_that_forbids_tasks_is_called_plainly_with_a_note(
    server: FakeB, support: str
) -> None:
    server.support["slow"] = support
    ran = await client("call", server.url, "slow", "--task")
    assert (ran.code, ran.out) == (0, "slow was an ordinary call\n")
    assert "slow cannot run as a task (its execution.taskSupport is forbidden)" in ran.err
    assert "task" not in server.sent("tools/call")[0]["params"]


async def test_B_a_tool_that_forbids_tasks_is_not_called_where_b_is_insisted_on(server: FakeB) -> None:
    server.support["slow"] = "forbidden"
    ran = await client("call", server.url, "slow", "--task", "--dialect", "b")
    assert ran.code == 2
    assert "slow cannot run as a task" in ran.err
    assert not server.sent("tools/call")
    assert "server/discover" not in server.methods()


async def test_B_a_required_task_that_was_not_asked_for_is_hinted_at(server: FakeB) -> None:
    server.support["slow"] = "required"
    ran = await client("call", server.url, "slow")
    assert ran.code == 1
    assert "add --task" in ran.err


async def test_B_a_server_without_tasks_is_never_asked_for_one(server: FakeB) -> None:
    server.capabilities = {}
    ran = await client("call", server.url, "slow", "--task")
    assert (ran.code, ran.out) == (0, "slow was an ordinary call\n")
    assert "the server has no tasks: this is an ordinary call" in ran.err
    assert "task" not in server.sent("tools/call")[0]["params"]
    forced = await client("call", server.url, "slow", "--task", "--dialect", "b")
    assert forced.code == 2
    assert "does not offer tasks of dialect b" in forced.err


async def test_B_a_detached_task_is_found_again_by_the_lines_that_were_printed(server: FakeB) -> None:
    left = await client("call", server.url, "slow", "--detach", "--json")
    assert (left.object["dialect"], "requestId" in left.object) == ("b", False)
    assert left.object["session"] in server.sessions
    lines = left.object["next"]
    got = await client(*words_of(lines["get"]))
    for words in ("working", "1m after its creation", "at work"):
        assert words in got.out
    early = await client(*words_of(lines["result"]))
    assert early.code == 1
    assert "there is no result yet: the task is working" in early.err
    server.go.set()
    fetched = await client(*words_of(lines["result"]), "--wait")
    assert (fetched.code, fetched.out) == (0, "slow is done\n")
    late = await client(*words_of(lines["cancel"]), "--json")
    assert (late.code, late.object["status"]) == (1, "completed")


async def test_B_tasks_cancel_is_a_request_of_its_own(server: FakeB) -> None:
    left = await client("call", server.url, "slow", "--detach", "--json")
    stopped = await client(*words_of(left.object["next"]["cancel"]), "--json")
    assert (stopped.code, stopped.object["status"]) == (0, "cancelled")
    assert "notifications/cancelled" not in server.methods()
    result = await client(*words_of(left.object["next"]["result"]))
    assert result.code == 1
    assert "The task was cancelled by request." in result.err


async def test_B_a_list_shows_tasks_and_follows_cursors(server: FakeB) -> None:
    for _ in range(3):
        await client("call", server.url, "slow", "--detach")
    ran = await client("tasks", "list", server.url, "--json")
    assert [task["taskId"] for task in ran.object["tasks"]] == list(server.tasks)
    assert ran.object["tasks"][0]["ttl"] == 60_000
    assert "server/discover" not in server.methods()[-5:]


@pytest.mark.parametrize("action", ["list", "cancel"])
async def test_B_what_the_server_does_not_declare_is_said(server: FakeB, action: str) -> None:
    del server.capabilities[action]
    words = ("--dialect", "b") if action == "list" else ("t-1",)
    ran = await client("tasks", action, server.url, *words)
    assert ran.code == 2
    assert f"declares no capabilities.tasks.{action}" in ran.err


@pytest.mark.parametrize("action", ["delete", "update"])
async def test_B_what_the_dialect_does_not_have_is_said(server: FakeB, action: str) -> None:
    ran = await client("tasks", action, server.url, "t-1")
    assert ran.code == 2
    assert "dialect b" in ran.err


async def test_B_an_unknown_task_is_said_to_be_one(server: FakeB) -> None:
    ran = await client("tasks", "get", server.url, "nope")
    assert ran.code == 1
    assert "Task not found (-32602)" in ran.err
    assert "--session ID" in ran.err


@pytest.mark.parametrize("can_cancel", [True, False])
async def test_B_an_interrupt_cancels_the_task_where_that_can_be_done(
    server: FakeB, can_cancel: bool
) -> None:
    if not can_cancel:
        del server.capabilities["cancel"]
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
    assert (b": cancelled" if can_cancel else b"runs on") in err
    (task,) = server.tasks.values()
    assert task.status == ("cancelled" if can_cancel else "working")


async def test_B_a_terminal_shows_progress_of_the_original_token(server: FakeB) -> None:
    async with Terminal("call", server.url, "slow", "--task") as terminal:
        await terminal.until("50%")
        server.go.set()
        await terminal.until("slow is done")
        assert await terminal.ends() == 0


async def test_B_a_terminal_asks_at_the_prompt(server: FakeB) -> None:
    async with Terminal("call", server.url, "ask", "--task") as terminal:
        await terminal.until("[A]ccept, [d]ecline, [c]ancel:")
        terminal.type("\n")
        await terminal.until("word (text):")
        terminal.type("plum\n")
        await terminal.until('"word": "plum"')
        assert await terminal.ends() == 0
