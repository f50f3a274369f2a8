"""Headers that mirror the body (2026-07-28 "Request Metadata", "Server Validation")."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import Refusal
from gateway.protocol.mirror import decoded
from gateway.protocol.stateless import (
    check_headers,
    check_param_headers,
    name_header,
    param_headers,
    request_headers,
)
from tests.cold.stateless_making import BROKEN, JSON, META, PREFIX, VERSION, asked, headers, raw

CALL: Final = asked("tools/call", {"name": "add", "arguments": {}})
GOOD: Final = {"mcp_protocol_version": VERSION, "mcp_method": "tools/call", "mcp_name": "add"}
# The table of "Value Encoding".
SPELLINGS: Final = [
    ("us-west1", "us-west1"),
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
]
SCHEMA: Final = raw(
    {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "limit": {"type": "integer", "x-mcp-header": "Limit"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "deep": {
                "type": "object",
                "properties": {"down": {"type": "string", "x-mcp-header": "Down"}},
            },
            "ratio": {"type": "number", "x-mcp-header": "Ratio"},
            "many": {"type": "array", "items": {"type": "string", "x-mcp-header": "Many"}},
            "bad": {"type": "string", "x-mcp-header": "Bad Name\r\n"},
            "none": {"type": "string", "x-mcp-header": ""},
            "again": {"type": "string", "x-mcp-header": "REGION"},
        },
        "anyOf": [{"properties": {"x": {"type": "string", "x-mcp-header": "Any"}}}],
    }
)


def refusal_of(envelope: Envelope, **named: str) -> Refusal | None:
    try:
        check_headers(envelope, headers(**named))
    except Refusal as refused:
        assert (refused.code, refused.status) == (-32020, 400)
        return refused
    return None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"mcp_name": "  add\t"}, None),
        ({"mcp_name": "=?base64?YWRk?="}, None),
        ({"mcp_protocol_version": None}, "the MCP-Protocol-Version header is missing"),
        ({"mcp_method": None}, "the Mcp-Method header is missing"),
        ({"mcp_name": None}, "the Mcp-Name header is missing"),
        (
            {"mcp_protocol_version": "2025-11-25"},
            "MCP-Protocol-Version header value '2025-11-25' does not match body value '2026-07-28'",
        ),
        (
            {"mcp_method": "Tools/Call"},
            "Mcp-Method header value 'Tools/Call' does not match body value 'tools/call'",
        ),
        ({"mcp_method": "=?base64?dG9vbHMvY2FsbA==?="}, "does not match"),
        ({"mcp_name": "foo"}, "Mcp-Name header value 'foo' does not match body value 'add'"),
        ({"mcp_name": "=?base64?YWRk"}, "does not match"),
        ({"mcp_name": "=?BASE64?YWRk?="}, "does not match"),
        ({"mcp_name": "=?base64?YWR?="}, "the Mcp-Name header is not Base64 of UTF-8"),
        ({"mcp_name": "=?base64?YW!Rk?="}, "the Mcp-Name header is not Base64 of UTF-8"),
        ({"mcp_name": "=?base64?/w==?="}, "the Mcp-Name header is not Base64 of UTF-8"),
        ({"mcp_name": "=?base64?=" + "?="}, "is not Base64"),
        ({"mcp_name": "ad\x00d"}, "the Mcp-Name header contains invalid characters"),
        ({"mcp_name": "addé"}, "the Mcp-Name header contains invalid characters"),
        ({"mcp_name": "add\udce9"}, "the Mcp-Name header contains invalid characters"),
        ({"mcp_method": "tools/call\r\nx: y"}, "the Mcp-Method header contains invalid characters"),
    ],
)
def test_I12_headers_must_say_what_the_body_says(changed: dict[str, str | None], words: str | None) -> None:
    named = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    refused = refusal_of(CALL, **named)
    assert (refused is None) if words is None else (refused is not None and words in refused.message)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "get_weather"}, "get_weather"),
        ("prompts/get", {"name": "résumé"}, "=?base64?csOpc3Vtw6k=?="),
        ("resources/read", {"uri": "file:///a/b.json"}, "file:///a/b.json"),
        ("tasks/get", {"taskId": "t-1"}, "t-1"),
        ("tasks/update", {"taskId": "t-1", "inputResponses": {}}, "t-1"),
        ("tasks/cancel", {"taskId": "t-1"}, "t-1"),
    ],
)
def test_the_name_is_mirrored_from_where_the_method_has_it(
    method: str, params: dict[str, Any], name: str
) -> None:
    envelope = asked(method, params)
    assert refusal_of(envelope, mcp_protocol_version=VERSION, mcp_method=method, mcp_name=name) is None
    assert refusal_of(envelope, mcp_protocol_version=VERSION, mcp_method=method, mcp_name="x") is not None
    missing = refusal_of(envelope, mcp_protocol_version=VERSION, mcp_method=method)
    assert (missing is None) is method.startswith("tasks/")
    assert request_headers(envelope) == [
        ("mcp-protocol-version", VERSION),
        ("mcp-method", method),
        ("mcp-name", name),
    ]


def test_other_methods_have_no_name() -> None:
    envelope = asked("tools/list")
    assert refusal_of(envelope, mcp_protocol_version=VERSION, mcp_method="tools/list") is None
    assert request_headers(envelope) == [("mcp-protocol-version", VERSION), ("mcp-method", "tools/list")]


def test_a_name_in_the_header_alone_is_a_mismatch_and_in_neither_is_for_others_to_refuse() -> None:
    for params in ({}, {"name": 7}):
        envelope = asked("tools/call", params)
        assert refusal_of(envelope, mcp_protocol_version=VERSION, mcp_method="tools/call") is None
        assert refusal_of(envelope, **GOOD) is not None


def test_a_body_without_a_version_is_left_to_the_reading_of_its_metadata() -> None:
    for meta in (None, {}, {f"{PREFIX}protocolVersion": 1}):
        envelope = asked("tools/list", meta=meta)
        assert refusal_of(envelope, mcp_protocol_version=VERSION, mcp_method="tools/list") is None


def test_an_unknown_version_in_the_body_alone_is_a_mismatch() -> None:
    envelope = asked("server/discover", meta={**META, f"{PREFIX}protocolVersion": "v999.0.0"})
    assert refusal_of(envelope, mcp_protocol_version=VERSION, mcp_method="server/discover") is not None


def test_a_notification_may_leave_headers_out_but_not_lie() -> None:
    note = peek(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}')
    assert refusal_of(note) is None
    assert refusal_of(note, mcp_method="notifications/other") is not None


def test_I12_the_words_of_a_mismatch_are_short_and_printable() -> None:
    envelope = asked("tools/call", {"name": "\x1b[31m" + "\U0001f600\ud800" * 5000})
    refused = refusal_of(envelope, **{**GOOD, "mcp_name": "x" * 5000})
    assert refused is not None
    assert len(refused.message) < 400
    assert refused.message.isprintable()


@pytest.mark.parametrize(("value", "spelling"), SPELLINGS)
def test_values_are_spelt_as_the_table_says(value: str, spelling: str) -> None:
    assert name_header(value) == spelling
    assert decoded("Mcp-Name", headers(mcp_name=spelling)) == value


@given(st.text())
def test_what_is_spelt_is_read_back(value: str) -> None:
    assert decoded("Mcp-Name", headers(mcp_name=name_header(value))) == value


def test_a_lone_surrogate_is_spelt_as_the_replacement_character() -> None:
    assert decoded("Mcp-Name", headers(mcp_name=name_header("a\ud800"))) == "a\ufffd"


def test_an_odd_method_does_not_become_a_second_header() -> None:
    for _, value in request_headers(asked("x\r\nset-cookie: a=b")):
        assert "\n" not in value


@pytest.mark.parametrize(
    ("arguments", "named", "good"),
    [
        ({}, {}, True),
        ({"region": None}, {}, True),
        ({"region": "us"}, {"mcp_param_region": "us"}, True),
        ({"region": "Hello"}, {"mcp_param_region": "=?base64?SGVsbG8=?="}, True),
        ({"region": "SGVsbG8="}, {"mcp_param_region": "SGVsbG8="}, True),
        ({"region": "=?base64?SGVsbG8="}, {"mcp_param_region": "=?base64?SGVsbG8="}, True),
        ({"region": "Hello"}, {"mcp_param_region": "=?base64?SGVsbG8?="}, False),
        ({"region": "Hello"}, {"mcp_param_region": "=?base64?SGVs!!!bG8=?="}, False),
        ({"region": "us"}, {}, False),
        ({"region": "us"}, {"mcp_param_region": "eu"}, False),
        ({"region": "us"}, {"mcp_param_region": "us\x07"}, False),
        ({}, {"mcp_param_region": "us"}, False),
        ({"region": None}, {"mcp_param_region": "null"}, False),
        ({"limit": 42}, {"mcp_param_limit": "42"}, True),
        ({"limit": 42}, {"mcp_param_limit": "42.0"}, True),
        ({"limit": 42.0}, {"mcp_param_limit": "42"}, True),
        ({"limit": -7}, {"mcp_param_limit": "-7"}, True),
        ({"limit": 42}, {"mcp_param_limit": "43"}, False),
        ({"limit": 9007199254740993}, {"mcp_param_limit": "9007199254740992"}, False),
        ({"limit": 42}, {"mcp_param_limit": "forty-two"}, False),
        ({"limit": "42"}, {"mcp_param_limit": "42.0"}, False),
        ({"limit": 42}, {"mcp_param_limit": "1" * 5000}, False),
        ({"dry": True}, {"mcp_param_dry": "true"}, True),
        ({"dry": True}, {"mcp_param_dry": "True"}, False),
        ({"dry": False}, {"mcp_param_dry": "0"}, False),
        ({"deep": {"down": "x"}}, {"mcp_param_down": "x"}, True),
        ({"deep": {"down": "x"}}, {}, False),
        ({"deep": "x"}, {}, True),
        ({"region": {"a": 1}}, {}, True),
        ({"region": ["a"]}, {"mcp_param_region": "a"}, False),
        ({"ratio": 1.5, "many": ["a"], "x": "y", "bad": "b", "none": "n", "again": "a"}, {}, True),
    ],
)
def test_I12_parameters_that_a_tool_wants_mirrored_must_be(
    arguments: dict[str, Any], named: dict[str, str], good: bool
) -> None:
    if good:
        check_param_headers(raw(arguments), SCHEMA, headers(**named))
        return
    with pytest.raises(Refusal) as refused:
        check_param_headers(raw(arguments), SCHEMA, headers(**named))
    assert (refused.value.code, refused.value.status) == (-32020, 400)


def test_the_gateway_mirrors_what_it_would_check() -> None:
    arguments = raw({"region": " 世", "limit": 5, "dry": False, "deep": {"down": "d"}, "ratio": 2})
    found = dict(param_headers(arguments, SCHEMA))
    assert found == {
        "mcp-param-region": "=?base64?IOS4lg==?=",
        "mcp-param-limit": "5",
        "mcp-param-dry": "false",
        "mcp-param-down": "d",
    }
    check_param_headers(arguments, SCHEMA, found.get)


@pytest.mark.parametrize("schema", [*BROKEN, b'{"properties":{"a":{"x-mcp-header":"A","type":[]}}}'])
@pytest.mark.parametrize("arguments", [None, *BROKEN])
def test_I12_any_schema_and_arguments_are_checked_or_refused(
    arguments: bytes | None, schema: bytes
) -> None:
    for one in (schema, b'{"x-mcp-header":1,"properties":' + schema + b"}", SCHEMA):
        check_param_headers(arguments, one, headers())
        param_headers(arguments, one)


@given(JSON, st.text(), st.text())
def test_I12_any_parameters_are_passed_or_refused(params: Any, version: str, name: str) -> None:
    envelope = peek(raw({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": params}}))
    refusal_of(envelope, **{**GOOD, "mcp_protocol_version": version, "mcp_name": name})
