"""Stdio children that die, hang, go mute or flood (I5, field case 59)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.gateways import Gateway, StartGateway
from tests.processes import ROOT
from tests.wire.raw_upstream import soon
from tests.wire.seed_client import WAIT, Json, Seed, about, augmented, new_id
from tests.wire.seed_world import started

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHILD: Final = str(Path(__file__).with_name("break_child.py"))
TASKS: Final[Json] = {
    "timeout": "30s",
    "tools": {"deaf": {"timeout": "300ms"}, "frozen": {"timeout": "300ms"}},
}


def configuration() -> Json:
    """Return a configuration whose upstream is the child."""
    return {
        "store": {"url": "memory://"},
        "upstreams": {"child": {"command": [sys.executable, CHILD], "tasks": TASKS}},
        "limits": {"result_bytes": "1MiB"},
        "drain": "1s",
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def keeper(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """Serve the child."""
    gateway = await started(configuration(), tmp_path_factory.mktemp("children"))
    yield gateway
    await asyncio.to_thread(gateway.end)


def gone(pid: int) -> bool:
    """Tell whether a process is gone, or is a zombie that somebody else has to reap."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("die", "exited with code 3"),
        ("deaf", "did not answer within 0.3 s"),
        ("frozen", "did not answer within 0.3 s"),
        ("mute", "closed its output"),
        ("endless_line", "line longer than"),
    ],
)
async def test_I5_a_child_that_cannot_answer_fails_its_task_in_words(
    keeper: Gateway, name: str, words: str
) -> None:
    async with Seed(keeper.url()) as seed:
        task = new_id()
        stream = await seed.begin(task, {"name": name, "arguments": {}}, ident=1)
        refused = await stream.response(1)
        assert words in refused["error"]["message"]
        assert (await seed.get(task))["result"]["error"] == refused["error"]["message"]
        async with await seed.send("DELETE") as exchange:
            assert exchange.status < 300


@pytest.mark.parametrize("name", ["flood", "noise", "twice", "done"])
async def test_a_child_that_talks_too_much_still_completes_its_task(keeper: Gateway, name: str) -> None:
    async with Seed(keeper.url()) as seed:
        task = new_id()
        stream = await seed.begin(task, {"name": name, "arguments": {}}, ident=1)
        assert (await stream.response(1))["result"]["content"][0]["text"] == "done"
        assert not await stream.rest() or stream.seen[-1]["id"] == 1
        assert (await seed.get(task))["result"]["status"] == "completed"


async def test_a_plain_call_of_a_child_that_went_mute_is_answered(keeper: Gateway) -> None:
    async with Seed(keeper.url()) as seed:
        answer = await seed.ask("tools/call", {"name": "mute", "arguments": {}})
        assert "closed its output" in answer["error"]["message"]


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_59_nothing_of_a_child_is_left_when_the_gateway_is_killed(gateway: StartGateway) -> None:
    killed = await asyncio.to_thread(gateway, configuration())
    async with Seed(killed.url()) as seed:
        answer = await seed.ask("tools/call", {"name": "grandchild", "arguments": {}})
        deaf = await seed.begin(new_id(), {"name": "deaf", "arguments": {}})
        killed.process.send(signal.SIGKILL)
        try:
            await soon(lambda: gone(answer["result"]["pid"]) and gone(answer["result"]["own"]))
        finally:
            for name in ("pid", "own"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(answer["result"][name], signal.SIGKILL)
        deaf.cut()


async def pipe() -> asyncio.subprocess.Process:
    """Start the stdio front around the child, shake hands."""
    front = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "stdio", "--", sys.executable, CHILD),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert front.stdin is not None
    assert front.stdout is not None
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "p", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    front.stdin.write(json.dumps(message).encode() + b"\n")
    assert b'"id":1' in (await asyncio.wait_for(front.stdout.readline(), WAIT)).replace(b" ", b"")
    return front


async def end(front: asyncio.subprocess.Process) -> None:
    """End a process whatever it does, and let its pipes close."""
    if front.returncode is None:
        front.kill()
    # What nobody has read would keep the pipe open.
    if front.stdout is not None:
        await front.stdout.read()
    await front.wait()
    await asyncio.sleep(0.05)


@pytest.mark.one_replica("speaks on a pipe, to the stdio front")
async def test_a_second_signal_ends_the_patience_of_the_stdio_front() -> None:
    front = await pipe()
    try:
        assert front.stdin is not None
        assert front.stdout is not None
        message = augmented("slow", {"name": "slow", "arguments": {}}, "tools/call", 3)
        front.stdin.write(json.dumps(message).encode() + b"\n")
        assert b"tasks/created" in await asyncio.wait_for(front.stdout.readline(), WAIT)
        async with asyncio.timeout(WAIT):
            while front.returncode is None:
                front.send_signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(front.wait(), 0.1)
        # A signal more than two may meet a process that no longer listens for it.
        assert front.returncode in (0, -signal.SIGTERM)
    finally:
        await end(front)


@pytest.mark.one_replica("speaks on a pipe, to the stdio front")
async def test_I10_look_ups_of_a_client_that_does_not_read_wait_in_its_own_pipe() -> None:
    front = await pipe()
    try:
        assert front.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tasks/get", "params": about("x" * 900)})
        wrote = 0
        # What fits into pipes and stream buffers is a few hundred kB; nobody reads our end.
        with contextlib.suppress(TimeoutError):
            while wrote < 64 * 1024 * 1024:
                front.stdin.write((line + "\n").encode() * 500)
                wrote += 500 * len(line)
                async with asyncio.timeout(1.0):
                    await front.stdin.drain()
        assert wrote < 32 * 1024 * 1024
    finally:
        await end(front)
