"""Lone surrogate escapes are neither refused nor changed (RFC 8259 section 8.2)."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.envelope import members, peek, value
from gateway.protocol.lone import shield

PIECES: Final = st.sampled_from(
    [
        "\\ud800",
        "\\uDFFF",
        "\\ud83d\\ude00",
        "\\\\",
        "\\\\ud800",
        '\\"',
        "\\n",
        "\\/",
        "\\ufdd0",
        "\\uFDD0",
        "d800",
        "u",
        "a",
        "é",
        "\\u0000",
    ]
)
TEXTS: Final = st.lists(PIECES, max_size=8).map("".join)


@given(TEXTS)
def test_I1_what_is_cut_out_of_shielded_json_is_what_was_there(text: str) -> None:
    raw = f'{{"a":"{text}"}}'.encode()
    shielded = shield(raw)
    if shielded is None:
        assert bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])["a"]) == f'"{text}"'.encode()
        return
    part = msgspec.json.decode(shielded.data, type=dict[str, msgspec.Raw])["a"]
    assert shielded.restore(bytes(part)) == f'"{text}"'.encode()
    assert shielded.restore(shielded.data) == raw


@given(TEXTS)
def test_json_with_lone_surrogates_is_read_as_json_has_it(text: str) -> None:
    raw = f'"{text}"'.encode()
    assert value(raw) == json.loads(raw)


@pytest.mark.parametrize("raw", [b'{"a":1}', b'{"a":"\\ud83d\\ude00"}', b'{"a":"\\\\ud800"}', b"{}", b"\\"])
def test_what_has_none_needs_no_shield(raw: bytes) -> None:
    assert shield(raw) is None


def test_a_text_that_uses_every_mark_is_given_up_and_not_changed() -> None:
    raw = b'{"a":"' + b"".join(b"\\ufdd%x" % digit for digit in range(16)) + b'\\ud800"}'
    assert shield(raw) is None


@given(TEXTS)
def test_I1_parameters_with_lone_surrogates_cross_byte_for_byte(text: str) -> None:
    params = f'{{"x":{{"y":["{text}"]}}}}'.encode()
    raw = b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + params + b"}"
    assert peek(raw).params == params


@given(TEXTS, TEXTS)
def test_I1_member_names_with_lone_surrogates_are_read_as_json_has_them(name: str, text: str) -> None:
    raw = f'{{"{name}":1,"b":"{text}"}}'.encode()
    wanted: dict[str, Any] = json.loads(raw)
    assert list(members(raw)) == list(wanted)
