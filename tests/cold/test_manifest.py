"""Every MUST and SHOULD of SEP-1686 is held by a vector or a test, and every vector holds a rule."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec
import pytest

from tests.cold.playbook import VECTORS, read_vector

ROOT: Final = Path(__file__).parents[2]

# How often the text says each word, by section.
SAID: Final = {
    "2": {"MUST": 1},
    "3.4": {"MUST": 1},
    "4.1": {"MUST": 1},
    "4.2": {"MUST": 1, "SHOULD": 1},
    "4.3": {"MUST": 2, "MUST NOT": 1, "SHOULD": 1},
    "4.4": {"MUST": 2, "SHOULD": 1},
    "4.5": {"MUST": 1, "SHOULD": 1},
    "4.6": {"MUST": 2},
    "4.7": {"MUST": 2},
    "4.8": {"SHOULD": 5},
    "4.9": {"MUST": 3, "SHOULD": 1},
    "4.10": {"SHOULD": 2},
    "6": {"MUST": 1},
    "7.1": {"MUST": 1, "SHOULD": 1},
    "7.2": {"SHOULD": 1},
    "8.1": {"SHOULD": 3},
    "8.2": {"SHOULD": 2},
    "8.3": {"SHOULD": 2},
}


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: its section (with the item of a list), who must keep it, and what holds it here."""

    section: str
    level: Literal["MUST", "MUST NOT", "SHOULD"]
    who: Literal["receiver", "requester"]
    says: str
    held_by: list[str]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules of one document."""

    document: str
    sections: str
    rules: list[Rule]


MANIFEST: Final = msgspec.json.decode((VECTORS / "manifest_a.json").read_bytes(), type=Manifest)
RULES: Final = [pytest.param(rule, id=f"{rule.section} {rule.level}") for rule in MANIFEST.rules]
FILES: Final = {path.name for path in VECTORS.glob("a_*.json")}


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names of the tests that a file defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def exists(holder: str) -> bool:
    """Tell whether a vector or a test of that name exists."""
    file, _, name = holder.partition("::")
    if not name:
        return file in FILES
    path = ROOT / file
    return path.is_relative_to(ROOT / "tests") and path.is_file() and name in names_in(path)


def said_at(section: str) -> str:
    """Return the numbered section that an item belongs to: `8.1` of `8.1.3.2`, `6` of `6`."""
    return ".".join(section.split(".")[:2])


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_held_by_what_exists(rule: Rule) -> None:
    assert rule.held_by, f"nothing holds {rule.section}: {rule.says}"
    assert [holder for holder in rule.held_by if not exists(holder)] == []
    assert len(set(rule.held_by)) == len(rule.held_by)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_in_a_sentence_what_is_asked(rule: Rule) -> None:
    assert rule.says.isascii()
    assert rule.says.endswith(".")


def test_no_rule_of_the_text_is_left_out() -> None:
    """Items of one list (the fourth number, or a letter) share the word that stands before the list."""
    words = {(".".join(rule.section.split(".")[:3]), rule.level) for rule in MANIFEST.rules}
    words = {
        (section.rstrip("abcde.") if section[-1] in "abcde" else section, level) for section, level in words
    }
    # Section 4.3.2 begins with a MUST and its fourth item holds a MUST NOT.
    assert ("4.3.2", "MUST NOT") in words
    counted: dict[str, Counter[str]] = {}
    for section, level in words:
        counted.setdefault(said_at(section), Counter())[level] += 1
    assert {section: dict(levels) for section, levels in counted.items()} == SAID


def test_no_rule_is_there_twice() -> None:
    names = [(rule.section, rule.level) for rule in MANIFEST.rules]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_vector_holds_a_rule_of_its_section(file: str) -> None:
    vector = read_vector(VECTORS / file)
    holding = [rule for rule in MANIFEST.rules if file in rule.held_by]
    assert holding, f"no rule names {file}"
    # Section 3 shows the messages; its rules stand in section 4.
    own = [rule for rule in holding if rule.section.startswith(vector.rule)]
    assert own or vector.rule.startswith("3.")


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert exists("tests/cold/test_manifest.py::test_a_name_that_does_not_exist_is_noticed")
    assert exists("a_3_1_create.json")
    assert not exists("tests/cold/test_manifest.py::test_that_nobody_wrote")
    assert not exists("tests/cold/test_nowhere.py::test_a")
    assert not exists("a_9_9_nowhere.json")
    assert not exists("../tests/cold/test_manifest.py::test_a")
    assert not exists("tests/cold/test_manifest.py")
