"""What must not be in the repository, and what must be where."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ROOT

TOP = {
    ".ci",
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "deploy",
    "gateway",
    "plugins",
    "pyproject.toml",
    "tests",
}
LOCKS = re.compile(r"(^|/)(package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|Pipfile\.lock|\w+\.lock)$")
# Written so that this file does not find itself.
REGISTRIES = re.compile(
    r"pypi[.]org|pythonhosted[.]or[g]|npmjs[.](?:org|com)|deb[.]debian[.]or[g]"
    r"|https?://[^ \"]*/simpl[e]\b|://registr[y]\.|\"resolved\": *\"http"
    r"|--(?:extra-)?index-ur[l]|^registr[y] *="
)


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Return the files that are tracked, or would be: relative paths."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def _lines(names: list[str]) -> Iterator[tuple[str, int, str]]:
    for name in names:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            yield name, number, line


def test_no_file_names_a_registry_or_an_index(tracked: list[str]) -> None:
    found = [
        f"{name}:{number}: {line}" for name, number, line in _lines(tracked) if REGISTRIES.search(line)
    ]
    assert found == []


def test_there_are_no_lock_files(tracked: list[str]) -> None:
    assert [name for name in tracked if LOCKS.search(name)] == []


def test_the_top_level_holds_only_what_the_house_names(tracked: list[str]) -> None:
    assert {Path(name).parts[0] for name in tracked} - TOP == set()


def test_no_file_of_the_package_is_over_400_lines(tracked: list[str]) -> None:
    rooms = [name for name in tracked if name.endswith(".py") and name.startswith(("gateway/", "plugins/"))]
    assert [
        name for name in rooms if len((ROOT / name).read_text(encoding="utf-8").splitlines()) > 400
    ] == []


def test_every_room_is_packaged(tracked: list[str]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packaged = set(settings["tool"]["setuptools"]["packages"])
    rooms = {
        Path(name).parent
        for name in tracked
        if name.endswith("/__init__.py") and name.startswith("gateway/")
    }
    assert {".".join(room.parts) for room in rooms} - packaged == set()


def test_every_constraint_is_one_exact_version() -> None:
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9a-z.]+", pin)] == []
    assert "setuptools" in {pin.split("==")[0] for pin in pins}
