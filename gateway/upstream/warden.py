"""Ends the children of a gateway that was killed: nobody else would, and a wrapper tree can ignore EOF.

A small shell in a session of its own reads which process groups live. Its input ends with the gateway,
whatever the gateway dies of; then it ends the groups that are left.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Final

from gateway.upstream.child import unbroken

_log = logging.getLogger("gateway.upstream")

_SHELL: Final = "/bin/sh"
_SCRIPT: Final = """
left=""
while read -r what group; do
  keep=""
  for one in $left; do [ "$one" = "$group" ] || keep="$keep $one"; done
  left="$keep"
  [ "$what" = "+" ] && left="$left $group"
done
[ -n "$left" ] || exit 0
sleep 1
for one in $left; do kill -s TERM -- "-$one" 2>/dev/null; done
sleep 3
for one in $left; do kill -s KILL -- "-$one" 2>/dev/null; done
"""


class Warden:
    """Knows the process groups that must not outlive the gateway; started with the first of them."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._starting = asyncio.Lock()
        self._groups: set[int] = set()

    def __repr__(self) -> str:
        return f"<Warden of {len(self._groups)} groups>"

    async def watch(self, group: int) -> None:
        """Take a process group; where no shell can be started, nothing is watched and the log says so."""
        async with self._starting:
            if not self._lives:
                await unbroken(self._begin())
        if not self._lives:
            return
        self._groups.add(group)
        self._tell(f"+ {group}\n")

    def release(self, group: int) -> None:
        """Forget a process group that has ended."""
        if group in self._groups:
            self._groups.discard(group)
            self._tell(f"- {group}\n")

    async def close(self) -> None:
        """End the shell; groups that were not released are ended by it."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()

    @property
    def _lives(self) -> bool:
        process = self._process
        if process is None or process.stdin is None:
            return False
        return process.returncode is None and not process.stdin.is_closing()

    def _tell(self, line: str) -> None:
        if self._lives and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line.encode())

    async def _begin(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                _SHELL, "-c", _SCRIPT, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
            )
            for group in self._groups:
                # One that was killed knew of these.
                self._tell(f"+ {group}\n")
        except OSError:
            _log.warning("children are not watched: there is no %s", _SHELL)
