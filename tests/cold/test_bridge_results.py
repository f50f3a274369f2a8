"""Results, errors and notifications between the eras (2026-07-28 basic, caching, subscriptions)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given

from gateway.bridge.results import (
    acknowledged,
    change_for,
    error_to_handshake,
    error_to_stateless,
    kind_of,
    notification_for,
    subscription_end,
    to_handshake,
    to_stateless,
)
from gateway.protocol.errors import Refusal
from tests.cold.stateless_making import BROKEN, JSON, PREFIX, raw

INFO: Final = b'{"name":"s","version":"1"}'
CACHEABLE: Final = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

TRANSLATORS: Final[list[Callable[[bytes], Any]]] = [
    lambda it: to_stateless("tools/list", it, INFO),
    to_handshake,
    error_to_stateless,
    error_to_handshake,
    lambda it: notification_for(it, token=b"1", log_level="info"),
    lambda it: change_for(it, tools=True, prompts=True, resources=True, uris=["a"], subscription_id=b"1"),
]


def note(method: str, params: Any = None) -> bytes:
    message = {"jsonrpc": "2.0", "method": method}
    return raw(message if params is None else {**message, "params": params})


def change(message: bytes, **wanted: Any) -> Any:
    known: dict[str, Any] = {"tools": False, "prompts": False, "resources": False, "uris": ()}
    found = change_for(message, **{**known, **wanted}, subscription_id=b'"s-1"')
    return None if found is None else json.loads(found)


def test_I1_a_result_is_stamped_and_otherwise_stays() -> None:
    result = b'{"content":[{ "type":"text","text":"\\u00e9" }],"n":1.0,"_meta":{"a":1E2}}'
    assert to_stateless("tools/call", result, INFO) == (
        b'{"content":[{ "type":"text","text":"\\u00e9" }],"n":1.0,"_meta":{"a":1E2,'
        b'"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"resultType":"complete"}'
    )
    assert to_stateless("tools/call", b'{"content":[]}', None) == b'{"content":[],"resultType":"complete"}'


@pytest.mark.parametrize("method", CACHEABLE)
def test_what_can_be_cached_says_for_how_long_and_for_whom(method: str) -> None:
    found = json.loads(to_stateless(method, b"{}", None))
    assert found == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@pytest.mark.parametrize(
    ("result", "hints"),
    [
        ({"ttlMs": 5, "cacheScope": "public"}, (5, "public")),
        ({"ttlMs": -5, "cacheScope": "all"}, (0, "private")),
        ({"ttlMs": 1.5}, (0, "private")),
        ({"ttlMs": True, "cacheScope": 1}, (0, "private")),
        ({"ttlMs": "5", "cacheScope": None}, (0, "private")),
        ({"resultType": "input_required"}, (0, "private")),
    ],
)
def test_hints_of_the_upstream_stay_where_they_are_good(result: Any, hints: tuple[Any, Any]) -> None:
    found = json.loads(to_stateless("resources/read", raw(result), None))
    assert (found.get("ttlMs"), found.get("cacheScope")) == hints


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({}, "complete"),
        ({"resultType": "complete"}, "complete"),
        ({"resultType": "input_required"}, "complete"),
        ({"resultType": "task"}, "complete"),
        ({"resultType": "table"}, "complete"),
        ({"resultType": 7}, "complete"),
    ],
)
def test_every_result_says_its_kind(result: Any, kind: str) -> None:
    assert json.loads(to_stateless("tools/call", raw(result), None))["resultType"] == kind


def test_the_name_that_an_upstream_gave_itself_stays() -> None:
    result = {"_meta": {f"{PREFIX}serverInfo": {"name": "own", "version": "2"}}}
    found = json.loads(to_stateless("tools/call", raw(result), INFO))
    assert found["_meta"][f"{PREFIX}serverInfo"]["name"] == "own"


def test_I1_tools_lose_their_execution_and_nothing_else() -> None:
    result = (
        b'{"tools":[{"name":"a","execution":{"taskSupport":"forbidden"},"x":1.0},{ "name":"b\\ud800" }]}'
    )
    assert to_stateless("tools/list", result, None) == (
        b'{"tools":[{"name":"a","x":1.0},{ "name":"b\\ud800" }],'
        b'"resultType":"complete","ttlMs":0,"cacheScope":"private"}'
    )


def test_I1_a_result_loses_what_the_handshake_era_has_not() -> None:
    result = (
        b'{"resultType":"complete","ttlMs":1,"cacheScope":"public","resources":[ ],'
        b'"_meta":{"io.modelcontextprotocol/serverInfo":{},"a":1.0}}'
    )
    assert to_handshake(result) == b'{"resources":[ ],"_meta":{"a":1.0}}'
    assert to_handshake(raw({"_meta": {f"{PREFIX}serverInfo": {}}})) == b"{}"


@pytest.mark.parametrize(
    ("structured", "kept"), [({"a": 1}, True), ([1], False), ("a", False), (None, False), (0, False)]
)
def test_structured_content_is_an_object_in_the_handshake_era(structured: Any, kept: bool) -> None:
    found = json.loads(to_handshake(raw({"content": [], "structuredContent": structured})))
    assert ("structuredContent" in found) is kept


def test_output_schemas_are_of_objects_in_the_handshake_era() -> None:
    tools: list[dict[str, Any]] = [
        {"name": "a", "outputSchema": {"type": "object"}},
        {"name": "b", "outputSchema": {"type": "array"}},
        {"name": "c", "outputSchema": {"oneOf": []}},
        {"name": "d"},
    ]
    found = json.loads(to_handshake(raw({"tools": tools})))
    assert found["tools"] == [tools[0], {"name": "b"}, {"name": "c"}, {"name": "d"}]


@pytest.mark.parametrize(
    ("code", "stateless", "handshake"),
    [
        (-32002, -32602, -32002),
        (-32001, -32603, -32001),
        (-32003, -32603, -32003),
        (-32029, -32603, -32029),
        (-32042, -32603, -32042),
        (-32020, -32603, -32603),
        (-32021, -32603, -32021),
        (-32050, -32603, -32050),
        (-32022, -32603, -32603),
        (-32601, -32601, -32601),
        (-32602, -32602, -32602),
        (-32603, -32603, -32603),
        (-32000, -32000, -32000),
        (42, 42, 42),
        ("42", -32603, -32603),
        (None, -32603, -32603),
        (1.5, -32603, -32603),
        (True, -32603, -32603),
    ],
)
def test_codes_are_those_of_the_era(code: Any, stateless: int, handshake: int) -> None:
    error = {"code": code, "message": "m", "data": {"uri": "x"}}
    assert json.loads(error_to_stateless(raw(error))) == {**error, "code": stateless}
    assert json.loads(error_to_handshake(raw(error))) == {**error, "code": handshake}


def test_a_missing_capability_that_is_named_is_told() -> None:
    error: dict[str, Any] = {
        "code": -32021,
        "message": "m",
        "data": {"requiredCapabilities": {"sampling": {}}},
    }
    assert json.loads(error_to_stateless(raw(error))) == error


def test_an_error_always_has_words() -> None:
    assert json.loads(error_to_stateless(b"null")) == {"code": -32603, "message": "Internal error"}
    assert json.loads(error_to_stateless(b'{"code":-1,"message":7}'))["message"] == "Internal error"


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({}, "complete"),
        ({"resultType": "task"}, "task"),
        ({"resultType": "odd"}, "odd"),
        ({"resultType": None}, ""),
        ([], "complete"),
    ],
)
def test_a_result_without_a_kind_is_complete(result: Any, kind: str) -> None:
    assert kind_of(raw(result)) == kind


def test_progress_goes_out_under_the_token_of_the_client() -> None:
    message = (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.50}}'
    )
    assert notification_for(message, token=b'"mine"', log_level=None) == message.replace(
        b'"progressToken":1', b'"progressToken":"mine"'
    )
    assert notification_for(message, token=None, log_level="debug") is None


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("least", [None, "odd", *LEVELS])
def test_log_messages_go_out_from_the_level_that_was_asked_for(level: str, least: str | None) -> None:
    message = note("notifications/message", {"level": level, "data": 1})
    wanted = least in LEVELS and LEVELS.index(level) >= LEVELS.index(least)
    assert notification_for(message, token=b"1", log_level=least) == (message if wanted else None)


@pytest.mark.parametrize(
    "message",
    [
        note("notifications/message", {"level": "odd", "data": 1}),
        note("notifications/message", {"data": 1}),
        note("notifications/message"),
        note("notifications/progress"),
        note("notifications/progress", [1]),
        note("notifications/tools/list_changed"),
        note("notifications/resources/updated", {"uri": "a"}),
        note("notifications/tasks/status", {"taskId": "t"}),
        note("notifications/cancelled", {"requestId": 1}),
        note("notifications/elicitation/complete", {"elicitationId": "e"}),
        note("notifications/com.example", {}),
        raw({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}}),
        raw({"jsonrpc": "2.0", "id": 1, "method": "notifications/progress", "params": {}}),
        raw({"jsonrpc": "2.0", "id": 1, "result": {}}),
    ],
)
def test_nothing_else_goes_out_on_the_stream_of_a_request(message: bytes) -> None:
    assert notification_for(message, token=b"1", log_level="debug") is None


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
def test_changed_lists_are_told_to_who_wanted_them(kind: str) -> None:
    message = note(f"notifications/{kind}/list_changed")
    assert change(message, **{kind: True})["params"] == {"_meta": {f"{PREFIX}subscriptionId": "s-1"}}
    others = {other: other != kind for other in ("tools", "prompts", "resources")}
    assert change(message, **others, uris=["a"]) is None


@pytest.mark.parametrize(
    ("uri", "uris", "told"),
    [
        ("file:///a", ["file:///a"], True),
        ("file:///a", [], False),
        ("file:///a", ["file:///b"], False),
        ("file:///a/b", ["file:///a"], True),
        ("file:///a/b", ["file:///a/"], True),
        ("file:///a?x", ["file:///a"], True),
        ("file:///ab", ["file:///a"], False),
        ("file:///a", ["file:///a/b"], False),
        ("file:///a", [""], False),
        (7, ["7"], False),
    ],
)
def test_updates_are_told_for_the_resources_that_were_named(uri: Any, uris: list[str], told: bool) -> None:
    found = change(note("notifications/resources/updated", {"uri": uri, "_meta": {"a": 1}}), uris=uris)
    assert (found is not None) is told
    if found is not None:
        assert found["params"]["_meta"] == {"a": 1, f"{PREFIX}subscriptionId": "s-1"}


def test_no_request_is_a_change() -> None:
    message = raw({"jsonrpc": "2.0", "id": 1, "method": "notifications/tools/list_changed"})
    assert change(message, tools=True) is None
    assert change(note("notifications/message", {"level": "error"}), tools=True, uris=["a"]) is None


def test_a_subscription_begins_and_ends_with_its_id() -> None:
    kept = {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
    begun = {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {f"{PREFIX}subscriptionId": 1}, "notifications": kept},
    }
    assert json.loads(acknowledged(kept, b"1")) == begun
    assert json.loads(acknowledged(raw(kept), b"1")) == begun
    assert json.loads(subscription_end(b'"x"')) == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": {"resultType": "complete", "_meta": {f"{PREFIX}subscriptionId": "x"}},
    }


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(
    "name", ["_meta", "tools", "code", "params", "ttlMs", "structuredContent", "method"]
)
def test_I12_anything_is_translated_or_refused(broken: bytes, name: str) -> None:
    message = b'{"jsonrpc":"2.0","method":"notifications/progress","%b":%b}' % (name.encode(), broken)
    for one in (broken, message, b'{"tools":[%b,{"outputSchema":%b}]}' % (broken, broken)):
        kind_of(one)
        for translate in TRANSLATORS:
            try:
                translate(one)
            except Refusal as refused:
                assert refused.code == -32603


@given(JSON)
def test_I1_a_result_survives_the_way_there_and_back(data: Any) -> None:
    result = {"content": data, "a": data}
    assert json.loads(to_handshake(to_stateless("resources/read", raw(result), INFO))) == result
