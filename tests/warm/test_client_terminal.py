"""The client on a terminal, as a person has it: a pseudo-terminal and a process of its own."""

from __future__ import annotations

import asyncio
import os
import pty
import re
from collections.abc import AsyncGenerator

import pytest

from tests.warm.client_fake import Fake, fake
from tests.warm.client_run import command

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A client on a pseudo-terminal: what it shows, and a keyboard."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._shown = b""
        self._more = asyncio.Event()
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Terminal:
        self._keyboard, inner = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        self.process = await asyncio.create_subprocess_exec(
            *command(*self._words), stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True
        )
        os.close(inner)
        asyncio.get_running_loop().add_reader(self._keyboard, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._keyboard)
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        os.close(self._keyboard)

    def _read(self) -> None:
        try:
            data = os.read(self._keyboard, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._keyboard)
        self._shown += data
        self._more.set()

    @property
    def shown(self) -> str:
        return ESCAPES.sub("", self._shown.decode())

    async def until(self, words: str) -> None:
        async with asyncio.timeout(20):
            while words not in self.shown:
                self._more.clear()
                await self._more.wait()

    def type(self, line: str) -> None:
        os.write(self._keyboard, line.encode())

    async def ends(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 20)


@pytest.fixture
async def server() -> AsyncGenerator[Fake]:
    async with fake() as running:
        yield running


async def test_a_terminal_shows_progress_while_a_task_runs(server: Fake) -> None:
    async with Terminal("call", server.url, "slow", "--task") as terminal:
        await terminal.until("half of it")
        await terminal.until("50%")
        await terminal.until("working")
        server.go.set()
        await terminal.until("slow is done")
        assert await terminal.ends() == 0
    assert server.sent("tools/call")[0]["params"]["_meta"]["progressToken"]


async def test_a_terminal_offers_elicitation_and_asks_at_the_prompt(server: Fake) -> None:
    async with Terminal("call", server.url, "ask", "--task") as terminal:
        await terminal.until("[A]ccept, [d]ecline, [c]ancel:")
        terminal.type("\n")
        await terminal.until("word (text):")
        terminal.type("plum\n")
        await terminal.until('"content": {"word": "plum"}')
        assert await terminal.ends() == 0
    offered = server.sent("initialize")[0]["params"]["capabilities"]
    assert offered == {"elicitation": {"form": {}, "url": {}}, "sampling": {}}


async def test_ctrl_c_at_a_prompt_ends_the_client_and_cancels_the_task(server: Fake) -> None:
    async with Terminal("call", server.url, "ask", "--task") as terminal:
        await terminal.until("[A]ccept, [d]ecline, [c]ancel:")
        terminal.process.send_signal(2)
        assert await terminal.ends() == 130
    (call,) = server.calls.values()
    assert call.status == "cancelled"


async def test_text_of_a_server_cannot_steer_the_terminal(server: Fake) -> None:
    async with Terminal("call", server.url, "evil") as terminal:
        await terminal.until("]0;owned")
        assert await terminal.ends() == 0
        assert "\x1b]0;" not in terminal.shown
