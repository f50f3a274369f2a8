"""Processes on both event loops: each has its own pipes, however many come and go at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.upstream.process import spawn_process

AT_ONCE = 20
ROUNDS = 8


class Watcher:
    """Hears of one process."""

    def __init__(self) -> None:
        self.data = b""
        self.heard = asyncio.Event()
        self.ended = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.data += data
        if self.data.endswith(b"\n"):
            self.heard.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        return

    def process_exited(self) -> None:
        self.ended.set()

    def pause_writing(self) -> None:
        return

    def resume_writing(self) -> None:
        return


async def talk(words: bytes) -> None:
    """Start a process that repeats what it hears, talk to it, and let it end."""
    watcher = Watcher()
    process = await spawn_process(["cat"], dict(os.environ), None, watcher)
    await process.open()
    assert process.stdin is not None
    process.stdin.write(words)
    async with asyncio.timeout(30):
        await watcher.heard.wait()
        assert watcher.data == words
        process.stdin.close()
        await watcher.ended.wait()
    process.close()


def open_files() -> int:
    """Count the descriptors that are open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


async def many() -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    async def some(number: int) -> None:
        for turn in range(ROUNDS):
            await talk(b"%d of %d\n" % (turn, number))

    # Opens what a loop keeps for itself, which is not counted.
    await talk(b"first\n")
    before = open_files()
    await asyncio.gather(*(some(number) for number in range(AT_ONCE)))
    # A loop closes pipes in its next turns.
    for _ in range(3):
        await asyncio.sleep(0)
    assert not faults
    assert open_files() <= before


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
async def test_processes_that_come_and_go_at_once_keep_their_pipes(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    await asyncio.to_thread(run, many())
