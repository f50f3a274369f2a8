"""The official JSON schemas of the protocol, as they were published, and a check against them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import jsonschema

_HERE: Final = Path(__file__).parent
Schema = Literal["2025-11-25", "2026-07-28", "tasks-extension"]


@cache
def _validator(schema: Schema, name: str) -> Any:
    known: dict[str, Any] = json.loads((_HERE / f"{schema}.json").read_text(encoding="utf-8"))
    if name not in known["$defs"]:
        raise LookupError(f"{schema} defines no {name}")
    return jsonschema.Draft202012Validator({"$defs": known["$defs"], "$ref": f"#/$defs/{name}"})


def mistakes(schema: Schema, name: str, found: Any) -> list[str]:
    """Return what is wrong with a value that is to be of a type of a schema; nothing where it is right."""
    wrong = sorted(error.message[:300] for error in _validator(schema, name).iter_errors(found))
    return [f"{name}: {message}" for message in wrong]
