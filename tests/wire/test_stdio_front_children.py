"""The children of the stdio front: started when they are needed, none too many, none left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from tests.upstreams import fixture_command, read_runs
from tests.wire.bridge_world import new_key, words
from tests.wire.era_pipe import EraPipe
from tests.wire.modern_upstream import Seen, command, seen_in
from tests.wire.seed_client import eventually

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_replica("speaks on a pipe, to the stdio front")]

WRAP = [sys.executable, "-m", "gateway", "stdio", "--"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "seen.jsonl"


def started(seen: Seen) -> list[int]:
    """Return the process ids of the children by now."""
    return [one["started"] for one in seen.lines if "started" in one]


def lives(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_no_child_is_started_for_a_client_that_needs_none(log: Path) -> None:
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        await pipe.say(b"not json")
        assert (await pipe.until(lambda m: "error" in m))["error"]["code"] == -32700
        # A cancellation that came too late, as clients send it.
        await pipe.cancel("over")
        pipe.close_input()
        assert await pipe.ended() == 0
    assert not seen_in(log).lines


async def test_a_session_has_one_child_whichever_era_it_speaks(log: Path, tmp_path: Path) -> None:
    seen, runs = seen_in(log), tmp_path / "runs.jsonl"
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        await pipe.open()
        assert words((await pipe.call("echo", text="hi"))["result"]) == "hi"
        pid = int(words((await pipe.call("pid"))["result"]))
        task = await pipe.start("hold", key="k")
        await seen.until(lambda: seen.asked("tools/call", key="k"))
        await pipe.call("release", key="k")
        assert words((await pipe.ask("tasks/result", {"taskId": task}))["result"]) == "held k"
        assert started(seen) == [pid]
        pipe.close_input()
        assert await pipe.ended() == 0
    assert not lives(pid)
    async with EraPipe([*WRAP, *fixture_command("mcp1", "stdio", "--log", str(runs))]) as pipe:
        await pipe.open()
        for _ in range(2):
            task = await pipe.start("slow_count", seconds=0.01, steps=1)
            await pipe.ask("tasks/result", {"taskId": task})
        assert len({run["pid"] for run in read_runs(runs)}) == 1


async def test_stateless_requests_share_one_child(log: Path) -> None:
    seen = seen_in(log)
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        pids = {words(await pipe.call_new("pid")) for _ in range(3)}
        assert len(pids) == 1
        sent = [await pipe.send_new("tools/call", {"name": "pid"}, tasks=False) for _ in range(3)]
        pids |= {words((await pipe.answer_to(one))["result"]) for one in sent}
        assert len(pids) == 1
        await pipe.cancel(sent[-1]["id"])
        assert words(await pipe.call_new("pid")) in pids
        # One more was asked which era the server speaks, and has ended since.
        assert len(started(seen)) <= 2
        (asked,) = {str(pid) for pid in started(seen)} - pids or {"0"}
        await eventually(lambda: not lives(int(asked)))
        pipe.close_input()
        assert await pipe.ended() == 0
    assert not [pid for pid in started(seen) if lives(pid)]


async def test_no_child_is_left_by_a_gateway_that_is_killed(log: Path) -> None:
    seen = seen_in(log)
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        await pipe.open()
        await pipe.call_new("pid")
        await pipe.send_new("tools/call", {"name": "never", "arguments": {"key": "k"}}, tasks=False)
        await seen.until(lambda: seen.asked("tools/call", key="k"))
        pipe.child.kill()
        await eventually(lambda: not [pid for pid in started(seen) if lives(pid)])


async def test_a_signal_ends_all_children(log: Path) -> None:
    seen = seen_in(log)
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        await pipe.open()
        await pipe.call_new("pid")
        pipe.child.send_signal(signal.SIGINT)
        assert await pipe.ended() == 0
    assert not [pid for pid in started(seen) if lives(pid)]


@pytest.mark.parametrize("name", ["no-such-server", "/no/such/server"])
async def test_a_command_that_is_not_there_ends_the_front_at_once(name: str) -> None:
    async with EraPipe([*WRAP, name]) as pipe:
        assert await pipe.ended() == 2
        assert "command" in pipe.said
        assert name in pipe.said
        assert not pipe.seen


async def test_a_server_that_cannot_be_started_is_told_to_the_client_and_ends_the_front(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "server"
    broken.write_bytes(b"\x7fELF\x00\x00")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    async with EraPipe([*WRAP, str(broken)]) as pipe:
        answer = await pipe.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert "Upstream unavailable" in answer["error"]["message"]
        assert await pipe.ended() == 1
        assert "mcp-task-gateway: " in pipe.said


async def test_a_server_that_ends_at_once_ends_the_front_with_its_words() -> None:
    dying = [sys.executable, "-c", "import sys; sys.exit('no licence')"]
    async with EraPipe([*WRAP, *dying]) as pipe:
        await pipe.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
        assert await pipe.ended() == 1
        assert "no licence" in pipe.said
        assert "the server ended before its client" in pipe.said


async def test_a_server_that_ends_at_once_is_an_error_of_each_stateless_request() -> None:
    dying = [sys.executable, "-c", "import sys; sys.exit('no licence')"]
    async with EraPipe([*WRAP, *dying]) as pipe:
        for _ in range(2):
            answer = await pipe.new("tools/list")
            assert "Upstream unavailable" in answer["error"]["message"]
        pipe.close_input()
        assert await pipe.ended() == 0


async def test_a_child_that_dies_ends_a_session_and_no_stateless_client(log: Path) -> None:
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        before = words(await pipe.call_new("pid"))
        died = await pipe.new("tools/call", {"name": "die"}, tasks=False)
        assert died["error"]["code"] == -32603
        assert words(await pipe.call_new("pid")) != before
        await pipe.open()
        await pipe.say({"jsonrpc": "2.0", "id": "d", "method": "tools/call", "params": {"name": "die"}})
        assert await pipe.ended() == 1
        assert "the server ended before its client" in pipe.said
        (answer,) = [one for one in pipe.seen if one.get("id") == "d"]
        assert "error" in answer
    assert not [pid for pid in started(seen_in(log)) if lives(pid)]


async def test_what_runs_is_finished_when_the_input_closes(log: Path) -> None:
    seen = seen_in(log)
    params = {"name": "hold", "arguments": {"key": "k"}}
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        await pipe.open()
        await pipe.start("hold", key="k")
        await pipe.say({"jsonrpc": "2.0", "id": "plain", "method": "tools/call", "params": params})
        # The last request comes with the end of the input: it lets all of the session go.
        await seen.until(lambda: len(seen.asked("tools/call", key="k")) == 2)
        release = {"name": "release", "arguments": {"key": "k"}}
        await pipe.say({"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": release})
        pipe.close_input()
        assert await pipe.ended() == 0
        answers = {one["id"]: one for one in pipe.seen if "method" not in one}
        assert words(answers["plain"]["result"]) == "held k"
        assert words(answers["last"]["result"]) == "released"


async def test_stateless_calls_are_answered_and_subscriptions_ended_when_the_input_closes(
    log: Path,
) -> None:
    seen, key = seen_in(log), new_key()
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        wanted = {"notifications": {"toolsListChanged": True}}
        listening = await pipe.send_new("subscriptions/listen", wanted)
        await pipe.notification("notifications/subscriptions/acknowledged")
        held = await pipe.send_new("tools/call", {"name": "hold", "arguments": {"key": key}}, tasks=False)
        await seen.until(lambda: seen.asked("tools/call", key=key))
        last = await pipe.send_new(
            "tools/call", {"name": "release", "arguments": {"key": key}}, tasks=False
        )
        pipe.close_input()
        assert words((await pipe.answer_to(held))["result"]) == f"held {key}"
        assert words((await pipe.answer_to(last))["result"]) == "released"
        # "graceful end": an empty result is the subscription's last word.
        assert (await pipe.answer_to(listening))["result"]["resultType"] == "complete"
        assert await pipe.ended() == 0
    assert not [pid for pid in started(seen) if lives(pid)]


async def test_a_second_signal_ends_the_patience(log: Path) -> None:
    seen = seen_in(log)
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        await pipe.open()
        await pipe.start("never", key="k")
        await seen.until(lambda: seen.asked("tools/call", key="k"))
        pipe.child.send_signal(signal.SIGTERM)
        # What it says of the first signal is not told: each further one may be the second.
        async with asyncio.timeout(10):
            while pipe.child.returncode is None:
                os.kill(pipe.child.pid, signal.SIGTERM)
                await asyncio.sleep(0.1)
    assert not [pid for pid in started(seen) if lives(pid)]
