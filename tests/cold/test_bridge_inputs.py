"""Input asked for and given in rounds (2026-07-28 "Multi Round-Trip Requests")."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given

from gateway.bridge.inputs import (
    answers_in,
    as_server_request,
    input_required,
    read_input_required,
    retry,
    url_elicitations,
)
from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import Refusal
from tests.cold.stateless_making import BROKEN, JSON, META, asked, raw, request

FORM: Final[dict[str, Any]] = {
    "method": "elicitation/create",
    "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
}
READERS: Final[list[Callable[[bytes], Any]]] = [
    read_input_required,
    lambda it: as_server_request(b"1", it),
    lambda it: retry(it, {"a": b"{}"}, None),
    lambda it: answers_in(Envelope("request", b"1", "tools/call", it, None, None, b"")),
    url_elicitations,
]
URL: Final = {"mode": "url", "message": "Go", "url": "https://a.example/x"}


def test_a_result_asks_for_input() -> None:
    assert input_required(b'{"a":{ "method":"roots/list" }}', "s") == (
        b'{"resultType":"input_required","inputRequests":{"a":{ "method":"roots/list" }},'
        b'"requestState":"s"}'
    )
    assert json.loads(input_required(b"{}", "s")) == {"resultType": "input_required", "requestState": "s"}
    assert "requestState" not in json.loads(input_required(raw({"a": FORM}), None))
    with pytest.raises(Refusal):
        input_required(b"{}", None)


def test_I1_what_an_upstream_asks_is_read_as_it_is() -> None:
    result = (
        b'{"resultType":"input_required","inputRequests":{"a":{ "method":"roots/list" },"\\ud800":'
        b'{"method":"sampling/createMessage","params":{"n":1.0}}},"requestState":"\\u0041"}'
    )
    assert read_input_required(result) == (
        {
            "a": b'{ "method":"roots/list" }',
            "\ud800": b'{"method":"sampling/createMessage","params":{"n":1.0}}',
        },
        b'"\\u0041"',
    )
    assert read_input_required(b'{"requestState":""}') == ({}, b'""')
    assert read_input_required(raw({"inputRequests": {"a": FORM}}))[1] is None


@pytest.mark.parametrize(
    "result",
    [
        {},
        [],
        None,
        {"inputRequests": {}},
        {"inputRequests": []},
        {"inputRequests": None, "requestState": "s"},
        {"requestState": 7},
        {"inputRequests": {"a": 1}},
        {"inputRequests": {"a": {"params": {}}}},
        {"inputRequests": {"a": {"method": "tools/call"}}},
    ],
)
def test_I12_what_an_upstream_may_not_ask_is_its_error(result: Any) -> None:
    with pytest.raises(Refusal, match="The upstream's request for input") as refused:
        read_input_required(raw(result))
    assert refused.value.code == -32603


def test_an_entry_is_asked_as_a_request_of_the_handshake_era() -> None:
    assert json.loads(as_server_request(b"5", raw(FORM))) == {"jsonrpc": "2.0", "id": 5, **FORM}
    roots = as_server_request(b'"x"', b'{"method":"roots/list"}')
    assert json.loads(roots) == {"jsonrpc": "2.0", "id": "x", "method": "roots/list"}
    with pytest.raises(Refusal):
        as_server_request(b"5", b"{}")


@pytest.mark.parametrize(("ident", "own"), [(b"5", "5"), (b'"x-1"', "x-1")])
def test_an_elicitation_by_url_gets_an_id(ident: bytes, own: str) -> None:
    entry = raw({"method": "elicitation/create", "params": URL})
    assert json.loads(as_server_request(ident, entry))["params"] == {**URL, "elicitationId": own}
    named = raw({"method": "elicitation/create", "params": {**URL, "elicitationId": "e"}})
    assert json.loads(as_server_request(ident, named))["params"]["elicitationId"] == "e"


def test_I1_a_retry_is_the_request_with_the_answers() -> None:
    message = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        b'{"name":"t","arguments":{ "n":1.0 },"inputResponses":{"old":{}},"requestState":"old"}}'
    )
    assert retry(message, {"a": b'{ "action":"accept" }'}, b'"new"') == (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{ "n":1.0 },'
        b'"inputResponses":{"a":{ "action":"accept" }},"requestState":"new"}}'
    )
    assert json.loads(retry(message, {}, None))["params"] == {"name": "t", "arguments": {"n": 1.0}}


def test_the_answers_of_a_retry_are_read() -> None:
    envelope = peek(retry(request("tools/call", {"_meta": META}), {"a": b'{ "roots":[] }'}, b'"s"'))
    assert answers_in(envelope) == ({"a": b'{ "roots":[] }'}, "s")
    assert answers_in(asked("tools/call")) == ({}, None)
    assert answers_in(peek(request("tools/call"))) == ({}, None)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"inputResponses": []}, "inputResponses must be an object"),
        ({"inputResponses": None}, "inputResponses must be an object"),
        ({"inputResponses": {"a": 1}}, "inputResponses['a'] must be an object"),
        ({"inputResponses": {"a": {}, "b" * 5000: None}}, "must be an object"),
        ({"requestState": {}}, "requestState must be a string"),
        ({"requestState": None}, "requestState must be a string"),
    ],
)
def test_I12_malformed_answers_are_invalid_params(params: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        answers_in(asked("tools/call", params))
    assert refused.value.code == -32602
    assert words in refused.value.message
    assert len(refused.value.message) < 200


def test_required_elicitations_by_url_are_asked_in_a_round() -> None:
    error = {
        "code": -32042,
        "message": "m",
        "data": {"elicitations": [{**URL, "elicitationId": "e1"}, {"mode": "form"}, 7, URL]},
    }
    found = url_elicitations(raw(error))
    assert found is not None
    entry = {"method": "elicitation/create", "params": URL}
    assert json.loads(found) == {"url-1": entry, "url-2": entry}


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32042, "message": "m"},
        {"code": -32042, "message": "m", "data": {"elicitations": []}},
        {"code": -32042, "message": "m", "data": {"elicitations": {"url": "x"}}},
        {"code": -32042, "message": "m", "data": {"elicitations": [{"mode": "url", "url": 1}]}},
        {"code": -32602, "message": "m", "data": {"elicitations": [URL]}},
        [],
        None,
    ],
)
def test_other_errors_ask_for_nothing(error: Any) -> None:
    assert url_elicitations(raw(error)) is None


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("name", ["inputRequests", "requestState", "inputResponses", "method", "data"])
def test_I12_anything_is_read_or_refused(broken: bytes, name: str) -> None:
    params = b'{"%b":%b}' % (name.encode(), broken)
    for one in (broken, params, b'{"code":-32042,"data":{"elicitations":[%b]}}' % broken):
        for read in READERS:
            try:
                read(one)
            except Refusal as refused:
                assert refused.code in (-32602, -32603)


@given(JSON)
def test_I12_any_request_for_input_is_read_or_refused(data: Any) -> None:
    for result in (data, {"inputRequests": data}, {"inputRequests": {"a": {**FORM, "params": data}}}):
        try:
            entries, _ = read_input_required(raw(result))
        except Refusal:
            continue
        for entry in entries.values():
            as_server_request(b"1", entry)
