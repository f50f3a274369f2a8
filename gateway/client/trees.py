"""JSON that somebody else sent, narrowed to what is expected; anything else is empty."""

from __future__ import annotations

from typing import Any, cast


def as_object(found: Any) -> dict[str, Any]:
    """Return a JSON object, empty where it is none."""
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def as_list(found: Any) -> list[Any]:
    """Return a JSON array, empty where it is none."""
    return cast("list[Any]", found) if isinstance(found, list) else []


def as_objects(found: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON array, without what is none."""
    return [cast("dict[str, Any]", one) for one in as_list(found) if isinstance(one, dict)]
