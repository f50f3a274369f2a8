"""Dialect B over pipes: `mcp-task-gateway stdio -- COMMAND` in place of the server itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.upstreams import fixture_command, read_runs
from tests.wire.answers import WAIT
from tests.wire.checked import book
from tests.wire.seed_client import PAUSE, Json, eventually
from tests.wire.seed_pipe import SeedPipe
from tests.wire.tasks_b_client import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RELATED,
    TERMINAL,
    VERSION,
    check_task,
    related_to,
)
from tests.wire.tasks_b_world import refusal

WRAP: Final = [sys.executable, "-m", "gateway", "stdio", "--"]
pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("speaks on a pipe, to the stdio front"),
]


class PipeB(SeedPipe):
    """A requester of dialect B over stdio, who checks all that it reads against the schema."""

    asked_for: dict[object, Json]

    async def initialize(self) -> None:
        """Shake hands; keep the result of `initialize`."""
        self.asked_for = {}
        params: Json = {
            "protocolVersion": VERSION,
            "capabilities": {"elicitation": {"form": {}}, "sampling": {}},
            "clientInfo": {"name": "tasks-b", "version": "1"},
        }
        self.welcome = (await self.ask("initialize", params))["result"]
        await self.notify("notifications/initialized")

    async def say(self, message: Json | bytes) -> None:
        """Send a line."""
        if not isinstance(message, bytes) and "method" in message and "id" in message:
            self.asked_for[message["id"]] = message
        await super().say(message)

    async def until(self, wanted: Callable[[Json], bool], seconds: float = WAIT) -> Json:
        """Return the first message that is wanted, checked."""
        message = await super().until(wanted, seconds)
        book(VERSION).check(message, None if "method" in message else self.asked_for.get(message.get("id")))
        return message

    async def start(self, tool: str, arguments: Json | None = None, **more: Json) -> str:
        """Call a tool as a task and return the task's id."""
        params = {"name": tool, "arguments": arguments or {}, "task": {"ttl": 60_000}, **more}
        made = (await self.ask("tools/call", params))["result"]
        check_task(made["task"])
        assert made["task"]["status"] == "working"
        return made["task"]["taskId"]

    async def result(self, task: str) -> Json:
        """Return the response to `tasks/result`."""
        return await self.ask("tasks/result", {"taskId": task})

    async def becomes(self, task: str, status: str) -> Json:
        """Poll until a task has a status and return it."""
        async with asyncio.timeout(WAIT):
            while True:
                found = (await self.ask("tasks/get", {"taskId": task}))["result"]
                if found["status"] == status:
                    return found
                assert found["status"] not in TERMINAL, found
                await asyncio.sleep(PAUSE)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the execution log."""
    return tmp_path_factory.mktemp("pipe") / "runs.jsonl"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pipe(log: Path) -> AsyncIterator[PipeB]:
    """Wrap the fixture server, once for all: the tests take turns."""
    async with PipeB([*WRAP, *fixture_command("mcp2", "stdio", "--log", str(log))]) as client:
        yield client


async def test_a_task_over_pipes(pipe: PipeB) -> None:
    declared = pipe.welcome["capabilities"]["tasks"]
    # There is one client at a pipe: it can be told apart.
    assert {name: declared[name] for name in ("list", "cancel", "requests")} == {
        "list": {},
        "cancel": {},
        "requests": {"tools": {"call": {}}},
    }
    tools = (await pipe.ask("tools/list"))["result"]["tools"]
    assert {tool["execution"]["taskSupport"] for tool in tools} == {"optional"}
    task = await pipe.start("slow_count", {"seconds": 0.4, "steps": 2}, _meta={"progressToken": "mine"})
    answer = await pipe.result(task)
    assert answer["result"]["content"][0]["text"] == "Counted for 0.4 seconds."
    assert answer["result"]["_meta"][RELATED] == {"taskId": task}
    assert (await pipe.becomes(task, "completed"))["ttl"] > 0
    assert task in [one["taskId"] for one in (await pipe.ask("tasks/list"))["result"]["tasks"]]
    told = [m["params"] for m in pipe.seen if m.get("method") == "notifications/progress"]
    assert {params["progressToken"] for params in told} == {"mine"}
    assert {params["_meta"][RELATED]["taskId"] for params in told} == {task}
    status = [m["params"] for m in pipe.seen if m.get("method") == "notifications/tasks/status"]
    assert [params["status"] for params in status if params["taskId"] == task] == ["completed"]


async def test_questions_over_pipes_are_asked_once(pipe: PipeB) -> None:
    task = await pipe.start("two_questions")
    asked = [await pipe.asked(), await pipe.asked()]
    assert [related_to(question) for question in asked] == [task, task]
    await pipe.becomes(task, "input_required")
    # Asking for the result brings neither of them again.
    ident = 77
    await pipe.say({"jsonrpc": "2.0", "id": ident, "method": "tasks/result", "params": {"taskId": task}})
    await pipe.becomes(task, "input_required")
    for question in asked:
        which = question["params"]["message"].split()[-2]
        await pipe.answer(question, {"action": "accept", "content": {"name": f"the {which}"}})
    answer = await pipe.response(ident)
    assert answer["result"]["content"][0]["text"] == "Hello, the first and the second!"
    assert len([m for m in pipe.seen if "id" in m and related_to(m) == task and "method" in m]) == 2


async def test_a_cancelled_task_over_pipes(pipe: PipeB, log: Path) -> None:
    def events() -> list[str]:
        return [run["event"] for run in read_runs(log) if run["tool"] == "never"]

    task = await pipe.start("never")
    await eventually(lambda: events() == ["start"])
    assert (await pipe.ask("tasks/cancel", {"taskId": task}))["result"]["status"] == "cancelled"
    await eventually(lambda: len(events()) == 2)
    assert refusal(await pipe.ask("tasks/cancel", {"taskId": task}))[0] == INVALID_PARAMS
    assert "error" in await pipe.result(task)


async def test_a_wait_over_pipes_is_cancelled_alone(pipe: PipeB) -> None:
    task = await pipe.start("ask_name")
    asked = await pipe.asked()
    waits = {"jsonrpc": "2.0", "id": "waits", "method": "tasks/result", "params": {"taskId": task}}
    await pipe.say(waits)
    await pipe.becomes(task, "input_required")
    await pipe.notify("notifications/cancelled", {"requestId": "waits"})
    await pipe.answer(asked, {"action": "accept", "content": {"name": "Ada"}})
    assert (await pipe.result(task))["result"]["content"][0]["text"] == "Hello, Ada!"
    assert not [m for m in pipe.seen if m.get("id") == "waits"]


async def test_errors_over_pipes(pipe: PipeB) -> None:
    failed, refused = await pipe.start("fail"), await pipe.start("protocol_error")
    assert (await pipe.result(failed))["result"]["isError"] is True
    assert (await pipe.becomes(failed, "failed"))["statusMessage"]
    error = (await pipe.result(refused))["error"]
    assert error["code"] == -32050
    assert error["data"] == {"detail": [1, "two", None]}
    await pipe.becomes(refused, "failed")
    assert refusal(await pipe.ask("tasks/get", {"taskId": "nope"}))[0] == INVALID_PARAMS
    assert refusal(await pipe.ask("tasks/pause", {}))[0] == METHOD_NOT_FOUND
    wish: Json = {"name": "never", "arguments": {}, "task": {"ttl": "soon"}}
    assert refusal(await pipe.ask("tools/call", wish))[0] == INVALID_PARAMS


async def test_what_runs_is_finished_when_the_input_closes(pipe: PipeB, log: Path) -> None:
    task = await pipe.start("slow_count", {"seconds": 0.8, "steps": 2})
    await pipe.say({"jsonrpc": "2.0", "id": "w", "method": "tasks/result", "params": {"taskId": task}})
    await pipe.becomes(task, "working")
    # The last test of this pipe.
    pipe.close_input()
    answer = await pipe.response("w")
    assert answer["result"]["content"][0]["text"] == "Counted for 0.8 seconds."
    await pipe.rest()
    assert await asyncio.wait_for(pipe.child.wait(), 10) == 0
    assert [run["event"] for run in read_runs(log)][-2:] == ["start", "end"]
