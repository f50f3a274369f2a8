"""Manifests of the newer texts: every sentence that demands something, and what holds it here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.cold.playbook import VECTORS

ROOT: Final = Path(__file__).parents[2]
Words = dict[str, int]


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An item of a list that a sentence begins, or a row of a table, with what holds it."""

    says: str
    held_by: list[str] = []
    why: str = ""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sentence of a text: where it stands (`page: section`), whom it binds, and what holds it.

    `upstream` is the server behind the gateway, and who writes its tools and names.
    `why` tells why nothing has to hold it here, or why it is held all the same.
    """

    at: list[str]
    who: Literal["server", "client", "both", "upstream"]
    says: str
    held_by: list[str] = []
    why: str = ""
    items: list[Item] = []

    @property
    def holders(self) -> list[str]:
        """All that hold the sentence or an item of it."""
        return [*self.held_by, *[holder for item in self.items for holder in item.held_by]]


class Also(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a text has without a word of RFC 2119, and is kept here."""

    at: list[str]
    says: str
    held_by: list[str]


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a text is published, and how often each of its sections says each word of RFC 2119."""

    source: str
    said: dict[str, Words]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that some pages demand."""

    document: str
    pages: dict[str, Page]
    rules: list[Rule]
    also: list[Also] = []


MANIFESTS: Final[dict[str, Manifest]] = {
    letter: msgspec.json.decode((VECTORS / f"manifest_{letter}.json").read_bytes(), type=Manifest)
    for letter in ("b", "c", "s")
}


def exists(holder: str) -> bool:
    """Tell whether a vector or a test of that name exists."""
    file, _, name = holder.partition("::")
    if not name:
        return "/" not in file and not file.startswith("manifest") and (VECTORS / file).is_file()
    path = ROOT / file
    return path.is_relative_to(ROOT / "tests") and path.is_file() and name in _names_in(path)


@cache
def _names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def places(manifest: Manifest, vector: str) -> Iterator[str]:
    """Yield where the rules stand that name a vector."""
    for rule in manifest.rules:
        if vector in rule.holders:
            yield from rule.at
    for also in manifest.also:
        if vector in also.held_by:
            yield from also.at
