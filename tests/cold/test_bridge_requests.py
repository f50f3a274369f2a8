"""Requests between the eras: metadata comes and goes, the rest stays byte for byte (I1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import __version__
from gateway.bridge.requests import initialize_request, salient, to_handshake, to_stateless
from gateway.protocol.envelope import peek
from gateway.protocol.errors import Refusal
from gateway.protocol.stateless import read_meta
from tests.cold.stateless_making import BROKEN, JSON, META, SUPPORTED, VERSION, raw, request

STAMPED: Final = (
    b'{"jsonrpc":"2.0", "id":7,"method":"tools/call","params":{"name":"t","arguments":{ "n":1.0,"e":1E2 },'
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":"00-ab",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"progressToken":"p",'
    b'"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info",'
    b'"com.example/x":{ "k" : 1 },"io.modelcontextprotocol/related-task":{"taskId":"r"}},'
    b'"inputResponses":{"a":{"action":"accept"}},"requestState":"s","extra":[1 ,2]},"vendor":true}'
)
BARE: Final = (
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{ "n":1.0,"e":1E2 },'
    b'"_meta":{"traceparent":"00-ab","progressToken":"p","com.example/x":{ "k" : 1 },'
    b'"io.modelcontextprotocol/related-task":{"taskId":"r"}},"extra":[1 ,2]},"vendor":true}'
)

TRANSLATORS: Final[list[Callable[[bytes], bytes]]] = [
    to_handshake,
    lambda one: to_stateless(one, VERSION, b"{}", None, None),
    lambda one: initialize_request(b"1", one, None),
]


def test_I1_only_what_belongs_to_the_stateless_era_is_taken_off() -> None:
    assert to_handshake(STAMPED) == BARE


def test_metadata_that_held_nothing_else_goes_as_a_whole() -> None:
    assert json.loads(to_handshake(request("tools/list", {"cursor": "c", "_meta": META}))) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {"cursor": "c"},
    }


@pytest.mark.parametrize(
    "message",
    [
        BARE,
        request("ping"),
        request("x", [1, 2]),
        request("x", {"_meta": {}}),
        request("x", {"_meta": "inputResponses"}),
        b'{ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }',
    ],
)
def test_I1_what_has_nothing_of_the_stateless_era_stays_as_it_is(message: bytes) -> None:
    assert to_handshake(message) == message


def test_stamps_say_who_asks_and_replace_older_ones() -> None:
    stamped = to_stateless(STAMPED, VERSION, b'{"roots":{}}', b'{"name":"n","version":"2"}', "error")
    meta = read_meta(peek(stamped), SUPPORTED)
    assert meta.capabilities == b'{"roots":{}}'
    assert meta.info == b'{"name":"n","version":"2"}'
    assert (meta.version, meta.log_level, meta.token) == (VERSION, "error", b'"p"')
    again = read_meta(peek(to_stateless(STAMPED, VERSION, b"{}", None, None)), SUPPORTED)
    assert (again.info, again.log_level) == (None, None)


def test_I1_what_was_stamped_is_itself_again_without_the_stamps() -> None:
    assert to_handshake(to_stateless(BARE, VERSION, b"{}", b'{"name":"n","version":"2"}', "info")) == BARE


def test_a_stateless_server_decides_by_itself_what_becomes_a_task() -> None:
    message = request("tools/call", {"name": "t", "task": {"ttl": 5}})
    assert "task" not in json.loads(to_stateless(message, VERSION, b"{}", None, None))["params"]


def test_a_request_without_parameters_gets_some() -> None:
    stamped = json.loads(to_stateless(request("tools/list"), VERSION, b"{}", None, None))
    assert set(stamped["params"]) == {"_meta"}


def test_a_held_session_is_opened_with_what_its_client_can_do() -> None:
    capabilities = raw(
        {
            "roots": {"listChanged": True},
            "sampling": {"tools": {}},
            "elicitation": {"form": {}, "url": {}},
            "experimental": {"x": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/ui": {"m": [1]}},
            "tasks": {"list": {}},
            "com.example": {},
        }
    )
    opened = json.loads(initialize_request(b'"i"', capabilities, None))
    assert opened == {
        "jsonrpc": "2.0",
        "id": "i",
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "roots": {},
                "sampling": {"tools": {}},
                "elicitation": {"form": {}, "url": {}},
                "experimental": {"x": {}},
                "extensions": {"io.modelcontextprotocol/ui": {"m": [1]}},
                "com.example": {},
            },
            "clientInfo": {"name": "mcp-task-gateway", "version": __version__},
        },
    }


def test_a_held_session_bears_the_name_of_its_client() -> None:
    opened = initialize_request(
        b"1", b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}', b'{"name":"n"}'
    )
    assert json.loads(opened)["params"]["clientInfo"] == {"name": "n"}
    assert json.loads(opened)["params"]["capabilities"] == {}
    named = json.loads(initialize_request(b"1", b"{}", None, "2025-06-18", default_info=b'{"name":"d"}'))
    assert named["params"]["clientInfo"] == {"name": "d"}
    assert named["params"]["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize(
    "other",
    [
        b'{"id":8,"params":{"name":"t","b":[1,{"y":2,"x":1}],"a":1},"method":"tools/call","jsonrpc":"2.0"}',
        request("tools/call", {"name": "t", "a": 1, "b": [1, {"x": 1, "y": 2}], "_meta": META}, "new"),
        request(
            "tools/call",
            {"inputResponses": {}, "name": "t", "a": 1, "b": [1, {"x": 1, "y": 2}], "requestState": "s"},
        ),
    ],
)
def test_a_retry_is_the_same_request(other: bytes) -> None:
    first = request("tools/call", {"name": "t", "a": 1, "b": [1, {"x": 1, "y": 2}]})
    assert salient(first) == salient(other)


@pytest.mark.parametrize(
    "other",
    [
        request("prompts/get", {"name": "t", "a": 1}),
        request("tools/call", {"name": "u", "a": 1}),
        request("tools/call", {"name": "t", "a": 2}),
        request("tools/call", {"name": "t"}),
        request("tools/call", {"name": "t", "a": 1, "c": None}),
        request("tools/call"),
    ],
)
def test_another_request_is_another(other: bytes) -> None:
    assert salient(request("tools/call", {"name": "t", "a": 1})) != salient(other)


def test_what_cannot_be_read_as_a_whole_still_tells_requests_apart() -> None:
    deep = b"[" * 700 + b"%b" + b"]" * 700
    one, two = (b'{"id":1,"method":"m","params":{"a":%b}}' % (deep % part) for part in (b"1", b"2"))
    assert salient(one) != salient(two)


@pytest.mark.parametrize("broken", BROKEN)
def test_I12_any_message_is_translated_or_refused(broken: bytes) -> None:
    for template in (b"%b", b'{"id":1,"method":"m","params":%b}', b'{"method":%b,"params":{"_meta":%b}}'):
        message = template.replace(b"%b", broken)
        salient(message)
        for translate in TRANSLATORS:
            try:
                translate(message)
            except Refusal as refused:
                assert refused.code == -32603


@given(st.dictionaries(st.text() | st.sampled_from(["_meta", "task", "requestState"]), JSON, max_size=4))
def test_I1_other_parameters_survive_the_way_there_and_back(params: dict[str, Any]) -> None:
    kept = {k: v for k, v in params.items() if k not in ("_meta", "task", "requestState", "inputResponses")}
    there = to_stateless(request("tools/call", params), VERSION, b"{}", None, "info")
    back = json.loads(to_handshake(there))["params"]
    back.pop("_meta", None)
    assert back == kept
