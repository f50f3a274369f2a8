"""Arguments that a tool wants repeated in HTTP headers, by `x-mcp-header` in its schema; cold.

2026-07-28, basic/transports/streamable-http, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.client.stateless import header_value
from gateway.client.trees import as_list, as_object

_MARK: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_KINDS: Final = ("integer", "string", "boolean")
# What holds values and no schemas.
_VALUES: Final = (_MARK, "default", "const", "enum", "examples")
_DEPTH: Final = 64


def mirrored(schema: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the `Mcp-Param-*` headers of a call.

    Raise `ValueError` for a schema whose marks break the rules: the tool must not be used then.
    """
    headers: dict[str, str] = {}
    names: set[str] = set()
    for path, part in _marked(schema, (), 0):
        name = part[_MARK]
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise ValueError(f"{_MARK} {name!r} is no header name")
        if path is None:
            raise ValueError(f"{_MARK} {name} is where no value is surely found")
        if part.get("type") not in _KINDS:
            raise ValueError(f"{_MARK} {name} is on a value that is no integer, string or boolean")
        if name.lower() in names:
            raise ValueError(f"{_MARK} {name} is there twice")
        names.add(name.lower())
        text = _spelled(_found(arguments, path))
        if text is not None:
            headers[f"Mcp-Param-{name}"] = header_value(text)
    return headers


_Path = tuple[str, ...]


def _marked(schema: dict[str, Any], path: _Path | None, depth: int) -> Iterator[tuple[_Path | None, Any]]:
    """Yield each part with a mark, and the property path to it where there is a sure one."""
    if depth > _DEPTH:
        raise ValueError("its schema is nested too deeply")
    if _MARK in schema:
        yield path or None, schema
    for name, part in schema.items():
        if name == "properties":
            for key, inner in as_object(part).items():
                yield from _marked(as_object(inner), None if path is None else (*path, key), depth + 1)
        elif name not in _VALUES:
            for inner in (part, *as_list(part)):
                yield from _marked(as_object(inner), None, depth + 1)


def _found(arguments: Mapping[str, Any], path: _Path) -> Any:
    found: Any = arguments
    for name in path:
        found = as_object(found).get(name)
    return found


def _spelled(found: Any) -> str | None:
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, float) and found.is_integer():
        return str(int(found))
    return str(found) if isinstance(found, int | str) else None
