"""Dialect A in front of a stdio child that misbehaves in mid-task."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.upstreams import fixture_command
from tests.wire.scripted_upstream import Upstream
from tests.wire.seed_client import CREATED, Seed, eventually, new_id, refusal, related_to, too_early
from tests.wire.seed_world import TASKS, House, configuration, started

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
CHILD = [sys.executable, str(Path(__file__).with_name("wild_child.py"))]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def wild(scripted: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """Serve children that misbehave."""
    upstreams = {
        "wild": {"command": CHILD, "tasks": TASKS},
        "stubborn": {"command": [*CHILD, "--stubborn"], "tasks": TASKS},
        "stillborn": {"command": [*CHILD, "--exit"], "tasks": TASKS},
        "asking": {"command": fixture_command("mcp2", "stdio"), "tasks": TASKS},
    }
    limits = {"request_bytes": "1MiB", "result_bytes": "2MiB"}
    config = configuration(scripted, "memory://", upstreams=upstreams, limits=limits)
    gateway = await started(config, tmp_path_factory.mktemp("wild"))
    yield House(scripted, [gateway], None)
    await asyncio.to_thread(gateway.end)


def call(how: str) -> dict[str, object]:
    return {"name": "wild", "arguments": {"how": how}}


@pytest.mark.parametrize("how", ["exit", "abort", "half"])
async def test_I5_a_child_that_goes_in_mid_task_fails_it_in_words(wild: House, how: str) -> None:
    async with wild.client("Bearer child", "wild") as seed:
        task = new_id()
        stream = await seed.begin(task, call(how), ident=1)
        await stream.notification(CREATED)
        assert (await stream.response(1))["error"]["message"]
        got = await seed.reach(task, "failed")
        assert len(got["error"]) > 10
        assert "Traceback" not in got["error"]
        assert refusal(await seed.fetch(task)) == too_early("failed")
        # A new session has a new child.
        async with wild.client("Bearer child", "wild") as again:
            fine = new_id()
            await (await again.begin(fine, call(""), ident=1)).response(1)
            assert "result" in await again.fetch(fine)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("noise", "through the noise"),
        ("flood", "after the flood"),
        ("wrong-id", "right"),
        ("twice", "first"),
        ("", "well"),
    ],
)
async def test_noise_of_a_child_does_not_touch_the_task(wild: House, how: str, words: str) -> None:
    async with wild.client(None, "wild") as seed:
        task = new_id()
        stream = await seed.begin(task, call(how), ident=1)
        assert (await stream.response(1))["result"]["content"][0]["text"] == words
        await seed.reach(task, "completed")
        assert (await seed.fetch(task))["result"]["content"][0]["text"] == words


@pytest.mark.parametrize("listening", [False, True])
async def test_two_questions_of_a_child_are_both_its_tasks(wild: House, listening: bool) -> None:
    async with wild.client(None, "asking") as seed:
        if listening:
            await seed.listen()
        task = new_id()
        stream = await seed.begin(task, {"name": "two_questions", "arguments": {}}, ident=1)
        asked = [await stream.asked(3), await stream.asked(3)]
        assert [related_to(question) for question in asked] == [task, task]
        for question in reversed(asked):
            await seed.reach(task, "input_required")
            which = question["params"]["message"].split()[-2]
            await seed.answer(question, {"action": "accept", "content": {"name": f"the {which}"}})
        answer = await stream.response(1)
        assert answer["result"]["content"][0]["text"] == "Hello, the first and the second!"


async def test_a_line_that_is_too_long_fails_the_task_in_words(wild: House) -> None:
    async with wild.client(None, "wild") as seed:
        task = new_id()
        stream = await seed.begin(task, call("long"), ident=1)
        await stream.response(1)
        got = await seed.reach(task, "failed")
        assert "line" in got["error"] or "_bytes" in got["error"]


async def test_a_child_that_exits_at_once_is_said_to_have(wild: House) -> None:
    seed = Seed(wild.url("stillborn"))
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    async with await seed.post(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    ) as exchange:
        assert exchange.status in (200, 502, 503)
        answer = await exchange.json()
    assert answer["id"] == 1
    assert "exited with code 4" in refusal(answer)[1]
    seed.vanish()


async def test_one_child_that_dies_leaves_the_others_alone(wild: House) -> None:
    async with wild.client("Bearer one", "wild") as one, wild.client("Bearer two", "wild") as two:
        task, other = new_id(), new_id()
        await two.begin(other, call("never"), ident=1)
        await two.reach(other, "working")
        await one.begin(task, call("exit"), ident=1)
        await one.reach(task, "failed")
        assert (await two.get(other))["result"]["status"] == "working"
        await two.cancel(1)
        await two.reach(other, "cancelled")


async def test_a_child_that_ignores_sigterm_is_gone_after_its_session(wild: House) -> None:
    async with wild.client(None, "stubborn") as seed:
        pid = (await seed.ask("ping"))["result"]["pid"]
        assert (await seed.send("DELETE")).status in (200, 202, 204)
    await eventually(lambda: not alive(pid), 30)


async def test_a_task_of_a_session_that_ended_is_finished_by_its_child(wild: House) -> None:
    async with wild.client("Bearer leaves", "wild") as seed:
        task = new_id()
        await seed.begin(task, call("never"), ident=1)
        pid = (await seed.ask("ping"))["result"]["pid"]
        await seed.reach(task, "working")
        await seed.send("DELETE")
    async with wild.client("Bearer leaves", "wild") as again:
        await again.reach(task, "working")
        assert alive(pid)
        assert "result" in await again.delete(task)
    await eventually(lambda: not alive(pid), 15)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
