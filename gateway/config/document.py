"""A YAML file as plain values, with the line of every place in it.

The nodes are walked by hand and not constructed by PyYAML, so that each place keeps its line, a key
that stands twice is a mistake, and aliases cannot grow without bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from gateway.config.mistakes import Mistake
from gateway.config.shape import Place, as_dict
from gateway.protocol.errors import ConfigError

MAX_BYTES: Final = 1 << 20
MAX_NODES: Final = 50_000
MAX_DEPTH: Final = 40
_MERGE: Final = "tag:yaml.org,2002:merge"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


@dataclass
class Document:
    """What a file said: its values, the line of each place, and what is wrong with its form."""

    tree: dict[str, Any] = field(default_factory=dict[str, Any])
    lines: dict[Place, int] = field(default_factory=dict[Place, int])
    mistakes: list[Mistake] = field(default_factory=list[Mistake])


def read_document(path: Path) -> Document:
    """Read a YAML file; raise `ConfigError` where it is not one."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: is larger than 1MiB; a configuration is not")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8; save the file as UTF-8") from None
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """Return the values of YAML text; raise `ConfigError` where it is not YAML."""
    document = Document()
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return document
        value = _Walk(loader, document).value(node, ())
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_not_yaml(error, name)) from None
    except yaml.YAMLError:
        raise ConfigError(f"{name}:1: holds control characters, which YAML does not allow") from None
    except RecursionError:
        raise ConfigError(f"{name}:1: is nested too deeply") from None
    tree = as_dict(value)
    if tree is None:
        raise ConfigError(
            f"{name}:{node.start_mark.line + 1}: must be a mapping; write it like listen: {{...}}"
        )
    document.tree = tree
    return document


def _not_yaml(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    words = str(error.problem or error.context or "cannot be read")
    if "'\\t'" in words:
        words = "a tab cannot indent YAML; use spaces"
    elif words.startswith("expected a single document") or "but found another document" in words:
        words = "there must be one YAML document, here a second one begins"
    return f"{name}:{mark.line + 1 if mark else 1}: is not YAML: {words}"


class _Walk:
    """Builds the values of one document."""

    def __init__(self, loader: yaml.SafeLoader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._nodes = 0
        self._open: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._nodes += 1
        line = node.start_mark.line + 1
        self._document.lines.setdefault(place, line)
        if self._nodes > MAX_NODES or len(self._open) > MAX_DEPTH or id(node) in self._open:
            raise yaml.MarkedYAMLError(
                problem="too many or too deeply nested values, or an alias to itself",
                problem_mark=node.start_mark,
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
            return self._mapping(node, place)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        if node.tag == _TIMESTAMP:
            return node.value
        try:
            # The stubs leave the type of the node open.
            return self._loader.construct_object(node)  # pyright: ignore[reportUnknownMemberType]
        except (yaml.YAMLError, ValueError):
            words = (
                f"YAML cannot read this as {node.tag.removeprefix('tag:yaml.org,2002:')}; put it in quotes"
            )
            self._document.mistakes.append(Mistake(place, words, line=node.start_mark.line + 1))
            return ""

    def _mapping(self, node: yaml.Node, place: Place) -> dict[str, Any]:
        built: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE:
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._document.mistakes.append(Mistake(place, "a key must be a word", line=line))
                continue
            key = key_node.value
            if key in built:
                self._twice((*place, key), line)
                continue
            self._document.lines[(*place, key)] = line
            built[key] = self.value(value_node, (*place, key))
        for source in merged:
            built = (as_dict(self.value(source, place)) or {}) | built
        return built

    def _twice(self, place: Place, line: int) -> None:
        first = self._document.lines[place]
        kind = "two upstreams of one name" if place[:-1] == ("upstreams",) else "this key stands twice"
        words = f"{kind}: lines {first} and {line}; take one away or rename it"
        self._document.mistakes.append(Mistake(place, words, line=line))
