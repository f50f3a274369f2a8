"""A client on a pseudo-terminal, as a person has it."""

from __future__ import annotations

import asyncio
import os
import pty
import re

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

    async def until(self, words: str, times: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.shown.count(words) < times:
                self._more.clear()
                await self._more.wait()

    def type(self, line: str) -> None:
        os.write(self._keyboard, line.encode())

    async def ends(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 20)
