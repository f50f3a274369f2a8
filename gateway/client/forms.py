"""The fields of an elicitation form: what to show of each, and what a typed line means; cold.

The restricted JSON Schema of `requestedSchema` (2025-11-25, client/elicitation).
"""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gateway.client.trees import as_list, as_object, as_objects

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_YES: Final = ("y", "yes", "true")
_NO: Final = ("n", "no", "false")
_MISSING: Final = msgspec.UNSET


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One property of a form; `choices` are (value, label) pairs, `default` unset where there is none."""

    name: str
    label: str
    description: str
    kind: str
    required: bool
    choices: tuple[tuple[str, str], ...]
    default: Any
    rules: dict[str, Any]


def read_fields(schema: Any) -> list[Field]:
    """Return the fields of a `requestedSchema` in their order; parts that are no schema are skipped."""
    tree = as_object(schema)
    wanted = as_list(tree.get("required"))
    parts = as_object(tree.get("properties"))
    return [
        _field(name, as_object(part), name in wanted) for name, part in parts.items() if as_object(part)
    ]


def parse(field: Field, text: str) -> Any:
    """Return the value that a typed line means, unset where the field is left out.

    Raise `ValueError` that says what the field wants.
    """
    text = text.strip()
    if not text:
        if field.default is _MISSING and field.required:
            raise ValueError("this one is required")
        return field.default
    if field.kind == "boolean":
        return _boolean(text)
    if field.kind in ("integer", "number"):
        return _number(field, text)
    if field.kind == "array":
        return _several(field, text)
    if field.choices:
        return _choice(field, text)
    return _string(field, text)


def fill(fields: list[Field], given: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a form from values given beforehand and defaults.

    Raise `ValueError` that names the required fields which have neither.
    """
    content = {f.name: given.get(f.name, f.default) for f in fields}
    missing = [f.name for f in fields if f.required and content[f.name] is _MISSING]
    if missing:
        raise ValueError(f"no --answer for {', '.join(missing)}")
    return {name: found for name, found in content.items() if found is not _MISSING}


def spell(found: Any) -> str:
    """Return a value as a person would type it."""
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, list):
        return ", ".join(str(one) for one in as_list(found))
    return found if isinstance(found, str) else json.dumps(found)


def hint(field: Field) -> str:
    """Return what may be typed, in a few words."""
    rules = field.rules
    if field.kind == "boolean":
        return "yes or no"
    if field.kind in ("integer", "number"):
        words = "whole number" if field.kind == "integer" else "number"
        low, high = rules.get("minimum"), rules.get("maximum")
        return (
            words
            + (f" from {low}" if low is not None else "")
            + (f" to {high}" if high is not None else "")
        )
    if field.kind == "array":
        return "numbers or names, with commas between"
    if field.choices:
        return "number or name"
    return str(rules.get("format") or "text")


def _field(name: str, part: dict[str, Any], required: bool) -> Field:
    kind = str(part.get("type", "string"))
    return Field(
        name=name,
        label=str(part.get("title") or name),
        description=str(part.get("description") or ""),
        kind=kind,
        required=required,
        choices=_choices(as_object(part.get("items")) if kind == "array" else part),
        default=part.get("default", _MISSING),
        rules=part,
    )


def _choices(part: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    titled = as_objects(part.get("oneOf") or part.get("anyOf"))
    if titled:
        return tuple((str(one.get("const")), str(one.get("title") or one.get("const"))) for one in titled)
    values = as_list(part.get("enum"))
    names = as_list(part.get("enumNames")) or values
    return tuple((str(one), str(label)) for one, label in zip(values, names, strict=False))


def _boolean(text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise ValueError("yes or no, please")


def _number(field: Field, text: str) -> int | float:
    whole = field.kind == "integer"
    try:
        found = int(text) if whole else float(text)
    except ValueError:
        raise ValueError("a whole number, please" if whole else "a number, please") from None
    low, high = field.rules.get("minimum"), field.rules.get("maximum")
    if not float("-inf") < found < float("inf"):
        raise ValueError("a finite number, please")
    if low is not None and found < low:
        raise ValueError(f"not below {low}")
    if high is not None and found > high:
        raise ValueError(f"not above {high}")
    return found


def _choice(field: Field, text: str) -> str:
    for number, (found, label) in enumerate(field.choices, 1):
        if text in (found, label):
            return found
        if text == str(number) and all(text not in pair for pair in field.choices):
            return found
    raise ValueError("one of " + ", ".join(label for _, label in field.choices))


def _several(field: Field, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    found = list(dict.fromkeys(_choice(field, word) if field.choices else word for word in words))
    low, high = field.rules.get("minItems"), field.rules.get("maxItems")
    if low is not None and len(found) < low:
        raise ValueError(f"at least {low} of them")
    if high is not None and len(found) > high:
        raise ValueError(f"at most {high} of them")
    return found


def _string(field: Field, text: str) -> str:
    low, high = field.rules.get("minLength"), field.rules.get("maxLength")
    if low is not None and len(text) < low:
        raise ValueError(f"at least {low} characters")
    if high is not None and len(text) > high:
        raise ValueError(f"at most {high} characters")
    if not _has_format(field.rules.get("format"), text):
        raise ValueError(f"this is no {field.rules['format']}")
    return text


def _has_format(name: str | None, text: str) -> bool:
    try:
        if name == "date":
            date.fromisoformat(text)
        elif name == "date-time":
            return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
    if name == "email":
        return _EMAIL.fullmatch(text) is not None
    return name != "uri" or bool(urlsplit(text).scheme)
