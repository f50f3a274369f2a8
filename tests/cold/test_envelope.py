"""The envelope: what is a JSON-RPC message, and in which words the rest is refused (JSON-RPC 2.0)."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol import envelope
from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import Refusal

PARSE: Final = -32700
INVALID: Final = -32600
JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES: Final = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]) | st.text()


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", PARSE, "Parse error: the body is empty"),
        (b" \r\n\t", PARSE, "Parse error: the body is empty"),
        (b"hello", PARSE, "Parse error: the body is not JSON"),
        (b"{", PARSE, "Parse error: the body is not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', PARSE, "Parse error: the body is not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}}', PARSE, "Parse error: the body is not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}', PARSE, "Parse error: the body is not JSON"),
        (b"{'jsonrpc':'2.0'}", PARSE, "Parse error: the body is not JSON"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}',
            PARSE,
            "Parse error: the body is not",
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":01}}', PARSE, "Parse error: the body is not"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\n"}}',
            PARSE,
            "Parse error: the body is not",
        ),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\q"}}',
            PARSE,
            "Parse error: the body is not",
        ),
        (b"\x00", PARSE, "Parse error: the body is not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE, "Parse error: invalid UTF-8 at byte 34"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
            PARSE,
            "Parse error: invalid UTF-8 at byte 34",
        ),
        (b"\xff\xfe{\x00}\x00", PARSE, "Parse error: invalid UTF-8 at byte 0"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 100_000,
            PARSE,
            "Parse error: the message is nested too deeply",
        ),
        (b'{"a":' * 100_000, PARSE, "Parse error: the message is nested too deeply"),
        (b'"text"', INVALID, "Invalid Request: the message must be an object"),
        (b"null", INVALID, "Invalid Request: the message must be an object"),
        (b"5", INVALID, "Invalid Request: the message must be an object"),
        (b"true", INVALID, "Invalid Request: the message must be an object"),
        (b"[]", INVALID, "Invalid Request: the message must be an object"),
        (b"{}", INVALID, 'Invalid Request: "jsonrpc" must be "2.0"'),
        (b'{"id":1,"method":"ping"}', INVALID, 'Invalid Request: "jsonrpc" must be "2.0"'),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID, 'Invalid Request: "jsonrpc" must be "2.0"'),
        (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', INVALID, 'Invalid Request: "jsonrpc" must be "2.0"'),
        (b'{"jsonrpc":null,"id":1,"method":"ping"}', INVALID, 'Invalid Request: "jsonrpc" must be "2.0"'),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', INVALID, 'Invalid Request: "id" must not be null'),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', INVALID, 'Invalid Request: "id" must not be null'),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', INVALID, '"id" must be a string or an integer'),
        (b'{"jsonrpc":"2.0","id":1e2,"method":"x"}', INVALID, '"id" must be a string or an integer'),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', INVALID, '"id" must be a string or an integer'),
        (b'{"jsonrpc":"2.0","id":{},"method":"x"}', INVALID, '"id" must be a string or an integer'),
        (b'{"jsonrpc":"2.0","id":[1],"method":"x"}', INVALID, '"id" must be a string or an integer'),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', INVALID, 'Invalid Request: "method" must be a string'),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', INVALID, 'Invalid Request: "method" must be a string'),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":5}', INVALID, '"params" must be an object'),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":"a"}', INVALID, '"params" must be an object'),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":null}', INVALID, '"params" must be an object'),
        (
            b'{"jsonrpc":"2.0","id":1}',
            INVALID,
            'Invalid Request: there is neither "method" nor "result" nor "error"',
        ),
    ],
)
def test_I12_what_is_no_message_is_refused_in_words(body: bytes, code: int, words: str) -> None:
    with pytest.raises(Refusal) as caught:
        peek(body)
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("body", "ident"),
    [
        (b'{"id":7,"method":"x"}', b"7"),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', b'"a"'),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":5}', b"1"),
        (b'{"jsonrpc":"2.0","id":0}', b"0"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', None),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', None),
        (b"[1]", None),
    ],
)
def test_I12_a_refusal_carries_the_id_where_it_can_be_read(body: bytes, ident: bytes | None) -> None:
    with pytest.raises(Refusal) as caught:
        peek(body)
    assert caught.value.request_id == ident
    answer = json.loads(envelope.refusal_response(None, caught.value))
    assert answer["id"] == (None if ident is None else json.loads(ident))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
            ("request", b"1", "ping", None, None, None),
        ),
        (
            b' { "jsonrpc" : "2.0" , "params" : { "a" : 1.0 } , "method" : "m/n" , "id" : -5 } ',
            ("request", b"-5", "m/n", b'{ "a" : 1.0 }', None, None),
        ),
        (
            b'{"jsonrpc":"2.0","id":"","method":"","params":[1]}',
            ("request", b'""', "", b"[1]", None, None),
        ),
        (
            b'{"jsonrpc":"2.0","method":"notifications/\\u00e9"}',
            ("notification", None, "notifications/é", None, None, None),
        ),
        (
            b'{"jsonrpc":"2.0","id":"7","result":{"a":[]}}',
            ("response", b'"7"', "", None, b'{"a":[]}', None),
        ),
        (
            b'{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":1,"message":""}}',
            ("response", b"12345678901234567890", "", None, None, b'{"code":1,"message":""}'),
        ),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
            ("response", None, "", None, None, b'{"code":-32700,"message":"Parse error"}'),
        ),
        (
            b'{"unknown":{},"jsonrpc":"2.0","id":1,"method":"x","more":[1]}',
            ("request", b"1", "x", None, None, None),
        ),
        (
            b'{"jsonrpc":"2.0","id":"\\ud800","method":"x","params":{"a":"\\udfff"}}',
            ("request", b'"\\ud800"', "x", b'{"a":"\\udfff"}', None, None),
        ),
    ],
)
def test_I1_a_message_is_seen_from_outside_and_its_parts_stay_as_they_came(
    body: bytes, wanted: tuple[Any, ...]
) -> None:
    found = peek(body)
    assert (found.kind, found.id, found.method, found.params, found.result, found.error) == wanted
    assert found.raw == body


def test_an_id_of_7_and_one_of_text_7_differ() -> None:
    assert (
        peek(b'{"jsonrpc":"2.0","id":7,"method":"x"}').id
        != peek(b'{"jsonrpc":"2.0","id":"7","method":"x"}').id
    )


def _peeked(body: bytes) -> Envelope | None:
    try:
        return peek(body)
    except Refusal as refusal:
        assert refusal.code in (PARSE, INVALID)
        assert refusal.message
        return None


@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf{}")
@example(b'{"jsonrpc":"2.0","id":"\\ud800')
@example(b"\\ud800")
@example(b"\\ufdd0" * 3 + b'{"\\ud800"}')
def test_I12_any_bytes_are_a_message_or_refused(body: bytes) -> None:
    _peeked(body)


@given(st.dictionaries(NAMES, JSON | st.just("2.0"), max_size=7) | JSON)
def test_I12_any_json_is_a_message_or_refused(data: Any) -> None:
    body = json.dumps(data).encode()
    found = _peeked(body)
    if found is not None:
        assert isinstance(data, dict)
        assert found.raw == body


@given(
    st.integers() | st.text(),
    st.text(),
    st.dictionaries(st.text(), JSON, max_size=4),
    st.booleans(),
)
def test_any_request_is_taken_whole(
    ident: int | str, method: str, params: dict[str, Any], ascii_only: bool
) -> None:
    message = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
    found = _peeked(json.dumps(message, ensure_ascii=ascii_only).encode())
    assert found is not None
    assert (found.kind, found.method) == ("request", method)
    assert json.loads(found.id or b"") == ident
    assert json.loads(found.params or b"") == params


@given(st.binary(max_size=60))
@example(b"[" * 100_000)
@example(b'"\\ud800"')
def test_reading_parts_never_fails(raw: bytes) -> None:
    envelope.members(raw)
    envelope.meta_of(raw)
    envelope.value(raw)
    envelope.text_of(raw)
    envelope.is_batch(raw)


@given(JSON)
def test_a_value_is_read_as_json_has_it(data: Any) -> None:
    assert envelope.value(json.dumps(data).encode()) == data


def test_text_is_only_what_is_text() -> None:
    assert envelope.text_of(b'"a\\n"') == "a\n"
    assert [envelope.text_of(raw) for raw in (b"5", b"null", b"{}", b"nonsense", None)] == [None] * 5


def test_members_keep_their_order_and_spelling() -> None:
    found = envelope.members(b'{"b" : 1.0, "a":[ 1 ],"\\u00e9":"\\/"}')
    assert [(name, bytes(part)) for name, part in found.items()] == [
        ("b", b"1.0"),
        ("a", b"[ 1 ]"),
        ("é", b'"\\/"'),
    ]
    assert [envelope.members(raw) for raw in (b"[]", b'"a"', b"1", None)] == [{}] * 4


def test_metadata_is_found_in_params_only_one_level_deep() -> None:
    assert list(envelope.meta_of(b'{"x":{"_meta":{"b":1}},"_meta":{"a":1}}')) == ["a"]
    assert envelope.meta_of(b'{"x":{"_meta":{"b":1}}}') == {}
    assert envelope.meta_of(b'{"_meta":5}') == {}


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (b"[]", True),
        (b" \t\r\n[1]", True),
        (b"{}", False),
        (b"", False),
        (b'"["', False),
        (b"\xef\xbb\xbf[", False),
    ],
)
def test_a_batch_is_an_array(body: bytes, batch: bool) -> None:
    assert envelope.is_batch(body) is batch


def test_a_batch_is_taken_apart() -> None:
    assert envelope.split_batch(b' [ {"a":1.0} , 5,[] ] ') == [b'{"a":1.0}', b"5", b"[]"]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"[]", INVALID, "Invalid Request: the batch is empty"),
        (b"[1", PARSE, "Parse error: the body is not JSON"),
        (b"{}", PARSE, "Parse error: the body is not JSON"),
        (b"[" * 100_000, PARSE, "Parse error: the body is not JSON"),
    ],
)
def test_what_is_no_batch_is_refused(body: bytes, code: int, words: str) -> None:
    with pytest.raises(Refusal) as caught:
        envelope.split_batch(body)
    assert (caught.value.code, caught.value.message) == (code, words)


def test_messages_are_built_from_their_parts() -> None:
    assert (
        envelope.request(b'"a"', "x", b'{"n":1.0}')
        == b'{"jsonrpc":"2.0","id":"a","method":"x","params":{"n":1.0}}'
    )
    assert envelope.request(b"1", 'q"\n', None) == b'{"jsonrpc":"2.0","id":1,"method":"q\\"\\n"}'
    assert envelope.notification("n", b"{}") == b'{"jsonrpc":"2.0","method":"n","params":{}}'
    assert envelope.response(b"7", b"{}") == b'{"jsonrpc":"2.0","id":7,"result":{}}'
    assert envelope.response(None, b"{}") == b'{"jsonrpc":"2.0","id":null,"result":{}}'
    assert envelope.error_response(b"7", b"{}") == b'{"jsonrpc":"2.0","id":7,"error":{}}'


def test_a_refusal_becomes_the_error_that_it_is() -> None:
    refusal = Refusal(-32602, "no é", {"limit": "x"}, request_id=b"3")
    assert json.loads(envelope.refusal_response(b'"q"', refusal)) == {
        "jsonrpc": "2.0",
        "id": "q",
        "error": {"code": -32602, "message": "no é", "data": {"limit": "x"}},
    }
    assert json.loads(envelope.refusal_response(None, refusal))["id"] == 3
    assert "data" not in json.loads(envelope.refusal_response(None, Refusal(-32600, "x")))["error"]


@pytest.mark.parametrize("depth", [1, 200, 256])
def test_a_message_may_be_nested_to_the_limit(depth: int) -> None:
    envelope.check_depth(b"[" * depth + b"]" * depth)
    envelope.check_depth(b'{"a":' * depth + b"1" + b"}" * depth)


@pytest.mark.parametrize("depth", [257, 1_000])
def test_I12_deeper_nesting_is_refused_in_words(depth: int) -> None:
    for body in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
        with pytest.raises(Refusal) as caught:
            envelope.check_depth(body)
        assert caught.value.code == PARSE
        assert caught.value.message == "Parse error: the message is nested deeper than 256"


def test_brackets_in_text_are_no_nesting() -> None:
    envelope.check_depth(json.dumps({"a": "[" * 1_000, 'b"[{': "\\" * 3 + '"[[' * 500}).encode())
    envelope.check_depth(json.dumps([[{}, []]] * 1_000).encode())


def test_I10_the_depth_of_a_large_body_is_found_quickly() -> None:
    block = b"[" * 250 + b"]" * 250
    body = b"[" + b",".join([block] * 8_000) + b"]"
    started = time.process_time()
    envelope.check_depth(body)
    assert time.process_time() - started < 1.5
