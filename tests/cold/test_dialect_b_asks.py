"""What requests ask of tasks as protocol version 2025-11-25 has it, read by dialect B."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.port import About, Ask, Dialect
from gateway.dialects.v2025_11_25 import RELATED_KEY, Tasks20251125
from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import Refusal

DIALECT: Final[Dialect] = Tasks20251125()
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def request(params: str, method: str = "tools/call") -> Envelope:
    return peek(f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'.encode())


def augmented(metadata: str) -> Envelope:
    return request(f'{{"name":"t","task":{metadata}}}')


def refused(asked: Envelope) -> Refusal:
    with pytest.raises(Refusal) as caught:
        DIALECT.read_about(asked)
    return caught.value


def test_a_call_with_a_task_field_asks_for_a_task_however_it_is_spelt() -> None:
    for params in (
        '{"task":{}}',
        '{ "task" : {"ttl":1} }',
        '{"t\\u0061sk":{}}',
        '{"task":7}',
        '{"task":null}',
    ):
        assert DIALECT.wants_task(request(params)), params


@pytest.mark.parametrize(
    "asked",
    [
        request('{"arguments":{"task":{"ttl":60000}}}'),
        request('{"_meta":{"modelcontextprotocol.io/task":{"taskId":"t"}}}'),
        request('{"name":"task"}'),
        request("[]"),
        request('{"task":{}}', "resources/read"),
        request('{"task":{},"taskId":"t"}', "tasks/get"),
        peek(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'),
    ],
)
def test_other_requests_ask_for_none(asked: Envelope) -> None:
    assert not DIALECT.wants_task(asked)


@pytest.mark.parametrize(
    ("metadata", "ask"),
    [
        ("{}", Ask()),
        ('{"ttl":null}', Ask(forever=True)),
        ('{"ttl":60000}', Ask(keep_alive=60_000)),
        ('{"ttl":0}', Ask(keep_alive=0)),
        ('{"ttl":1e3,"more":[1]}', Ask(keep_alive=1_000)),
        ('{"ttl":60000.0}', Ask(keep_alive=60_000)),
        ('{"ttl":9007199254740993}', Ask(keep_alive=2**53)),
        ('{"ttl":1e300}', Ask(keep_alive=2**53)),
        ('{"ttl":1e400}', Ask(keep_alive=2**53)),
        ('{"ttl":1' + "0" * 5_000 + "}", Ask(keep_alive=2**53)),
    ],
)
def test_a_wish_is_read(metadata: str, ask: Ask) -> None:
    assert DIALECT.read_ask(augmented(metadata), 64) == ask


@pytest.mark.parametrize("metadata", ["null", "7", "true", '"{}"', "[]", '[{"ttl":1}]'])
def test_I12_a_wish_that_is_no_object_is_refused(metadata: str) -> None:
    with pytest.raises(Refusal) as caught:
        DIALECT.read_ask(augmented(metadata), 64)
    assert caught.value.code == -32602
    assert caught.value.message == 'Invalid task metadata: "task" must be an object'


@pytest.mark.parametrize(
    ("ttl", "words"),
    [
        ("true", "a number"),
        ('"60000"', "a number"),
        ("{}", "a number"),
        ("[1]", "a number"),
        ("-1", "not negative"),
        ("-1e400", "not negative"),
        ("0.5", "whole milliseconds"),
        ("1e-3", "whole milliseconds"),
    ],
)
def test_I12_a_bad_ttl_is_refused_with_what_is_wrong(ttl: str, words: str) -> None:
    with pytest.raises(Refusal) as caught:
        DIALECT.read_ask(augmented(f'{{"ttl":{ttl}}}'), 64)
    assert caught.value.code == -32602
    assert "ttl" in caught.value.message
    assert words in caught.value.message


@given(JSON)
def test_I12_any_wish_is_read_or_refused(metadata: Any) -> None:
    for shape in (metadata, {"ttl": metadata}):
        text = re.sub(r"-?Infinity|NaN", "1e999", json.dumps(shape))
        try:
            ask = DIALECT.read_ask(augmented(text), 64)
        except Refusal as refusal:
            assert refusal.code == -32602
        else:
            assert ask.task_id == ""
            assert ask.keep_alive is None or 0 <= ask.keep_alive <= 2**53


def test_I1_stripping_takes_out_the_wish_and_nothing_else() -> None:
    raw = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"task":{"n":1.0}},'
        b'"task":{"ttl":60000},"_meta":{"progressToken":1},"name":"t"},"later":[ ]}'
    )
    assert DIALECT.strip(raw) == raw.replace(b'"task":{"ttl":60000},', b"")
    plain = raw.replace(b'"task":{"ttl":60000},', b"")
    assert DIALECT.strip(plain) == plain


@pytest.mark.parametrize("kind", ["get", "result", "cancel"])
def test_a_request_about_a_task_names_it_in_its_parameters_alone(kind: Any) -> None:
    meta = f'"_meta":{{"{RELATED_KEY}":{{"taskId":"other"}}}}'
    asked = request(f'{{"taskId":"t","task":{{"ttl":1}},{meta}}}', f"tasks/{kind}")
    assert DIALECT.read_about(asked) == About(kind, "t")
    assert DIALECT.is_about(f"tasks/{kind}")


@pytest.mark.parametrize("params", ["{}", '{"taskId":7}', '{"taskId":""}', '{"taskId":null}', "[]"])
@pytest.mark.parametrize(
    ("method", "verb"),
    [
        ("tasks/get", "Failed to retrieve task"),
        ("tasks/result", "Failed to retrieve task"),
        ("tasks/cancel", "Cannot cancel task"),
    ],
)
def test_I12_a_task_without_a_name_is_refused(method: str, verb: str, params: str) -> None:
    refusal = refused(request(params, method))
    assert refusal.code == -32602
    assert refusal.message.startswith(verb)
    assert "taskId" in refusal.message


def test_a_list_is_asked_for_with_or_without_a_cursor() -> None:
    assert DIALECT.read_about(peek(b'{"jsonrpc":"2.0","id":1,"method":"tasks/list"}')) == About("list")
    assert DIALECT.read_about(request('{"cursor":null}', "tasks/list")) == About("list")
    assert DIALECT.read_about(request('{"cursor":"c"}', "tasks/list")) == About("list", cursor="c")
    for cursor in ("7", "{}", "true", "1e400"):
        refusal = refused(request(f'{{"cursor":{cursor}}}', "tasks/list"))
        assert (refusal.code, refusal.message) == (-32602, DIALECT.bad_cursor().message)


@pytest.mark.parametrize("method", ["tasks/delete", "tasks/update", "tasks/", "tools/call", "Tasks/get"])
def test_other_methods_are_none_of_the_dialects(method: str) -> None:
    assert DIALECT.read_about(request('{"taskId":"t"}', method)) is None
    assert not DIALECT.is_about(method)
