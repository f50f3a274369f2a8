"""`initialize` answers gain the tasks capability and nothing else of them changes.

SEP-1686 section 2 in every version, and from 2025-11-25 on that version's own form beside it.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.sep1686 import Sep1686
from gateway.dialects.v2025_11_25 import Tasks20251125
from gateway.session.advertise import Opened, advertise
from gateway.session.exchange import Inbound
from gateway.session.visit import Served, Visit
from gateway.tasks.policy import Policy, PolicyBook

TOOLS: Final = {"tools": {"call": True}}
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def answer(result: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'.encode()


def told(message: bytes, *taskable: str, known: bool = True) -> Opened | None:
    """Return what a client hears of an answer; nothing here goes to the upstream."""
    nobody = cast("Any", None)
    served = Served(
        name="reports",
        upstream=nobody,
        policies=PolicyBook(default=Policy()),
        scope_mode="principal",
        taskable=taskable,
        plain_may_be_refused=False,
        dialects={"a": Sep1686(), "b": Tasks20251125()},
        crossing=nobody,
        answer_within=0,
        called=lambda _method, _outcome, _seconds: None,
    )
    return advertise(message, Visit(served, Inbound("reports", "POST", []), None, None, known=known))


def capabilities(message: bytes) -> Any:
    return json.loads(message)["result"]["capabilities"]


def test_I1_the_capability_stands_behind_the_upstreams_own_and_all_else_stays() -> None:
    before = answer(
        '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"x":1.0},'
        '"serverInfo":{"name":"\\u00e9","version":"1"},"instructions":"a\\/b","more":[ 1 ]}'
    )
    opened = told(before, "tools/call")
    assert opened is not None
    assert opened.message == before.replace(b'"x":1.0}', b'"x":1.0,"tasks":{"tools":{"call":true}}}')
    assert (opened.version, opened.own_tasks) == ("2025-06-18", False)


def test_what_the_upstream_says_of_its_own_tasks_stays() -> None:
    own: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    opened = told(answer(json.dumps({"capabilities": {"tasks": own}})), "tools/call")
    assert opened is not None
    assert opened.own_tasks
    assert capabilities(opened.message) == {"tasks": {**own, **TOOLS}}


@pytest.mark.parametrize("result", ["{}", '{"capabilities":{}}', '{"capabilities":null}'])
def test_a_server_without_capabilities_gets_one(result: str) -> None:
    opened = told(answer(result), "tools/call", "resources/read")
    assert opened is not None
    assert capabilities(opened.message) == {"tasks": {"tools": {"call": True}, "resources": {"read": True}}}
    assert opened.version == ""


def test_I1_where_nothing_may_be_a_task_not_one_byte_changes() -> None:
    before = answer('{ "capabilities" : { } , "protocolVersion" : "2025-11-25" }')
    opened = told(before)
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
    assert told(message, "tools/call") is None


@pytest.mark.parametrize(("known", "listed"), [(True, {"list": {}}), (False, {})])
def test_from_2025_11_25_on_its_own_form_stands_beside_it(known: bool, listed: dict[str, Any]) -> None:
    before = answer('{"protocolVersion":"2025-11-25","capabilities":{}}')
    opened = told(before, "tools/call", known=known)
    assert opened is not None
    own: dict[str, Any] = {**listed, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert capabilities(opened.message) == {"tasks": {**TOOLS, **own}}


@given(st.dictionaries(st.text(), JSON, max_size=4), st.dictionaries(st.text(), JSON, max_size=4))
def test_I1_whatever_a_server_answers_only_the_capability_comes_to_it(
    result: dict[str, Any], own: dict[str, Any]
) -> None:
    own.pop("tasks", None)
    wanted = {**result, "capabilities": own}
    opened = told(answer(json.dumps(wanted)), "tools/call")
    assert opened is not None
    assert json.loads(opened.message)["result"] == {**wanted, "capabilities": {**own, "tasks": TOOLS}}
