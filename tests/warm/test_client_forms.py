"""Fields of an elicitation form, by the restricted schema of protocol 2025-11-25."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.client.forms import fill, hint, parse, read_fields

TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]


def one(schema: dict[str, Any], *, required: bool = False) -> Any:
    wanted = ["x"] if required else []
    (field,) = read_fields({"type": "object", "properties": {"x": schema}, "required": wanted})
    return field


@pytest.mark.parametrize(
    ("schema", "line", "value"),
    [
        ({"type": "string"}, " pear ", "pear"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, "3", 3),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["red", "green"]}, "green", "green"),
        ({"type": "string", "enum": ["red", "green"]}, "1", "red"),
        ({"type": "string", "enum": ["10", "1"]}, "1", "1"),
        ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, "Green", "g"),
        ({"type": "string", "oneOf": TITLED}, "Red", "r"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "a, 3", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": TITLED}}, "Green,r,g", ["g", "r"]),
        ({"type": "string", "format": "email"}, "a@b.c", "a@b.c"),
        ({"type": "string", "format": "uri"}, "https://example.com", "https://example.com"),
        ({"type": "string", "format": "date"}, "2026-11-29", "2026-11-29"),
        (
            {"type": "string", "format": "date-time"},
            "2026-11-29T10:00:00+00:00",
            "2026-11-29T10:00:00+00:00",
        ),
        ({"type": "integer", "default": 4}, "", 4),
        ({"type": "string"}, "", msgspec.UNSET),
    ],
)
def test_a_line_becomes_the_value_that_the_schema_wants(
    schema: dict[str, Any], line: str, value: Any
) -> None:
    assert parse(one(schema), line) == value


@pytest.mark.parametrize(
    ("schema", "line", "words"),
    [
        ({"type": "string"}, "", "required"),
        ({"type": "string", "minLength": 3}, "ab", "at least 3 characters"),
        ({"type": "string", "maxLength": 3}, "abcd", "at most 3 characters"),
        ({"type": "integer"}, "1.5", "a whole number"),
        ({"type": "number"}, "nan", "finite"),
        ({"type": "number", "minimum": 0}, "-1", "not below 0"),
        ({"type": "number", "maximum": 9}, "10", "not above 9"),
        ({"type": "boolean"}, "perhaps", "yes or no"),
        ({"type": "string", "oneOf": TITLED}, "blue", "one of Red, Green"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "a", "at least 2"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, "a,b", "at most 1"),
        ({"type": "string", "format": "email"}, "nobody", "this is no email"),
        ({"type": "string", "format": "date"}, "29.11.2026", "this is no date"),
        ({"type": "string", "format": "date-time"}, "2026-11-29T10:00:00", "this is no date-time"),
    ],
)
def test_a_line_that_does_not_fit_is_told_why(schema: dict[str, Any], line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(one(schema, required=True), line)


@pytest.mark.parametrize("schema", [None, [], {"properties": 3}, {"properties": {"x": "string"}}])
def test_a_schema_that_is_none_has_no_fields(schema: Any) -> None:
    assert read_fields(schema) == []


def test_prepared_values_fill_a_form_with_its_defaults() -> None:
    fields = read_fields(
        {
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "integer", "default": 2},
                "c": {"type": "boolean"},
            }
        }
    )
    assert fill(fields, {"a": "x", "other": 1}) == {"a": "x", "b": 2}


def test_a_hint_says_the_bounds() -> None:
    assert hint(one({"type": "integer", "minimum": 1, "maximum": 9})) == "whole number from 1 to 9"
