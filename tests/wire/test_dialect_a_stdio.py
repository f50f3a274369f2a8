"""Dialect A over pipes: `mcp-task-gateway stdio -- COMMAND` in place of the server itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.upstreams import fixture_command, read_runs
from tests.wire.seed_client import (
    CREATED,
    NOT_FOUND,
    RELATED,
    eventually,
    new_id,
    refusal,
    related_to,
    too_early,
)
from tests.wire.seed_pipe import SeedPipe

WRAP = [sys.executable, "-m", "gateway", "stdio", "--"]
DEMO = [sys.executable, "-m", "gateway.demo"]
# As many servers take a while to start on a busy machine, each test has one; the run log shows it all.
pytestmark = [pytest.mark.timeout(60), pytest.mark.one_replica("speaks on a pipe, to the stdio front")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the file of the execution log."""
    return tmp_path / "runs.jsonl"


@pytest_asyncio.fixture
async def pipe(log: Path) -> AsyncIterator[SeedPipe]:
    """Wrap the fixture server."""
    async with SeedPipe([*WRAP, *fixture_command("mcp2", "stdio", "--log", str(log))]) as client:
        yield client


async def test_a_task_over_pipes(pipe: SeedPipe) -> None:
    assert "tasks" in pipe.welcome["capabilities"]
    task = new_id()
    await pipe.begin(task, "slow_count", {"seconds": 0.5, "steps": 2}, 1, {"keepAlive": 60_000})
    assert await pipe.notification(CREATED) == {
        "jsonrpc": "2.0",
        "method": CREATED,
        "params": {"_meta": {RELATED: {"taskId": task}}},
    }
    got = (await pipe.get(task))["result"]
    assert got["status"] in ("submitted", "working")
    assert got["keepAlive"] == 60_000
    await pipe.reach(task, "working")
    assert refusal(await pipe.fetch(task)) == too_early("working")
    answer = await pipe.response(1)
    assert answer["result"]["content"][0]["text"] == "Counted for 0.5 seconds."
    assert related_to(answer) == task
    await pipe.reach(task, "completed")
    for _ in range(2):
        assert (await pipe.fetch(task))["result"] == answer["result"]
    assert [listed["taskId"] for listed in (await pipe.ask("tasks/list"))["result"]["tasks"]] == [task]
    about_task = [m for m in pipe.seen if related_to(m) == task and "method" in m]
    assert about_task[0]["method"] == CREATED
    await pipe.ask("tasks/delete", {"taskId": task})
    assert refusal(await pipe.get(task)) == NOT_FOUND


async def test_a_cancelled_task_over_pipes(pipe: SeedPipe, log: Path) -> None:
    task = new_id()
    await pipe.begin(task, "never", {}, 0)
    await pipe.notification(CREATED)
    await pipe.reach(task, "working")
    await pipe.notify("notifications/cancelled", {"requestId": 0})
    await pipe.reach(task, "cancelled")
    await eventually(lambda: any(run["event"] != "start" for run in read_runs(log)))
    assert refusal(await pipe.fetch(task)) == too_early("cancelled")
    assert not [m for m in pipe.seen if m.get("id") == 0 and "result" in m]


async def test_questions_over_pipes(pipe: SeedPipe) -> None:
    task = new_id()
    await pipe.begin(task, "two_questions", {}, "two")
    asked = [await pipe.asked(), await pipe.asked()]
    assert [related_to(question) for question in asked] == [task, task]
    await pipe.reach(task, "input_required")
    asked.sort(key=lambda question: question["params"]["message"], reverse=True)
    for question in asked:
        await pipe.reach(task, "input_required")
        which = question["params"]["message"].split()[-2]
        await pipe.answer(question, {"action": "accept", "content": {"name": f"the {which}"}})
    answer = await pipe.response("two")
    assert answer["result"]["content"][0]["text"] == "Hello, the first and the second!"


