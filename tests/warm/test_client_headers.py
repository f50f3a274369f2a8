"""What a request of the stateless era repeats in its HTTP headers (basic/transports/streamable-http)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.client.mirror import mirrored
from gateway.client.stateless import header_value, headers_of

STRING = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("a\tb", "a\tb"),
        ("", ""),
    ],
)
def test_values_are_encoded_as_the_table_of_the_text_says(text: str, header: str) -> None:
    assert header_value(text) == header


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "t"}, "t"),
        ("tasks/get", {"taskId": "1"}, "1"),
        ("tasks/update", {"taskId": "1", "inputResponses": {}}, "1"),
        ("tasks/cancel", {"taskId": "1"}, "1"),
    ],
)
def test_method_and_name_are_mirrored(method: str, params: dict[str, Any], name: str) -> None:
    assert headers_of(method, params) == {"Mcp-Method": method, "Mcp-Name": name}
    assert headers_of("server/discover", {}) == {"Mcp-Method": "server/discover"}


@pytest.mark.parametrize(
    ("kind", "value", "header"),
    [
        ("string", "x", "x"),
        ("integer", 42, "42"),
        ("integer", -7, "-7"),
        ("integer", 42.0, "42"),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
    ],
)
def test_primitive_values_are_spelled(kind: str, value: object, header: str) -> None:
    schema = {"properties": {"p": {"type": kind, "x-mcp-header": "P"}}}
    assert mirrored(schema, {"p": value}) == {"Mcp-Param-P": header}


def test_a_nested_property_is_read_at_its_exact_path() -> None:
    schema = {"properties": {"at": {"type": "object", "properties": {"region": STRING}}}}
    assert mirrored(schema, {"at": {"region": "eu"}, "region": "no"}) == {"Mcp-Param-Region": "eu"}


@pytest.mark.parametrize("arguments", [{}, {"region": None}, {"region": {}}])
def test_without_a_value_there_is_no_header(arguments: dict[str, Any]) -> None:
    assert mirrored({"properties": {"region": STRING}}, arguments) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {**STRING, "x-mcp-header": ""}}},
        {"properties": {"a": {**STRING, "x-mcp-header": "two words"}}},
        {"properties": {"a": {**STRING, "x-mcp-header": "a\r\nB: c"}}},
        {"properties": {"a": {**STRING, "x-mcp-header": 7}}},
        {"properties": {"a": {**STRING, "type": "number"}}},
        {"properties": {"a": {"type": "object", "x-mcp-header": "A"}}},
        {"properties": {"a": STRING, "b": {**STRING, "x-mcp-header": "REGION"}}},
        {"properties": {"a": {"type": "array", "items": STRING}}},
        {"anyOf": [{"properties": {"a": STRING}}]},
        {"if": {"properties": {"a": STRING}}},
        {"$defs": {"d": STRING}, "properties": {"a": {"$ref": "#/$defs/d"}}},
        STRING,
    ],
)
def test_a_mark_that_breaks_the_rules_makes_the_tool_invalid(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="x-mcp-header"):
        mirrored(schema, {"a": "x"})


def test_a_property_of_that_name_and_plain_values_are_no_marks() -> None:
    schema = {
        "properties": {"x-mcp-header": {"type": "string"}, "b": {"default": {"x-mcp-header": "no"}}},
    }
    assert mirrored(schema, {"x-mcp-header": "v"}) == {}


def test_a_schema_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    with pytest.raises(ValueError, match="too deeply"):
        mirrored(schema, {})
