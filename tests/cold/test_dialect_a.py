"""Dialect A against its vectors, and what holds of it for any input (SEP-1686)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dialects.port import About, Ask, Dialect, Offer
from gateway.dialects.sep1686 import RELATED_KEY, TASK_KEY, Sep1686
from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import Refusal
from gateway.tasks.model import Outcome
from tests.cold.playbook import VECTORS, Case, Table, alike, make_task, read_vector

FILES: Final = sorted(VECTORS.glob("a_*.json"))
CASES: Final = [
    pytest.param(case, id=f"{path.stem}: {case.name}") for path in FILES for case in read_vector(path).cases
]
DIALECT: Final[Dialect] = Sep1686()
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
HUGE: Final = "1" + "0" * 5_000


def request(params: str, method: str = "tools/call") -> Envelope:
    return peek(f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'.encode())


def augmented(metadata: str) -> Envelope:
    return request(f'{{"name":"t","_meta":{{"{TASK_KEY}":{metadata}}}}}')


@pytest.mark.parametrize("case", CASES)
def test_the_vectors_of_the_seed_hold(case: Case) -> None:
    table = Table(case.given)
    for number, step in enumerate(case.steps, 1):
        out = table.play(step.sender, json.dumps(step.message, ensure_ascii=False).encode())
        assert alike(step.out, out), f"step {number} gave {json.dumps(out, indent=1, ensure_ascii=False)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_a_vector_is_named_after_its_rule(path: Path) -> None:
    vector = read_vector(path)
    assert path.stem.startswith("a_" + vector.rule.replace(".", "_"))
    assert len({case.name for case in vector.cases}) == len(vector.cases)


@given(st.dictionaries(st.text(), JSON, max_size=4) | JSON)
@example({"taskId": "t", "keepAlive": float("inf")})
@example({"taskId": "\ud800"})
def test_reading_a_wish_ends_in_a_wish_or_a_refusal(metadata: Any) -> None:
    text = re.sub(r"-?Infinity|NaN", "1e999", json.dumps(metadata))
    envelope = augmented(text)
    assert DIALECT.wants_task(envelope)
    try:
        ask = DIALECT.read_ask(envelope, 64)
    except Refusal as refusal:
        assert refusal.code == -32602
        assert refusal.message.startswith(f'Invalid task metadata: "{TASK_KEY}" must ')
        assert len(refusal.message) < 200
    else:
        assert 0 < len(ask.task_id.encode()) <= 64
        assert ask.keep_alive is None or 0 <= ask.keep_alive <= 2**53


@given(st.sampled_from(["taskId", "keepAlive"]), JSON)
def test_a_wish_with_one_strange_field_is_read_or_refused(field: str, strange: Any) -> None:
    text = re.sub(r"-?Infinity|NaN", "1e999", json.dumps({"taskId": "t", field: strange}))
    try:
        ask = DIALECT.read_ask(augmented(text), 64)
    except Refusal as refusal:
        assert refusal.code == -32602
        assert field in refusal.message
    else:
        assert ask.forever == (field == "keepAlive" and strange is None)


@pytest.mark.parametrize("written", ["1e400", "99999999999999999999999999", HUGE])
def test_a_huge_keep_alive_is_a_number_and_not_for_ever(written: str) -> None:
    try:
        ask = DIALECT.read_ask(augmented(f'{{"taskId":"t","keepAlive":{written}}}'), 64)
    except Refusal as refusal:
        assert refusal.code == -32602
        assert "keepAlive" in refusal.message
    else:
        assert not ask.forever
        assert ask.keep_alive == 2**53


def test_of_a_doubled_member_the_last_counts_for_all_that_read_it() -> None:
    envelope = request(f'{{"_meta":{{"{TASK_KEY}":5,"{TASK_KEY}":{{"taskId":"b"}}}}}}')
    assert DIALECT.read_ask(envelope, 64) == Ask("b")
    assert TASK_KEY.encode() not in DIALECT.strip(envelope.raw)


@pytest.mark.parametrize(
    "meta",
    [
        f'"_meta":{{"{TASK_KEY}":{{"taskId":"t"}}}}',
        f'"_meta" : {{ "{TASK_KEY}" : {{ "taskId" : "t" }} }}',
        f'"_meta":{{"{TASK_KEY.replace("/", chr(92) + "/")}":{{"taskId":"t"}}}}',
        f'"\\u005fmeta":{{"{TASK_KEY}":{{"taskId":"t"}}}}',
    ],
    ids=["plain", "spaced", "escaped slash", "escaped name"],
)
def test_a_wish_is_seen_however_its_members_are_spelt(meta: str) -> None:
    envelope = request(f'{{"name":"t",{meta}}}')
    assert DIALECT.wants_task(envelope)
    assert DIALECT.read_ask(envelope, 64) == Ask("t")
    assert b"taskId" not in DIALECT.strip(envelope.raw)


@pytest.mark.parametrize(
    "params",
    [
        f'{{"arguments":{{"_meta":{{"{TASK_KEY}":{{"taskId":"t"}}}}}}}}',
        f'{{"{TASK_KEY}":{{"taskId":"t"}}}}',
        f'{{"_meta":"{TASK_KEY}"}}',
        f'{{"_meta":["{TASK_KEY}"]}}',
        '{"_meta":{"modelcontextprotocol.io/related-task":{"taskId":"t"}}}',
        '{"_meta":{"io.modelcontextprotocol/task":{"taskId":"t"}}}',
        '{"task":{"ttl":60000}}',
        "[]",
    ],
)
def test_what_only_looks_like_a_wish_is_none(params: str) -> None:
    assert not DIALECT.wants_task(request(params))


def test_a_request_without_parameters_wishes_nothing() -> None:
    assert not DIALECT.wants_task(peek(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'))


def test_I1_stripping_takes_out_the_wish_and_nothing_else() -> None:
    raw = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"arguments":{"n":1.0, "b":12345678901234567890},'
        b'"_meta":{"x":1,"' + TASK_KEY.encode() + b'":{"taskId":"t"},"y":2},"name":"t"},"later":[ ]}'
    )
    without = raw.replace(b'"' + TASK_KEY.encode() + b'":{"taskId":"t"},', b"")
    assert DIALECT.strip(raw) == without


def test_stripping_leaves_no_empty_metadata_behind() -> None:
    stripped = DIALECT.strip(augmented('{"taskId":"t"}').raw)
    assert stripped == b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'


@given(JSON)
@example({"taskId": "t"})
@example({"cursor": float("inf")})
def test_reading_a_request_about_tasks_ends_in_one_or_a_refusal(params: Any) -> None:
    if not isinstance(params, dict | list):
        params = {"taskId": params, "cursor": params}
    text = re.sub(r"-?Infinity|NaN", "1e999", json.dumps(params))
    for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/delete"):
        try:
            about = DIALECT.read_about(request(text, method))
        except Refusal as refusal:
            assert refusal.code == -32602
        else:
            assert about is not None
            assert about.task_id or about.kind == "list"


@pytest.mark.parametrize("cursor", [HUGE, "[" * 900 + "]" * 900, "1e400"])
def test_a_cursor_that_cannot_be_read_is_no_first_page(cursor: str) -> None:
    with pytest.raises(Refusal) as caught:
        DIALECT.read_about(request(f'{{"cursor":{cursor}}}', "tasks/list"))
    assert caught.value.message == DIALECT.bad_cursor().message


@pytest.mark.parametrize(
    "method", ["tasks/cancel", "tasks/update", "tasks/", "tasks", "tools/call", "Tasks/get"]
)
def test_other_methods_are_none_of_the_dialects(method: str) -> None:
    assert DIALECT.read_about(request('{"taskId":"t"}', method)) is None


def test_an_id_is_asked_about_as_it_came() -> None:
    assert DIALECT.read_about(request('{"taskId":" \\u00e9\\n "}', "tasks/get")) == About("get", " é\n ")


def test_a_cancelled_request_is_not_answered() -> None:
    assert DIALECT.final(make_task(status="cancelled"), Outcome(status="cancelled", error="x")) is None


@pytest.mark.parametrize("status", ["failed", "unknown"])
def test_a_request_whose_call_was_lost_is_answered_with_an_internal_error(status: Any) -> None:
    final = DIALECT.final(make_task(request_id=b'"a"'), Outcome(status=status, error="Upstream lost: cut"))
    assert final is not None
    assert json.loads(final) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": -32603, "message": "Upstream lost: cut"},
    }


def test_I1_a_result_keeps_its_spelling() -> None:
    result = b'{"n":1.0, "big":12345678901234567890,"e":1E2,"s":"\\u00e9\\/"}'
    related = b',"_meta":{"' + RELATED_KEY.encode() + b'":{"taskId":"t"}}}'
    task = make_task(status="completed")
    outcome = Outcome(status="completed", result=result)
    told = DIALECT.result(b"1", task, outcome)
    assert told.endswith(related + b"}")
    for part in (b'"n":1.0', b'"big":12345678901234567890', b'"e":1E2', b'"s":"\\u00e9\\/"'):
        assert part in told
    final = DIALECT.final(task, outcome)
    assert final == told


def test_a_result_that_is_no_object_stays_as_it_is() -> None:
    outcome = Outcome(status="completed", result=b"[1.0]")
    told = DIALECT.result(b'"r"', make_task(status="completed"), outcome)
    assert told == b'{"jsonrpc":"2.0","id":"r","result":[1.0]}'


def test_capabilities_are_booleans_by_category() -> None:
    methods = ["tools/call", "resources/read", "resources/list", "prompts/get"]
    found = json.loads(DIALECT.advertise(b'{"result":{}}', Offer(methods, listed=True)))
    assert found["result"]["capabilities"]["tasks"] == {
        "tools": {"call": True},
        "resources": {"read": True, "list": True},
        "prompts": {"get": True},
    }
    assert DIALECT.advertise(b'{"result":{}}', Offer([], listed=True)) == b'{"result":{}}'


def test_a_tools_error_is_a_completed_task_without_an_error() -> None:
    task = make_task(status="completed", is_error=True, error="API rate limit exceeded")
    found = json.loads(DIALECT.described(task, None))
    assert (found["status"], "error" in found) == ("completed", False)
    with pytest.raises(Refusal) as caught:
        DIALECT.result(b"1", task, None)
    assert caught.value.data == {"status": "completed"}


@pytest.mark.parametrize("made", ["b", "c", "none"])
def test_tasks_of_the_other_dialects_are_told_in_its_own_words(made: Any) -> None:
    task = make_task(
        status="failed", dialect=made, error="no", kept_from="creation", status_message="1 of 2"
    )
    found = json.loads(DIALECT.described(task, None))
    assert found.pop("_meta") == {RELATED_KEY: {"taskId": "t"}}
    assert found == {
        "taskId": "t",
        "status": "failed",
        "keepAlive": 30_000,
        "pollFrequency": 5_000,
        "error": "no",
    }


def test_nothing_is_pushed_and_methods_of_the_other_dialects_are_not_found() -> None:
    assert DIALECT.status(make_task(status="completed"), None) is None
    for call in (lambda: DIALECT.cancelled(make_task()), DIALECT.updated):
        with pytest.raises(Refusal) as caught:
            call()
        assert caught.value.code == -32601
