"""Runs the client: in this process with streams of its own, or as the command that a person starts."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from gateway.aio.clock import SystemClock
from gateway.client.cli import add_parsers, perform, terminal
from gateway.client.keys import Keys
from gateway.client.report import PROG

# The command as `gateway.cli` makes it: both ways of use go through `add_parsers` and `run`.
PROGRAM = """
import argparse, sys
from gateway.client.cli import add_parsers, run
parser = argparse.ArgumentParser(prog="mcp-task-gateway")
add_parsers(parser.add_subparsers(required=True))
sys.exit(run(parser.parse_args()))
"""


class SwiftClock(SystemClock):
    """Ten seconds of waiting in one."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 10)


class Ran:
    """What a run left behind: exit code, stdout and stderr."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"<Ran {self.code}\n{self.out}\n--\n{self.err}>"

    @property
    def object(self) -> dict[str, Any]:
        return json.loads(self.out)


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PROG)
    add_parsers(parser.add_subparsers(required=True))
    return parser.parse_args(words)


async def client(*words: str, typed: Sequence[str] | None = None) -> Ran:
    """Run the client in this process; `typed` are the lines of a person at the prompt."""
    args = parse(*words)
    wanted = args.wanted(args)
    out, err = io.StringIO(), io.StringIO()
    if typed is None:
        code = await perform(wanted, terminal(out, err, None, wanted), SwiftClock())
        return Ran(code, out.getvalue(), err.getvalue())
    reading, writing = os.pipe()
    try:
        os.write(writing, "".join(f"{line}\n" for line in typed).encode())
        os.close(writing)
        code = await perform(wanted, terminal(out, err, Keys(reading), wanted), SwiftClock())
    finally:
        os.close(reading)
    return Ran(code, out.getvalue(), err.getvalue())


def command(*words: str) -> list[str]:
    """Return the command line of a client in a process of its own."""
    return [sys.executable, "-c", PROGRAM, *words]


def words_of(line: str) -> list[str]:
    """Return the words of a command line that the client printed, without the program's name."""
    prog, *words = shlex.split(line.strip())
    assert prog == PROG
    return words
