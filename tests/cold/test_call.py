"""The life of one call: what each message of an upstream means for its task."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dialects.sep1686 import TASK_KEY, Sep1686
from gateway.protocol.envelope import peek
from gateway.protocol.errors import Refusal
from gateway.tasks import call
from gateway.tasks.model import Outcome, Scope, TaskKey
from tests.cold.playbook import make_task

KEY: Final = TaskKey(Scope("u", "s"), "t")
JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
LONE: Final = "\ud800"


def said(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def progress(params: str) -> bytes:
    return f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}'.encode()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (said(id=1, result={}), "final"),
        (said(id="x", error={"code": 1, "message": "m"}), "final"),
        (said(id=None, error={"code": 1, "message": "m"}), "final"),
        (said(id=1, method="ping"), "ping"),
        (said(id=1, method="elicitation/create", params={}), "ask"),
        (said(id=1, method="sampling/createMessage", params={}), "ask"),
        (said(id="r", method="roots/list"), "ask"),
        (said(id=1, method="unknown/method"), "ask"),
        (said(method="notifications/progress", params={"progress": 1}), "progress"),
        (said(method="notifications/message", params={}), "notification"),
        (said(method="notifications/cancelled", params={"requestId": 1}), "withdrawn"),
        (b"Starting server on port 3000", "noise"),
        (b"", "noise"),
        (b"{", "noise"),
        (b"\xff\xfe", "noise"),
        (b"[]", "noise"),
        (b'{"jsonrpc":"1.0","id":1,"result":{}}', "noise"),
        (b'{"jsonrpc":"2.0"}', "noise"),
    ],
)
def test_each_message_of_an_upstream_has_one_meaning(message: bytes, kind: str) -> None:
    heard = call.hear(message)
    assert heard.kind == kind
    assert heard.message == message


def test_a_withdrawn_question_is_named_by_its_id_as_it_was_written() -> None:
    assert (
        call.hear(said(method="notifications/cancelled", params={"requestId": "1"})).upstream_id == b'"1"'
    )
    assert call.hear(said(method="notifications/cancelled", params={"requestId": 1})).upstream_id == b"1"
    assert call.hear(said(method="notifications/cancelled")).upstream_id == b""
    assert call.hear(said(id="q", method="roots/list")).upstream_id == b'"q"'


@given(st.binary(max_size=100))
@example(progress('{"progress":1' + "0" * 400 + "}"))
@example(progress('{"progress":1,"total":1' + "0" * 400 + "}"))
@example(progress('{"progress":1' + "0" * 5_000 + "}"))
@example(progress('{"progress":1e999,"total":-1e999}'))
@example(progress("[" * 900 + "]" * 900))
def test_no_message_of_an_upstream_is_a_failure_here(message: bytes) -> None:
    call.hear(message)


@given(st.sampled_from(["progress", "total", "message"]), JSON)
def test_no_progress_is_a_failure_here(field: str, strange: Any) -> None:
    heard = call.hear(said(method="notifications/progress", params={"progress": 1, field: strange}))
    assert heard.kind == "progress"
    if heard.text is not None:
        heard.text.encode()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ('{"progress":1,"total":4,"message":"cutting"}', "cutting"),
        ('{"progress":1,"total":4}', "1 of 4"),
        ('{"progress":0.5,"total":1.0}', "0.5 of 1"),
        ('{"progress":3}', "3"),
        ('{"progress":0,"total":10}', "0 of 10"),
        ('{"progress":0,"total":0}', "0 of 0"),
        ('{"progress":3,"message":""}', "3"),
        ('{"progress":3,"total":null}', "3"),
        ('{"progress":"3"}', None),
        ('{"progress":true}', None),
        ("{}", None),
        ("[]", None),
    ],
)
def test_progress_is_told_in_words(params: str, words: str | None) -> None:
    assert call.hear(progress(params)).text == words


def test_text_of_an_upstream_can_always_be_written_again() -> None:
    told = call.hear(progress(json.dumps({"progress": 1, "message": LONE}))).text
    assert told is not None
    told.encode()
    outcome = outcome_of(error={"code": 1, "message": f"no {LONE}"})
    described = Sep1686().described(make_task(status="failed", error=outcome.error))
    assert json.loads(described)["error"].startswith("no ")


def ended(message: bytes) -> Outcome:
    outcome = call.hear(message).outcome
    assert outcome is not None
    return outcome


def outcome_of(**response: Any) -> Outcome:
    return ended(said(id=1, **response))


def test_a_result_completes_and_stays_as_it_came() -> None:
    outcome = ended(b'{"jsonrpc":"2.0","id":1,"result":{"n":1.0, "isError":false}}')
    assert outcome == Outcome(status="completed", result=b'{"n":1.0, "isError":false}')
    assert call.label_of(outcome) == "completed"


def test_a_result_with_isError_completes_too_and_is_told_apart() -> None:
    outcome = outcome_of(result={"content": [], "isError": True})
    assert (outcome.status, outcome.is_error) == ("completed", True)
    assert call.label_of(outcome) == "tool_error"


@pytest.mark.parametrize("strange", ["true", 1, None, {}, "yes"])
def test_only_true_is_isError(strange: Any) -> None:
    assert not outcome_of(result={"isError": strange}).is_error


def test_an_error_fails_and_stays_as_it_came() -> None:
    raw = b'{"code":-32050, "message":"rate limit","data":{"after":5.0}}'
    outcome = ended(b'{"jsonrpc":"2.0","id":1,"error":' + raw + b"}")
    assert outcome == Outcome(status="failed", rpc_error=raw, error="rate limit")
    assert call.label_of(outcome) == "rpc_error"


@pytest.mark.parametrize(
    "error", [{"code": 1}, {"code": 1, "message": 5}, {"code": 1, "message": ""}, "boom", []]
)
def test_an_error_without_words_gets_some(error: Any) -> None:
    assert outcome_of(error=error).error == "the upstream answered an error"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (call.timed_out(90_000), "Timed out: the tool did not answer within 90 s"),
        (call.timed_out(1_500), "Timed out: the tool did not answer within 1.5 s"),
        (call.lost("it closed the connection"), "Upstream lost: it closed the connection"),
        (call.too_large(17, 16), "Limit reached: the result has 17 bytes, result_bytes allows 16"),
        (call.stopped(), "Outcome unknown: the gateway stopped before the task ended"),
        (
            call.orphaned(),
            "Outcome unknown: the gateway replica that ran this task was lost before it ended",
        ),
    ],
)
def test_I5_an_end_without_an_answer_is_failed_with_the_reason(outcome: Outcome, words: str) -> None:
    assert outcome == Outcome(status="failed", error=words)


def test_a_request_goes_up_under_an_id_and_a_progress_token_of_our_own() -> None:
    raw = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n":1.0},"x":[ ]}'
    sent, wanted = call.upstream_request(raw, "u-1")
    assert sent == (
        b'{"jsonrpc":"2.0","id":"u-1","method":"tools/call",'
        b'"params":{"n":1.0,"_meta":{"progressToken":"u-1"}},"x":[ ]}'
    )
    assert not wanted


@pytest.mark.parametrize("token", ['"mine"', "0", "7", "null"])
def test_a_progress_token_of_the_clients_own_is_kept(token: str) -> None:
    raw = (
        f'{{"jsonrpc":"2.0","id":7,"method":"x","params":{{"_meta":{{"progressToken":{token}}}}}}}'.encode()
    )
    sent, wanted = call.upstream_request(raw, "u-1")
    assert sent == raw.replace(b'"id":7', b'"id":"u-1"')
    assert wanted


def test_a_request_without_parameters_gets_some() -> None:
    sent, _ = call.upstream_request(b'{"jsonrpc":"2.0","id":7,"method":"x"}', "u")
    assert json.loads(sent)["params"] == {"_meta": {"progressToken": "u"}}


def test_I1_nesting_is_taken_whole_or_refused() -> None:
    dialect = Sep1686()
    for depth in [*range(1, 1_000, 50), *range(950, 1_010)]:
        nest = b"[" * depth + b"]" * depth
        raw = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":%b},'
            b'"_meta":{"%b":{"taskId":"x"}}}}' % (nest, TASK_KEY.encode())
        )
        try:
            if not dialect.wants_task(peek(raw)):
                pytest.fail(f"overlooked at {depth}")
            sent, _ = call.upstream_request(dialect.strip(raw), "u")
        except Refusal:
            assert depth > 200
            continue
        assert b'"arguments":{"a":%b}' % nest in sent
        assert TASK_KEY.encode() not in sent


def test_the_id_of_a_question_names_its_task_and_nothing_else() -> None:
    ident = call.relay_id(KEY, 1, 3)
    assert ident == f"mtg-ask.{KEY.digest}.1-3"
    assert call.is_relay_id(json.dumps(ident).encode())
    assert call.relay_id(TaskKey(KEY.scope, "other"), 1, 3) != ident
    assert call.relay_id(KEY, 2, 3) != ident
    assert call.relayed_digest(ident) == KEY.digest
    assert call.relayed_digest("mtg-ask.x") == ""


@pytest.mark.parametrize(
    "ident", [None, b"7", b'"7"', b'"mtg-ask"', b'"x.mtg-ask.1"', b"mtg-ask.", b'"MTG-ASK.a.1"']
)
def test_other_ids_are_no_answers_to_questions_of_ours(ident: bytes | None) -> None:
    assert not call.is_relay_id(ident)


@given(st.text())
def test_the_digest_of_any_task_id_is_32_hex_digits(task_id: str) -> None:
    digest = TaskKey(KEY.scope, task_id).digest
    assert len(digest) == 32
    assert set(digest) <= set("0123456789abcdef")
    assert TaskKey.from_digest(KEY.scope, digest).digest == digest


def test_messages_of_our_own_are_json_rpc() -> None:
    assert json.loads(call.cancel_message("u-1", 'because "x"')) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": "u-1", "reason": 'because "x"'},
    }
    assert json.loads(call.pong(b'"p"')) == {"jsonrpc": "2.0", "id": "p", "result": {}}
    withdrawn = said(method="notifications/cancelled", params={"requestId": 5, "reason": "r"})
    assert json.loads(call.withdrawal(withdrawn, "mtg-ask.d.1"))["params"] == {
        "requestId": "mtg-ask.d.1",
        "reason": "r",
    }
    assert call.readdressed(b'{"id":1,"n":1.0}', b'"x"') == b'{"id":"x","n":1.0}'
