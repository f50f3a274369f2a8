"""`initialize` answers gain the tasks capability and nothing else of them changes (SEP-1686 section 2)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.sep1686 import Sep1686
from gateway.session.advertise import advertise

TOOLS: Final = {"tools": {"call": True}}
DIALECT: Final = Sep1686()
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def answer(result: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'.encode()


def capabilities(message: bytes) -> Any:
    return json.loads(message)["result"]["capabilities"]


def test_I1_the_capability_stands_behind_the_upstreams_own_and_all_else_stays() -> None:
    before = answer(
        '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"x":1.0},'
        '"serverInfo":{"name":"\\u00e9","version":"1"},"instructions":"a\\/b","more":[ 1 ]}'
    )
    opened = advertise(before, DIALECT, ["tools/call"])
    assert opened is not None
    assert opened.message == before.replace(b'"x":1.0}', b'"x":1.0,"tasks":{"tools":{"call":true}}}')
    assert (opened.version, opened.own_tasks) == ("2025-06-18", False)


def test_what_the_upstream_says_of_its_own_tasks_stays() -> None:
    own: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    opened = advertise(answer(json.dumps({"capabilities": {"tasks": own}})), DIALECT, ["tools/call"])
    assert opened is not None
    assert opened.own_tasks
    assert capabilities(opened.message) == {"tasks": {**own, **TOOLS}}


@pytest.mark.parametrize("result", ["{}", '{"capabilities":{}}', '{"capabilities":null}'])
def test_a_server_without_capabilities_gets_one(result: str) -> None:
    opened = advertise(answer(result), DIALECT, ["tools/call", "resources/read"])
    assert opened is not None
    assert capabilities(opened.message) == {"tasks": {"tools": {"call": True}, "resources": {"read": True}}}
    assert opened.version == ""


def test_I1_where_nothing_may_be_a_task_not_one_byte_changes() -> None:
    before = answer('{ "capabilities" : { } , "protocolVersion" : "2025-11-25" }')
    opened = advertise(before, DIALECT, [])
    assert opened is not None
    assert opened.message == before
    assert opened.version == "2025-11-25"


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unsupported protocol version"}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}',
        b"{}",
        b"<html>",
        b"",
    ],
)
def test_what_is_no_result_is_left_alone(message: bytes) -> None:
    assert advertise(message, DIALECT, ["tools/call"]) is None


@given(st.dictionaries(st.text(), JSON, max_size=4), st.dictionaries(st.text(), JSON, max_size=4))
def test_I1_whatever_a_server_answers_only_the_capability_comes_to_it(
    result: dict[str, Any], own: dict[str, Any]
) -> None:
    own.pop("tasks", None)
    wanted = {**result, "capabilities": own}
    opened = advertise(answer(json.dumps(wanted)), DIALECT, ["tools/call"])
    assert opened is not None
    assert json.loads(opened.message)["result"] == {**wanted, "capabilities": {**own, "tasks": TOOLS}}