async def test_a_duplicate_over_pipes_runs_once(pipe: SeedPipe, log: Path) -> None:
    task = new_id()
    await pipe.begin(task, "slow_count", {"seconds": 0.3}, 1)
    await pipe.begin(task, "slow_count", {"seconds": 0.3}, 2)
    assert refusal(await pipe.response(2)) == (-32602, f"Task ID already exists: {task}")
    await pipe.response(1)
    assert [run["event"] for run in read_runs(log)].count("start") == 1


async def test_errors_over_pipes(pipe: SeedPipe) -> None:
    failed, refused = new_id(), new_id()
    await pipe.begin(failed, "fail", {}, 1)
    assert (await pipe.response(1))["result"]["isError"] is True
    await pipe.reach(failed, "completed")
    await pipe.begin(refused, "protocol_error", {}, 2)
    error = (await pipe.response(2))["error"]
    assert error["code"] == -32050
    assert error["data"]["detail"] == [1, "two", None]
    assert "protocol error" in (await pipe.reach(refused, "failed"))["error"]


BAD_LINES = {
    b"not json": -32700,
    b"\xff\xfe": -32700,
    b"[1]": -32600,
    b'{"id":1}': -32600,
    b"[" * 100_000: -32700,
}


async def test_bad_lines_are_answered_and_the_pipe_lives(pipe: SeedPipe) -> None:
    for line, code in BAD_LINES.items():
        await pipe.say(line)
        answer = await pipe.until(lambda m: "error" in m)
        assert answer["error"]["code"] in (code, -32600)
        assert "result" in await pipe.ask("ping")
    await pipe.say(b"")
    await pipe.say(b"   \r")
    assert "result" in await pipe.ask("ping")
    await pipe.say(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"' + b"y" * (6 << 20) + b'"}}')
    answer = await pipe.until(lambda m: "error" in m)
    assert "request_bytes" in refusal(answer)[1]
    assert "result" in await pipe.ask("ping")
    assert not pipe.kept


async def test_what_runs_is_finished_when_the_input_closes(log: Path) -> None:
    async with SeedPipe([*WRAP, *fixture_command("mcp2", "stdio", "--log", str(log))]) as pipe:
        task = new_id()
        await pipe.begin(task, "slow_count", {"seconds": 1.0, "steps": 2}, "last")
        await pipe.notification(CREATED)
        await pipe.reach(task, "working")
        pipe.close_input()
        answer = await pipe.response("last")
        assert answer["result"]["content"][0]["text"] == "Counted for 1 seconds."
        await pipe.rest()
        assert await asyncio.wait_for(pipe.child.wait(), 10) == 0
    assert [run["event"] for run in read_runs(log)] == ["start", "end"]


async def test_an_idle_pipe_ends_with_its_input(pipe: SeedPipe) -> None:
    pipe.close_input()
    await pipe.rest()
    assert await asyncio.wait_for(pipe.child.wait(), 5) == 0


async def test_the_demo_works_as_a_task_over_pipes() -> None:
    async with SeedPipe([*WRAP, *DEMO]) as pipe:
        task = new_id()
        await pipe.begin(task, "ask_name", {}, 1)
        asked = await pipe.asked()
        assert related_to(asked) == task
        await pipe.reach(task, "input_required")
        await pipe.answer(asked, {"action": "accept", "content": {"name": "Ada"}})
        assert (await pipe.response(1))["result"]["content"][0]["text"] == "Hello, Ada!"
        await pipe.reach(task, "completed")


async def test_a_server_that_dies_in_mid_task_says_so(log: Path) -> None:
    async with SeedPipe([*WRAP, *fixture_command("mcp2", "stdio", "--log", str(log))]) as pipe:
        task = new_id()
        await pipe.begin(task, "never", {}, 1)
        await pipe.reach(task, "working")
        await eventually(lambda: bool(read_runs(log)))
        os.kill(read_runs(log)[0]["pid"], signal.SIGKILL)
        answer = await pipe.response(1)
        assert answer["error"]["message"]
        await pipe.rest()
        assert await asyncio.wait_for(pipe.child.wait(), 10) != 0
