"""Child processes as upstreams: good ones, bad ones, and that none of them stays."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.aio.clock import SystemClock
from gateway.protocol.errors import ConfigError, Refusal, UpstreamLost
from gateway.upstream.auto import CommandUpstream, build
from gateway.upstream.child import environment
from gateway.upstream.link import MessageLink
from gateway.upstream.options import CommandOptions
from tests.warm.raw_servers import LeapClock, until

CHILD = str(Path(__file__).with_name("upstream_child.py"))
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'


def children() -> set[int]:
    """Return the processes that descend from this one, zombies included."""
    found: set[int] = set()
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and pid != os.getpid():
            found.add(pid)
    return found


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@asynccontextmanager
async def upstream(*arguments: str, **more: object) -> AsyncGenerator[CommandUpstream]:
    before, held = children(), descriptors()
    options = CommandOptions(
        name="x",
        command=(sys.executable, CHILD, *arguments),
        **{"stop_grace": 5.0, **more},  # pyright: ignore[reportArgumentType]
    )
    built = CommandUpstream(options, SystemClock())
    try:
        yield built
    finally:
        await built.close()
        assert children() == before
        await asyncio.sleep(0)
        assert descriptors() <= held


async def call(link: MessageLink, message: bytes = CALL) -> list[bytes]:
    return [raw async for raw in link.exchange(message, [])]


async def begin(built: CommandUpstream, tag: str = "t") -> MessageLink:
    link, answer = await built.links.open(tag, INITIALIZE, [])
    assert json.loads(answer)["id"] == 0
    return link


async def test_a_child_is_started_initialized_and_ended() -> None:
    async with upstream("good") as built:
        link = await begin(built)
        (answer,) = await call(link)
        pid = json.loads(answer)["result"]["pid"]
        assert lives(pid)
        assert link.alive
        await built.links.drop("t")
        assert not lives(pid)
        assert not link.alive
        assert len(built.links) == 0


async def test_messages_before_the_answer_to_initialize_wait_for_the_listener() -> None:
    async with upstream("good") as built:
        link = await begin(built)
        assert json.loads(await anext(link.listen()))["method"] == "notifications/message"


async def test_a_child_knows_a_safe_environment_and_what_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "s")
    async with upstream("good", env={"OWN": "1"}, cwd=str(tmp_path)) as built:
        (answer,) = await call(await begin(built))
        found = json.loads(answer)["result"]
        assert found["env"]["OWN"] == "1"
        assert found["env"]["PATH"] == os.environ["PATH"]
        assert "GATEWAY_SECRET" not in found["env"]
        assert found["cwd"] == str(tmp_path)
    assert environment({"LC_ALL": "C", "X": "1", "PATH": "a"}, {"PATH": "b"}) == {
        "LC_ALL": "C",
        "PATH": "b",
    }


async def test_a_child_that_exits_at_once_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    async with upstream("exit-at-once") as built:
        with pytest.raises(UpstreamLost) as caught:
            await begin(built)
        assert str(caught.value) == "the upstream process exited with code 3 before it answered initialize"
        assert "cannot find my settings" in caplog.text


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("exit-in-call", "the upstream process exited with code 3 during the call"),
        ("killed-in-call", "the upstream process was killed by SIGKILL during the call"),
        ("close-output", "the upstream process closed its output during the call"),
    ],
)
async def test_I5_a_child_that_ends_in_mid_call_is_told_in_words(mode: str, words: str) -> None:
    async with upstream(mode, stop_grace=0.2) as built:
        link = await begin(built)
        with pytest.raises(UpstreamLost) as caught:
            await call(link)
        assert str(caught.value) == words
        assert not link.alive
        assert await built.links.find("t", None, []) is None
        revived = await built.links.find("t", INITIALIZE, [])
        assert revived is not None
        assert revived.alive


async def test_the_last_words_of_a_child_are_heard_before_its_exit() -> None:
    async with upstream("answer-and-exit") as built:
        (answer,) = await call(await begin(built))
        assert json.loads(answer)["result"] == {"last": True}


@pytest.mark.parametrize("mode", ["flood", "noise"])
async def test_errors_and_noise_do_not_hold_up_a_call(mode: str) -> None:
    async with upstream(mode) as built:
        link = await begin(built)
        assert len(await call(link)) == 1
        assert len(await call(link)) == 1


async def test_a_line_of_ten_megabytes_passes_and_a_longer_one_is_told_in_words() -> None:
    async with upstream("long-line", "10000000") as built:
        (answer,) = await call(await begin(built))
        assert len(answer) > 10_000_000
    async with upstream("long-line", "1000000", max_line=100_000) as built:
        with pytest.raises(UpstreamLost) as caught:
            await call(await begin(built))
        assert str(caught.value) == "the upstream sent a line longer than 100000 bytes during the call"
        assert len(built.links) == 0


async def test_a_child_that_is_never_ready_ends_after_its_time() -> None:
    async with upstream("never-ready", start_timeout=0.5) as built:
        with pytest.raises(UpstreamLost, match=r"did not answer initialize within 0\.5 s"):
            await begin(built)
        assert len(built.links) == 0


async def test_a_child_and_grandchild_that_ignore_sigterm_are_killed(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with upstream("stubborn", str(note), stop_grace=0.2) as built:
        await begin(built)
        pids = [int(one) for one in note.read_text().split()]
        assert all(lives(pid) for pid in pids)
        await built.links.drop("t")
        assert not any(lives(pid) for pid in pids)


async def test_a_caller_that_is_cancelled_leaves_no_child_behind(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with upstream("stubborn", str(note), stop_grace=0.1) as built:
        await begin(built)
        pids = [int(one) for one in note.read_text().split()]
        dropping = asyncio.create_task(built.links.drop("t"))
        await asyncio.sleep(0)
        dropping.cancel()
        await asyncio.gather(dropping, return_exceptions=True)
        await built.close()
        assert not any(lives(pid) for pid in pids)


async def test_a_start_that_is_cancelled_leaves_no_child_behind() -> None:
    async with upstream("never-ready") as built:
        before = children()
        opening = asyncio.create_task(begin(built))
        await until(lambda: children() != before)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        assert len(built.links) == 0


async def test_the_children_of_a_gateway_that_is_killed_end_too(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = (
        "import asyncio, sys\n"
        "from gateway.aio.clock import SystemClock\n"
        "from gateway.upstream.auto import CommandUpstream\n"
        "from gateway.upstream.options import CommandOptions\n"
        "async def main():\n"
        "    options = CommandOptions(name='x', command=tuple(sys.argv[2:]))\n"
        "    await CommandUpstream(options, SystemClock()).links.open('t', sys.argv[1].encode(), [])\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    arguments = ["-c", script, INITIALIZE.decode(), sys.executable, CHILD, "stubborn", str(note)]
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert gateway.stdout is not None
    assert await gateway.stdout.readline() == b"ready\n"
    pids = [int(one) for one in note.read_text().split()]
    gateway.kill()
    await gateway.wait()
    await until(lambda: not (any(lives(pid) for pid in pids)))


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    for options, words in (
        (
            CommandOptions(name="x", command=("no-such-command",)),
            "the command was not found: no-such-command",
        ),
        (
            CommandOptions(name="x", command=(sys.executable,), cwd=str(tmp_path / "no")),
            f"the working directory does not exist: {tmp_path / 'no'}",
        ),
    ):
        built = build(options, SystemClock())
        assert await built.check() == words
        assert built.links is not None
        with pytest.raises(UpstreamLost, match="was not found") as caught:
            await built.links.open("t", INITIALIZE, [])
        assert not caught.value.sent
        await built.close()
    assert await build(CommandOptions(name="x", command=(sys.executable,)), SystemClock()).check() is None
    with pytest.raises(ConfigError):
        build(CommandOptions(name="x", command=()), SystemClock())


async def test_I10_the_number_of_children_is_bounded() -> None:
    async with upstream("good", max_links=2) as built:
        await begin(built, "a")
        await begin(built, "b")
        with pytest.raises(Refusal, match=r"^Limit reached: links \(2 ") as caught:
            await begin(built, "c")
        assert caught.value.data == {"limit": "links", "max": 2, "retryAfter": 30}
        assert caught.value.status == 503
        await built.links.drop("a")
        await begin(built, "c")


async def test_a_dead_link_is_revived_once_for_all_who_ask() -> None:
    counts: list[int] = []
    options = CommandOptions(name="x", command=(sys.executable, CHILD, "tells"))
    built = CommandUpstream(options, SystemClock(), counts.append)
    links = await asyncio.gather(*(built.links.find("t", INITIALIZE, []) for _ in range(3)))
    assert links[0] is not None
    assert links == [links[0]] * 3
    assert counts == [1]
    heard = links[0].listen()
    methods = [json.loads(await anext(heard))["method"] for _ in range(2)]
    assert methods == ["notifications/message", "notifications/ready"]
    await heard.aclose()
    assert await built.links.find("t", None, []) is links[0]
    await built.close()
    assert counts[-1] == 0


async def test_I10_a_link_that_nobody_uses_ends_and_a_busy_one_stays() -> None:
    clock, before = LeapClock(), threading.active_count()
    options = CommandOptions(name="x", command=(sys.executable, CHILD, "silent"), idle=3600.0)
    built = CommandUpstream(options, clock)
    await built.links.open("idle", INITIALIZE, [])
    busy, _ = await built.links.open("busy", INITIALIZE, [])
    running = asyncio.create_task(call(busy))
    await until(lambda: len(built.links) <= 1)
    assert busy.alive
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: not (len(built.links)))
    await built.close()
    assert threading.active_count() < before + 10


async def test_I10_a_child_that_floods_its_output_is_ended() -> None:
    options = CommandOptions(name="flood", command=("yes",), start_timeout=30.0)
    upstream = CommandUpstream(options, SystemClock())
    try:
        with pytest.raises(UpstreamLost, match="lines that are not JSON-RPC, one after the other"):
            await upstream.links.open("t", INITIALIZE, [])
        await until(lambda: not any(lives(pid) and _is_yes(pid) for pid in children()))
    finally:
        await upstream.close()


def _is_yes(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "yes"
    except OSError:
        return False
