"""What the bridge makes, held against the JSON schemas of both eras."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from gateway.bridge.discover import discovered, initialized
from gateway.bridge.inputs import as_server_request, input_required, retry, url_elicitations
from gateway.bridge.requests import initialize_request, to_handshake, to_stateless
from gateway.bridge.results import (
    acknowledged,
    change_for,
    error_to_stateless,
    subscription_end,
)
from gateway.bridge.results import to_handshake as result_to_handshake
from gateway.bridge.results import to_stateless as result_to_stateless
from gateway.protocol.envelope import dump, error_response, peek, refusal_response
from gateway.protocol.errors import Refusal
from gateway.protocol.stateless import check_headers, missing_extension, read_meta
from tests.cold.stateless_making import META, PREFIX, SUPPORTED, VERSION, asked, headers, raw, request
from tests.cold.test_bridge_discover import DISCOVERED, INITIALIZED
from tests.cold.test_bridge_inputs import FORM, URL
from tests.schemas import Schema, mistakes

INFO: Final = b'{"name":"s","version":"1"}'
RESULTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "tools/call": ("CallToolResult", {"content": [], "structuredContent": {"a": 1}}),
    "tools/list": (
        "ListToolsResult",
        {
            "tools": [
                {"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
            ]
        },
    ),
    "prompts/list": ("ListPromptsResult", {"prompts": []}),
    "prompts/get": ("GetPromptResult", {"messages": []}),
    "resources/list": ("ListResourcesResult", {"resources": [], "nextCursor": "c"}),
    "resources/templates/list": ("ListResourceTemplatesResult", {"resourceTemplates": []}),
    "resources/read": ("ReadResourceResult", {"contents": [{"uri": "file:///a", "text": "x"}]}),
    "completion/complete": ("CompleteResult", {"completion": {"values": []}}),
}


def check(version: Schema, name: str, message: bytes) -> None:
    assert mistakes(version, name, json.loads(message)) == []


def refused_with(envelope: Any, *, by_headers: bool = False) -> bytes:
    with pytest.raises(Refusal) as refused:
        if by_headers:
            check_headers(envelope, headers())
        read_meta(envelope, SUPPORTED)
    return refusal_response(b"1", refused.value)


def test_discovery_and_initialize_results_are_those_of_the_schemas() -> None:
    check("2025-11-25", "InitializeResult", raw(INITIALIZED))
    check(VERSION, "DiscoverResult", discovered(raw(INITIALIZED), SUPPORTED, 5))
    check(VERSION, "DiscoverResult", discovered(b"{}", SUPPORTED, 5))
    check(VERSION, "DiscoverResult", raw(DISCOVERED))
    check("2025-11-25", "InitializeResult", initialized(raw(DISCOVERED), "2025-11-25"))
    check("2025-11-25", "InitializeResult", initialized(b"{}", "2025-11-25"))


def test_requests_are_those_of_the_schemas() -> None:
    message = request("tools/call", {"name": "t", "arguments": {}, "_meta": META})
    check(VERSION, "CallToolRequest", message)
    check("2025-11-25", "CallToolRequest", to_handshake(message))
    augmented = request("tools/call", {"name": "t", "task": {"ttl": 1}})
    check("2025-11-25", "CallToolRequest", augmented)
    stamped = to_stateless(augmented, VERSION, b'{"elicitation":{}}', INFO, "info")
    check(VERSION, "CallToolRequest", stamped)
    check(VERSION, "CallToolRequest", retry(stamped, {"a": b'{"action":"accept"}'}, b'"s"'))
    check("2025-11-25", "InitializeRequest", initialize_request(b"1", b'{"roots":{}}', None))


@pytest.mark.parametrize("method", RESULTS)
def test_results_are_those_of_the_schemas(method: str) -> None:
    name, result = RESULTS[method]
    check("2025-11-25", name, raw(result))
    there = result_to_stateless(method, raw(result), INFO)
    check(VERSION, name, there)
    check("2025-11-25", name, result_to_handshake(there))


def test_loose_output_is_tightened_for_the_handshake_era() -> None:
    loose = {"resultType": "complete", "content": [], "structuredContent": [1]}
    check(VERSION, "CallToolResult", raw(loose))
    check("2025-11-25", "CallToolResult", result_to_handshake(raw(loose)))
    tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}}
    listed = {"resultType": "complete", "tools": [tool], "ttlMs": 1, "cacheScope": "public"}
    check(VERSION, "ListToolsResult", raw(listed))
    check("2025-11-25", "ListToolsResult", result_to_handshake(raw(listed)))


def test_input_is_asked_for_as_the_schemas_say() -> None:
    error = raw({"code": -32042, "message": "m", "data": {"elicitations": [{**URL, "elicitationId": "e"}]}})
    check("2025-11-25", "URLElicitationRequiredError", error_response(b"1", error))
    asked_for = url_elicitations(error)
    assert asked_for is not None
    check(VERSION, "InputRequiredResult", input_required(asked_for, "s"))
    check(VERSION, "InputRequiredResult", input_required(dump({"a": FORM}), None))
    for entry in (FORM, {"method": "elicitation/create", "params": URL}):
        check("2025-11-25", "ElicitRequest", as_server_request(b"5", raw(entry)))
    check("2025-11-25", "ListRootsRequest", as_server_request(b'"r"', b'{"method":"roots/list"}'))


def test_subscriptions_are_those_of_the_schema() -> None:
    begun = acknowledged({"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}, b'"s"')
    check(VERSION, "SubscriptionsAcknowledgedNotification", begun)
    check(VERSION, "SubscriptionsListenResultResponse", subscription_end(b"7"))
    changed = raw({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    told = change_for(changed, tools=True, prompts=False, resources=False, uris=(), subscription_id=b'"s"')
    assert told is not None
    check(VERSION, "ToolListChangedNotification", told)


def test_refusals_are_those_of_the_schema() -> None:
    old = asked("tools/list", meta={f"{PREFIX}protocolVersion": "1900-01-01"})
    check(VERSION, "UnsupportedProtocolVersionError", refused_with(old))
    check(VERSION, "HeaderMismatchError", refused_with(old, by_headers=True))
    check(VERSION, "InvalidParamsError", dump(json.loads(refused_with(asked("x", meta={})))["error"]))
    missing = refusal_response(b"1", missing_extension(f"{PREFIX}tasks"))
    check(VERSION, "MissingRequiredClientCapabilityError", missing)
    check(VERSION, "JSONRPCErrorResponse", error_response(b"1", error_to_stateless(b"{}")))
    assert peek(missing).error is not None
