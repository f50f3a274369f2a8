"""Tasks of all three dialects on the stdio front, over servers with tasks of their own and without."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters, types

from tests import upstreams
from tests.processes import ROOT
from tests.tools import venv_python
from tests.upstreams import fixture_command, read_runs
from tests.wire.bridge_world import new_key, words
from tests.wire.era_pipe import LEGACY, EraPipe, related_in_b
from tests.wire.modern_upstream import command, seen_in
from tests.wire.modern_words import VERSION, Json
from tests.wire.seed_client import CREATED, eventually, new_id, related_to
from tests.wire.stateless_rules import accept

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.one_replica("speaks on a pipe, to the stdio front"),
]

WRAP = [sys.executable, "-m", "gateway", "stdio", "--"]
# Every call that may be a task is one.
AT_ONCE = {**os.environ, "GATEWAY_UPSTREAMS__WRAPPED__TASKS__INLINE_WITHIN": "0s"}
SERVERS = {"modern": False, "tasks": True}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def log(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(server) / "seen.jsonl"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened(server: str, log: Path) -> AsyncIterator[EraPipe]:
    """Wrap a stateless server, without tasks of its own and with them; shake hands."""
    async with EraPipe([*WRAP, *command(log, tasks=SERVERS[server])], AT_ONCE) as made:
        await made.open()
        yield made


@pytest.fixture
def pipe(opened: EraPipe) -> EraPipe:
    """Return a client that speaks all dialects and has forgotten what earlier tests heard."""
    opened.kept.clear()
    opened.seen.clear()
    return opened


def native_b(log: Path) -> list[str]:
    module = "tests.fixture_servers.native_b_server"
    return [*WRAP, str(venv_python("mcp1")), "-m", module, "stdio", "--log", str(log)]


async def test_dialect_b_over_a_stateless_server(pipe: EraPipe, log: Path, server: str) -> None:
    seen, key = seen_in(log), new_key()
    task = await pipe.start("job", key=key)
    await seen.until(lambda: seen.asked("tools/call", key=key))
    assert (await pipe.ask("tasks/get", {"taskId": task}))["result"]["status"] == "working"
    assert task in {one["taskId"] for one in (await pipe.ask("tasks/list"))["result"]["tasks"]}
    await pipe.call("release", key=key)
    answer = await pipe.ask("tasks/result", {"taskId": task})
    assert words(answer["result"]) == (f"Done: {key}." if SERVERS[server] else f"held {key}")
    assert related_in_b(answer) == task
    unknown = await pipe.ask("tasks/get", {"taskId": "nowhere"})
    assert unknown["error"]["code"] == -32602
    assert len([one for one in seen.asked("tools/call", key=key) if one["params"]["name"] == "job"]) == 1
    seen.check()


async def test_dialect_b_is_asked_and_cancels_over_a_stateless_server(pipe: EraPipe, log: Path) -> None:
    seen, key = seen_in(log), new_key()
    asking = await pipe.start("ask_name")
    asked = await pipe.asked()
    assert (asked["method"], related_in_b(asked)) == ("elicitation/create", asking)
    await pipe.answer(asked, accept(name="Ada"))
    assert '"Ada"' in words((await pipe.ask("tasks/result", {"taskId": asking}))["result"])
    endless = await pipe.start("never", key=key)
    await seen.until(lambda: seen.asked("tools/call", key=key))
    assert (await pipe.ask("tasks/cancel", {"taskId": endless}))["result"]["status"] == "cancelled"
    await seen.until(lambda: seen.cancelled(key=key))


async def test_dialect_a_over_a_stateless_server(pipe: EraPipe, log: Path) -> None:
    task = new_id()
    await pipe.begin(task, "ask_name", {}, "call")
    assert related_to(await pipe.notification(CREATED)) == task
    asked = await pipe.asked()
    assert related_to(asked) == task
    await pipe.answer(asked, accept(name="Ada"))
    answer = await pipe.response("call")
    assert related_to(answer) == task
    assert '"Ada"' in words(answer["result"])
    assert (await pipe.fetch(task))["result"] == answer["result"]
    stopped, key, seen = new_id(), new_key(), seen_in(log)
    await pipe.begin(stopped, "never", {"key": key}, "stop")
    await seen.until(lambda: seen.asked("tools/call", key=key))
    await pipe.cancel("stop")
    await seen.until(lambda: seen.cancelled(key=key))
    assert (await pipe.get(stopped))["result"]["status"] == "cancelled"


async def test_dialect_c_over_a_stateless_server(pipe: EraPipe, log: Path, server: str) -> None:
    seen, key = seen_in(log), new_key()
    params: Json = {"name": "must_job" if SERVERS[server] else "ask_name"}
    created = (await pipe.new("tools/call", {**params, "arguments": {"key": key, "ask": True}}))["result"]
    assert created["resultType"] == "task"
    task = await pipe.reach_new(created["taskId"], "input_required")
    answers = {one: accept(name="Ada") for one in task["inputRequests"]}
    await pipe.new("tasks/update", {"taskId": created["taskId"], "inputResponses": answers})
    done = await pipe.reach_new(created["taskId"], "completed")
    assert "Ada" in words(done["result"])
    assert (await pipe.new("tasks/get", {"taskId": "nowhere"}))["error"]["code"] == -32602
    # Asking takes a second round where the server has no tasks.
    assert len(seen.asked("tools/call", key=key)) == (1 if SERVERS[server] else 2)
    seen.check()


async def test_a_long_call_becomes_a_task_of_dialect_c_and_tells_its_subscriber(
    pipe: EraPipe, log: Path
) -> None:
    seen, key = seen_in(log), new_key()
    created = (await pipe.new("tools/call", {"name": "hold", "arguments": {"key": key}}))["result"]
    assert (created["resultType"], created["status"]) == ("task", "working")
    listening = await pipe.send_new(
        "subscriptions/listen", {"notifications": {"taskIds": [created["taskId"]]}}
    )
    acknowledged = await pipe.notification("notifications/subscriptions/acknowledged")
    assert acknowledged["params"]["notifications"] == {"taskIds": [created["taskId"]]}
    await pipe.call_new("release", key=key)
    while (told := await pipe.notification("notifications/tasks"))["params"]["status"] == "working":
        pass
    assert words(told["params"]["result"]) == f"held {key}"
    await pipe.cancel(listening["id"])
    endless_key = new_key()
    params: Json = {"name": "never", "arguments": {"key": endless_key}}
    endless = (await pipe.new("tools/call", params))["result"]
    await seen.until(lambda: seen.asked("tools/call", key=endless_key))
    await pipe.new("tasks/cancel", {"taskId": endless["taskId"]})
    await pipe.reach_new(endless["taskId"], "cancelled")
    await seen.until(lambda: seen.cancelled(key=endless_key))


async def test_a_task_of_one_era_is_read_in_the_other_on_the_same_pipe(pipe: EraPipe, log: Path) -> None:
    task = await pipe.start("ask_name")
    state = await pipe.reach_new(task, "input_required")
    answers = {one: accept(name="Ada") for one in state["inputRequests"]}
    await pipe.new("tasks/update", {"taskId": task, "inputResponses": answers})
    done = await pipe.reach_new(task, "completed")
    assert '"Ada"' in words(done["result"])
    newer = (await pipe.new("tools/call", {"name": "never", "arguments": {}}))["result"]["taskId"]
    assert (await pipe.ask("tasks/get", {"taskId": newer}))["result"]["status"] == "working"
    assert (await pipe.ask("tasks/cancel", {"taskId": newer}))["result"]["status"] == "cancelled"
    assert (await pipe.new("tasks/get", {"taskId": newer}))["result"]["status"] == "cancelled"


async def test_tasks_of_the_servers_own_in_every_dialect(tmp_path: Path) -> None:
    log = tmp_path / "runs.jsonl"
    async with EraPipe(native_b(log), AT_ONCE) as pipe:
        await pipe.open()
        only = "only_as_task"
        params: Json = {"name": only, "arguments": {}, "task": {"ttl": 60_000}}
        # Its own dialect: its own task, whose id it gave itself.
        task = (await pipe.ask("tools/call", params))["result"]["task"]["taskId"]
        assert words((await pipe.ask("tasks/result", {"taskId": task}))["result"]) == "Done as a task."
        assert task in {one["taskId"] for one in (await pipe.ask("tasks/list"))["result"]["tasks"]}
        unknown = await pipe.ask("tasks/get", {"taskId": "nowhere"})
        assert "nowhere" in unknown["error"]["message"]
        # A plain call, and one of dialect A.
        assert words((await pipe.call(only))["result"]) == "Done as a task."
        task = new_id()
        await pipe.begin(task, only, {}, "a")
        assert words((await pipe.response("a"))["result"]) == "Done as a task."
        assert words((await pipe.fetch(task))["result"]) == "Done as a task."
        # The other era, with tasks and without.
        assert words(await pipe.call_new(only)) == "Done as a task."
        created = (await pipe.new("tools/call", {"name": only, "arguments": {}}))["result"]
        done = await pipe.reach_new(created["taskId"], "completed")
        assert words(done["result"]) == "Done as a task."
    assert [run["event"] for run in read_runs(log)].count("start") == 5


async def test_a_plain_call_that_runs_as_a_task_is_asked_and_cancelled_on_the_pipe() -> None:
    everything = upstreams.everything_command()
    async with EraPipe([*WRAP, *everything]) as pipe:
        await pipe.open()
        query: Json = {"name": "simulate-research-query", "arguments": {"topic": "python"}}
        asking = {**query, "arguments": {"topic": "python", "ambiguous": True}}
        stopped = {**query, "_meta": {"progressToken": "p"}}
        await pipe.say({"jsonrpc": "2.0", "id": "ask", "method": "tools/call", "params": asking})
        await pipe.say({"jsonrpc": "2.0", "id": "stop", "method": "tools/call", "params": stopped})
        told = await pipe.notification("notifications/progress")
        assert told["params"]["progressToken"] == "p"
        await pipe.cancel("stop")
        assert "error" in await pipe.response("stop")
        asked = await pipe.until(lambda one: one.get("method") == "elicitation/create")
        # While it waits the pipe serves on.
        assert (await pipe.ask("ping"))["result"] == {}
        await pipe.answer(asked, accept(interpretation="programming"))
        assert "programming" in words((await pipe.response("ask"))["result"])
        listed = (await pipe.ask("tasks/list"))["result"]["tasks"]
        # A busy server may have ended its work before it hears of the cancel.
        assert sorted(one["status"] for one in listed)[1:] == ["completed"]


@pytest.mark.parametrize(
    ("child", "mode", "version"),
    [
        ("modern", "auto", VERSION),
        ("modern", "legacy", LEGACY),
        ("old", "auto", VERSION),
        ("old", "legacy", LEGACY),
        ("old", VERSION, VERSION),
    ],
)
async def test_the_official_client_on_the_pipe(tmp_path: Path, child: str, mode: Any, version: str) -> None:
    asked: list[str] = []
    steps: list[float] = []

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def step(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    wrapped = command(tmp_path / "seen.jsonl") if child == "modern" else fixture_command("mcp1", "stdio")
    parameters = StdioServerParameters(
        command=WRAP[0], args=[*WRAP[1:], *wrapped], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )
    async with Client(parameters, mode=mode, elicitation_callback=elicit) as client:
        assert client.protocol_version == version
        tool, arguments = (
            ("count", {}) if child == "modern" else ("slow_count", {"seconds": 0.1, "steps": 3})
        )
        counted = await client.call_tool(tool, arguments, progress_callback=step)
        assert "ounted" in counted.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        greeted = await client.call_tool("ask_name", {})
        assert "Ada" in greeted.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert len(asked) == 1
    await eventually(lambda: len(steps) >= 3)


async def test_the_older_official_client_has_tasks_over_a_stateless_server(tmp_path: Path) -> None:
    program = [str(venv_python("mcp1")), "-W", "ignore", "-m", "tests.clients.py1_pipe"]
    child = await asyncio.create_subprocess_exec(
        *program, *WRAP, *command(tmp_path / "seen.jsonl"), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        written, _ = await child.communicate()
    found: Json = json.loads(written)
    assert (found["version"], found["plain"], found["task"]) == (LEGACY, "counted", "counted")
    assert json.loads(found["asked"]) == {"name": accept(name="Ada")}


async def test_a_task_that_nobody_can_answer_any_more_does_not_keep_the_front(tmp_path: Path) -> None:
    async with EraPipe([*WRAP, *command(tmp_path / "seen.jsonl")]) as pipe:
        await pipe.open()
        await pipe.start("ask_name")
        await pipe.asked()
        pipe.close_input()
        assert await pipe.ended() == 0
