"""What stateless requests say of themselves (2026-07-28 basic, versioning, Streamable HTTP)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import Refusal
from gateway.protocol.stateless import (
    LOG_LEVELS,
    TASKS_EXTENSION,
    RequestMeta,
    declares,
    missing_capability,
    missing_extension,
    opens_stateless,
    read_meta,
    request_headers,
)
from tests.cold.stateless_making import BROKEN, JSON, META, PREFIX, SUPPORTED, VERSION, asked, raw, request

BARE: Final = request("tools/list", {})


def meta(**changed: Any) -> dict[str, Any]:
    """The usual metadata with members of the reserved prefix changed; `...` takes one out."""
    found = {**META, **{PREFIX + name: value for name, value in changed.items()}}
    return {name: value for name, value in found.items() if value is not ...}


@pytest.mark.parametrize(
    ("message", "header", "stateless"),
    [
        (request("tools/list", {"_meta": META}), None, True),
        (request("tools/list", {"_meta": {f"{PREFIX}protocolVersion": None}}), None, True),
        (request("tools/list", {"_meta": meta(protocolVersion="2025-11-25")}), "2025-11-25", True),
        (BARE, VERSION, True),
        (BARE, " 2026-07-28 ", True),
        (BARE, "2027-01-01", True),
        (BARE, "2025-11-25", False),
        (BARE, None, False),
        (BARE, "", False),
        (BARE, "latest", False),
        (request("tools/list", {"_meta": {"progressToken": 1}}), "2025-06-18", False),
        (request("tools/call", [1]), None, False),
        (request("server/discover"), None, True),
        (request("subscriptions/listen", {}), None, True),
        (request("tasks/update", {}), None, True),
        (request("tasks/get", {}), None, False),
        (request("initialize", {}), VERSION, False),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}', VERSION, True),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}', "2025-11-25", False),
        (raw({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": META}}), None, True),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', VERSION, False),
    ],
)
def test_the_era_of_a_message_is_told_by_how_it_opens(
    message: bytes, header: str | None, stateless: bool
) -> None:
    assert opens_stateless(peek(message), header) is stateless


def test_metadata_is_read_in_one_spelling() -> None:
    message = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t",'
        b'"io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation":{ "form":{} }},'
        b'"io.modelcontextprotocol/clientInfo":{"version":"1","name":"\\u00e9"},'
        b'"io.modelcontextprotocol/logLevel":"warning",'
        b'"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}'
    )
    assert read_meta(peek(message), SUPPORTED) == RequestMeta(
        version=VERSION,
        capabilities=b'{"elicitation":{"form":{}},"sampling":{}}',
        info='{"name":"é","version":"1"}'.encode(),
        log_level="warning",
        token=b'"t"',
    )


def test_what_is_optional_may_be_left_out() -> None:
    found = read_meta(asked("tools/list", meta=meta(clientInfo=...)), SUPPORTED)
    assert found == RequestMeta(version=VERSION, capabilities=b"{}")


def test_a_lone_surrogate_in_the_capabilities_is_kept() -> None:
    found = read_meta(asked("x", meta=meta(clientCapabilities={"experimental": {"\ud800": {}}})), SUPPORTED)
    assert json.loads(found.capabilities) == {"experimental": {"\ud800": {}}}


@pytest.mark.parametrize(
    ("given_meta", "words"),
    [
        (None, "protocolVersion"),
        ("text", "protocolVersion"),
        ([], "protocolVersion"),
        ({}, "protocolVersion"),
        (meta(protocolVersion=...), "protocolVersion"),
        (meta(protocolVersion=None), "protocolVersion"),
        (meta(protocolVersion=20260728), "protocolVersion"),
        (meta(clientCapabilities=...), "clientCapabilities"),
        (meta(clientCapabilities=None), "clientCapabilities"),
        (meta(clientCapabilities=[]), "clientCapabilities"),
        (meta(clientCapabilities={"elicitation": True}), "elicitation"),
        (meta(clientCapabilities={"extensions": []}), "extensions"),
        (meta(clientInfo="me"), "clientInfo"),
        (meta(clientInfo={"name": "me"}), "clientInfo"),
        (meta(clientInfo={"name": "me", "version": 1}), "clientInfo"),
        (meta(logLevel="verbose"), "debug, info, notice"),
        (meta(logLevel=3), "logLevel"),
        (meta(logLevel="Error"), "logLevel"),
        ({**META, "progressToken": 1.5}, "progressToken"),
        ({**META, "progressToken": {}}, "progressToken"),
    ],
)
def test_I12_missing_or_malformed_metadata_is_invalid_params_with_status_400(
    given_meta: Any, words: str
) -> None:
    with pytest.raises(Refusal, match=words) as refused:
        read_meta(asked("tools/list", meta=given_meta), SUPPORTED)
    assert (refused.value.code, refused.value.status) == (-32602, 400)


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", "2027-01-01", "v999.0.0", ""])
def test_I12_a_version_that_is_not_served_statelessly_is_refused_with_those_that_are(version: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_meta(asked("tools/list", meta={f"{PREFIX}protocolVersion": version}), SUPPORTED)
    assert (refused.value.code, refused.value.status) == (-32022, 400)
    assert refused.value.data == {"supported": list(SUPPORTED), "requested": version}


def test_a_stateless_version_that_the_endpoint_does_not_speak_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        read_meta(asked("tools/list"), ["2025-11-25"])
    assert refused.value.data == {"supported": ["2025-11-25"], "requested": VERSION}


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_each_level_of_rfc_5424_is_known(level: str) -> None:
    assert read_meta(asked("x", meta=meta(logLevel=level)), SUPPORTED).log_level == level


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(
    "place", ["params", "_meta", "clientCapabilities", "clientInfo", "protocolVersion"]
)
def test_I12_whatever_stands_in_the_metadata_the_answer_is_a_refusal_or_metadata(
    broken: bytes, place: str
) -> None:
    found = {PREFIX + name: b"{}" for name in ("clientInfo", "clientCapabilities")}
    found[f"{PREFIX}protocolVersion"] = b'"2026-07-28"'
    if place in ("params", "_meta"):
        params = broken if place == "params" else b'{"_meta":' + broken + b"}"
    else:
        found[PREFIX + place] = broken
        params = b'{"_meta":{' + b",".join(b'"%b":%b' % (n.encode(), v) for n, v in found.items()) + b"}}"
    envelope = Envelope("request", b"1", "tools/call", params, None, None, b"")
    opens_stateless(envelope, None)
    request_headers(envelope)
    try:
        read_meta(envelope, SUPPORTED)
    except Refusal as refused:
        assert refused.status == 400


@given(st.dictionaries(st.sampled_from([*META, f"{PREFIX}logLevel", "progressToken"]), JSON))
def test_I12_any_metadata_is_read_or_refused(found: dict[str, Any]) -> None:
    try:
        read = read_meta(asked("tools/call", meta={**META, **found}), SUPPORTED)
    except Refusal as refused:
        assert refused.code in (-32602, -32022)
    else:
        assert read.version == VERSION


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        (b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}', True),
        (b'{"extensions":{"io.modelcontextprotocol/tasks":{"x":1}}}', True),
        (b'{"extensions":{"io.modelcontextprotocol/tasks":null}}', False),
        (b'{"extensions":{"io.modelcontextprotocol/ui":{}}}', False),
        (b'{"extensions":[]}', False),
        (b'{"io.modelcontextprotocol/tasks":{}}', False),
        (b'{"tasks":{}}', False),
        (b"[]", False),
    ],
)
def test_an_extension_is_declared_by_its_settings(capabilities: bytes, declared: bool) -> None:
    assert declares(capabilities, TASKS_EXTENSION) is declared


def test_a_missing_extension_is_named() -> None:
    refused = missing_extension(TASKS_EXTENSION)
    required: dict[str, object] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert (refused.code, refused.status) == (-32021, 400)
    assert refused.data == {"requiredCapabilities": required}
    assert missing_capability({"sampling": {}}).data == {"requiredCapabilities": {"sampling": {}}}
