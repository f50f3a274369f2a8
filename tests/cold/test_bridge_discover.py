"""`server/discover` and `initialize`, each out of the other (2026-07-28 discover, versioning)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.discover import discovered, initialized, is_discovery, is_modern_error, negotiated
from gateway.protocol.envelope import peek
from gateway.protocol.errors import Refusal
from tests.cold.stateless_making import BROKEN, JSON, SUPPORTED, raw

INFO: Final = {"name": "s", "version": "1.0", "title": "S"}
KEPT: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {},
    "logging": {},
    "completions": {},
    "experimental": {"x": {}},
    "extensions": {"io.modelcontextprotocol/ui": {}},
}
INITIALIZED: Final[dict[str, Any]] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {
        **KEPT,
        "tasks": {"list": {}},
        "extensions": {"io.modelcontextprotocol/ui": {}, "io.modelcontextprotocol/tasks": {}},
    },
    "serverInfo": INFO,
    "instructions": "Use it.",
    "_meta": {"com.example/x": 1},
}
DISCOVERED: Final[dict[str, Any]] = {
    "resultType": "complete",
    "supportedVersions": list(SUPPORTED),
    "capabilities": KEPT,
    "instructions": "Use it.",
    "ttlMs": 5000,
    "cacheScope": "private",
    "_meta": {"com.example/x": 1, "io.modelcontextprotocol/serverInfo": INFO},
}


def test_an_initialize_result_becomes_a_discovery() -> None:
    assert json.loads(discovered(raw(INITIALIZED), SUPPORTED, 5000)) == DISCOVERED


def test_a_discovery_becomes_an_initialize_result() -> None:
    own: dict[str, Any] = {
        **KEPT,
        "extensions": {**KEPT["extensions"], "io.modelcontextprotocol/tasks": {}},
    }
    found = json.loads(initialized(raw({**DISCOVERED, "capabilities": own}), "2025-06-18"))
    assert found == {**INITIALIZED, "protocolVersion": "2025-06-18", "capabilities": KEPT}


def test_I1_values_keep_their_spelling() -> None:
    result = b'{"capabilities":{"experimental":{"x":{ "n" : 1.0 }}},"protocolVersion":"2025-11-25","v":1E2}'
    assert b'"experimental":{"x":{ "n" : 1.0 }}' in discovered(result, SUPPORTED, 0)
    assert b'"v":1E2' in discovered(result, SUPPORTED, 0)


def test_what_is_missing_is_left_out_or_made_up() -> None:
    assert json.loads(discovered(b'{"serverInfo":"s","instructions":7}', ["2026-07-28"], -5)) == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    assert json.loads(initialized(b'{"supportedVersions":["2026-07-28"]}', "2025-11-25")) == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "serverInfo": {"name": "unknown", "version": "unknown"},
    }


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_the_handshake_is_answered_with_the_version_asked_for_or_the_latest(
    asked: str | None, answered: str
) -> None:
    assert negotiated(asked) == answered


@pytest.mark.parametrize(
    ("result", "discovery"),
    [
        (DISCOVERED, True),
        ({"supportedVersions": ["2026-07-28"], "capabilities": {}}, True),
        (INITIALIZED, False),
        ({"supportedVersions": [], "capabilities": {}}, False),
        ({"supportedVersions": [1], "capabilities": {}}, False),
        ({"supportedVersions": "2026-07-28", "capabilities": {}}, False),
        ({"supportedVersions": ["2026-07-28"]}, False),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_discovery_lists_versions_and_capabilities(result: Any, discovery: bool) -> None:
    assert is_discovery(raw(result)) is discovery


@pytest.mark.parametrize(
    ("error", "modern"),
    [
        ({"code": -32020, "message": ""}, True),
        ({"code": -32021, "message": ""}, True),
        ({"code": -32022, "message": "", "data": {"supported": []}}, True),
        ({"code": -32601, "message": ""}, False),
        ({"code": -32602, "message": ""}, False),
        ({"code": -32000, "message": ""}, False),
        ({"code": "-32022"}, False),
        ({}, False),
        ([], False),
    ],
)
def test_a_modern_server_is_known_by_its_errors(error: Any, modern: bool) -> None:
    assert is_modern_error(peek(raw({"jsonrpc": "2.0", "id": 1, "error": error}))) is modern


def test_a_result_is_no_error() -> None:
    assert not is_modern_error(peek(b'{"jsonrpc":"2.0","id":1,"result":{"code":-32022}}'))


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("name", ["capabilities", "serverInfo", "_meta", "instructions", "extensions"])
def test_I12_any_result_is_translated_or_refused(broken: bytes, name: str) -> None:
    for result in (broken, b'{"%b":%b}' % (name.encode(), broken), b'{"capabilities":{"x":%b}}' % broken):
        is_discovery(result)
        try:
            discovered(result, SUPPORTED, 0)
            initialized(result, "2025-11-25")
        except Refusal as refused:
            assert refused.code == -32603


@given(st.dictionaries(st.text() | st.sampled_from(sorted(DISCOVERED | INITIALIZED)), JSON))
def test_what_is_made_is_a_discovery(result: dict[str, Any]) -> None:
    assert is_discovery(discovered(raw(result), SUPPORTED, 1))
    assert set(json.loads(initialized(raw(result), "2025-11-25"))) >= {"capabilities", "serverInfo"}
