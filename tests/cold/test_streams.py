"""Event ids of the gateway's own streams, and news in the words of its dialect."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dialects.sep1686 import Sep1686
from gateway.protocol.errors import Refusal
from gateway.service.feed import News
from gateway.session.streams import EVENT_MARK, Dialects, event_id, read_event_id, to_wire
from gateway.store.keys import Keys
from gateway.tasks.model import Outcome, TaskKey
from tests.cold.playbook import SCOPE, make_task

DIALECTS: Final[Dialects] = {"a": Sep1686()}


@given(st.text(), st.from_regex(r"[0-9]{1,15}-[0-9]{1,5}", fullmatch=True))
def test_an_event_id_leads_back_to_task_and_place(task_id: str, offset: str) -> None:
    task = make_task(key=TaskKey(SCOPE, task_id))
    ident = event_id(News("message", task, b"{}", offset))
    assert ident is not None
    assert ident.isascii()
    assert ident.isprintable()
    key, after = read_event_id(ident, SCOPE)
    assert (key.digest, key.scope, after) == (task.key.digest, SCOPE, offset)


def test_event_ids_of_two_tasks_differ_at_the_same_place() -> None:
    one, other = (event_id(News("message", make_task(name), b"{}", "5-0")) for name in ("a", "b"))
    assert one != other


def test_news_without_a_place_has_no_event_id() -> None:
    assert event_id(News("final", make_task(), outcome=Outcome(status="completed", result=b"{}"))) is None


def test_the_place_before_the_first_message_is_the_start() -> None:
    digest = make_task().key.digest
    assert read_event_id(f"{EVENT_MARK}{digest}_0", SCOPE)[1] is None


@given(st.text().map(lambda text: EVENT_MARK + text))
@example(EVENT_MARK)
@example(EVENT_MARK + "\udcff_1")
@example(EVENT_MARK + "}{x:r_1-0")
@example(EVENT_MARK + "a" * 32 + "_1-0\n")
@example(EVENT_MARK + "A" * 32 + "_$")
def test_I12_an_event_id_that_only_looks_like_ours_is_refused_or_harmless(ident: str) -> None:
    try:
        key, _ = read_event_id(ident, SCOPE)
    except Refusal as refusal:
        assert refusal.status == 400
        assert refusal.message
    else:
        assert set(key.digest) <= set("0123456789abcdef")
        assert Keys().log(key).startswith(Keys().scope(SCOPE)[0].rpartition(b":")[0])


def test_I7_an_event_id_is_read_within_the_scope_of_who_asks() -> None:
    ident = event_id(News("message", make_task(), b"{}", "5-0"))
    assert ident is not None
    assert read_event_id(ident, SCOPE)[0].scope == SCOPE


@pytest.mark.parametrize("status", ["failed", "unknown"])
def test_an_end_without_an_answer_is_told_as_an_error(status: str) -> None:
    outcome = Outcome(status="failed" if status == "failed" else "unknown")
    wire = to_wire(News("final", make_task(), outcome=outcome), DIALECTS)
    assert wire is not None
    assert json.loads(wire.message)["error"] == {"code": -32603, "message": "the outcome is unknown"}


def test_a_cancelled_task_has_no_last_word() -> None:
    assert to_wire(News("final", make_task(), outcome=Outcome(status="cancelled")), DIALECTS) is None


def test_creation_is_told_in_the_words_of_the_dialect() -> None:
    wire = to_wire(News("created", make_task("t"), offset="0"), DIALECTS)
    assert wire is not None
    assert json.loads(wire.message)["method"] == "notifications/tasks/created"
    assert wire.ident == f"{EVENT_MARK}{make_task('t').key.digest}_0"
