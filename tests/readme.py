"""The fenced blocks of the README, and its transcripts against what really came out.

A block is known by its info string: `console` is a transcript (`$ ` begins a command, `> ` goes on
with it, the rest is its output), `sh` has one command a line, `yaml` and `json` are files. In the
output of a transcript an ellipsis stands for what was left out: in a line for a part of it, alone for
any number of lines. Ids and session tokens may be others.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.processes import ROOT

README: Final = ROOT / "README.md"
CUT: Final = "…"

_FENCE: Final = re.compile(r"^```([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VOLATILE: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # a task id that the client made
    r"|(?<=mtg-)[0-9a-f]{32}"  # the digest in an event id
    r"|\b[0-9a-f]{32}(?:-[0-9a-f]{16})?\b"  # a task id that the gateway made
)


class Step(NamedTuple):
    """One command of a transcript and the lines that it prints."""

    command: str
    output: list[str]


def text() -> str:
    """Return the README."""
    return README.read_text(encoding="utf-8")


def blocks(info: str) -> list[str]:
    """Return the blocks of an info string, in order; raise `AssertionError` where there is none."""
    found = [content for name, content in _FENCE.findall(text()) if name == info]
    assert found, f"the README has no block ```{info}"
    return found


def steps(transcript: str) -> list[Step]:
    """Return the commands of a transcript with their outputs."""
    found: list[Step] = []
    for line in transcript.splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:], []))
        elif line.startswith("> "):
            assert not found[-1].output, f"a command goes on after its output: {line}"
            found[-1] = Step(f"{found[-1].command}\n{line[2:]}", [])
        else:
            found[-1].output.append(line)
    return found


def fits(expected: list[str], came: str) -> bool:
    """Tell whether an output is the one that a transcript shows."""
    pattern = "".join(_as_pattern(line) for line in expected)
    lines = "".join(f"{_VOLATILE.sub('*', line.rstrip())}\n" for line in came.splitlines() if line.strip())
    return re.fullmatch(pattern, lines) is not None


def _as_pattern(line: str) -> str:
    if line == CUT:
        return "(?:.*\n)*"
    parts = [re.escape(part) for part in _VOLATILE.sub("*", line).split(CUT)]
    return ".*".join(parts) + "\n"
