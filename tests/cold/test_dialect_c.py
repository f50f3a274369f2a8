"""Dialect C tells of tasks as the tasks extension of 2026-07-28 has them (SEP-2663, ext-tasks)."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.port import About, Dialect, Offer
from gateway.dialects.sep2663 import Sep2663
from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.errors import Refusal
from gateway.tasks.inputs import key_of
from gateway.tasks.model import Outcome, Task
from tests.cold import told
from tests.cold.told import ID, OUTCOMES, RESULT, RPC_ERROR
from tests.schemas import mistakes

DIALECT: Final[Dialect] = Sep2663()
EXTENSION: Final = "io.modelcontextprotocol/tasks"
TOOLS: Final = Offer(("tools/call",), listed=False)
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def request(params: str, method: str) -> Envelope:
    return peek(f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'.encode())


def described(task: Task, outcome: Outcome | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DIALECT.described(task, outcome))
    assert mistakes("tasks-extension", "GetTaskResult", found) == []
    return found


def opened(capabilities: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"capabilities": capabilities}}).encode()


# What a request asks.


def test_no_request_asks_for_a_task() -> None:
    asked = request(
        '{"name":"t","task":{"ttl":1},"_meta":{"modelcontextprotocol.io/task":{}}}', "tools/call"
    )
    assert not DIALECT.wants_task(asked)


def test_the_task_field_of_the_older_version_does_not_reach_the_upstream() -> None:
    asked = request('{"name":"t","task":{"ttl":1},"arguments":{"task":1.0}}', "tools/call")
    assert DIALECT.strip(asked.raw) == request('{"name":"t","arguments":{"task":1.0}}', "tools/call").raw


@pytest.mark.parametrize("kind", ["get", "cancel"])
def test_a_request_about_a_task_names_it(kind: Any) -> None:
    asked = request('{"taskId":"t","requestState":"x","inputResponses":7}', f"tasks/{kind}")
    assert DIALECT.read_about(asked) == About(kind, "t")
    assert DIALECT.is_about(asked.method)


@pytest.mark.parametrize("params", ["{}", '{"taskId":7}', '{"taskId":""}', '{"taskId":null}', "[]"])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_I12_a_task_without_a_name_is_refused(method: str, params: str) -> None:
    with pytest.raises(Refusal) as caught:
        DIALECT.read_about(request(params, method))
    assert caught.value.code == -32602
    assert "taskId" in caught.value.message


def test_I1_an_update_brings_answers_by_key_as_they_were_spelt() -> None:
    asked = request(
        '{"taskId":"t","inputResponses":{"1-1": {"action":"accept","n":1.0},"2":7}}', "tasks/update"
    )
    about = DIALECT.read_about(asked)
    assert about is not None
    assert (about.kind, about.task_id) == ("update", "t")
    assert about.answers == {"1-1": b'{"action":"accept","n":1.0}', "2": b"7"}
    empty = DIALECT.read_about(request('{"taskId":"t","inputResponses":{}}', "tasks/update"))
    assert empty == About("update", "t")


@pytest.mark.parametrize(
    "answers", ["", ',"inputResponses":null', ',"inputResponses":[]', ',"inputResponses":"{}"']
)
def test_I12_an_update_without_answers_is_refused(answers: str) -> None:
    with pytest.raises(Refusal) as caught:
        DIALECT.read_about(request(f'{{"taskId":"t"{answers}}}', "tasks/update"))
    assert (caught.value.code, "inputResponses" in caught.value.message) == (-32602, True)


@given(JSON)
def test_I12_any_request_about_a_task_is_read_or_refused(params: Any) -> None:
    if not isinstance(params, dict | list):
        params = {"taskId": "t", "inputResponses": params}
    text = re.sub(r"-?Infinity|NaN", "1e999", json.dumps(params))
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        try:
            about = DIALECT.read_about(request(text, method))
        except Refusal as refusal:
            assert refusal.code == -32602
        else:
            assert about is not None
            assert about.task_id


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/delete", "tools/call", "tasks/"])
def test_methods_that_are_gone_are_none_of_the_dialects(method: str) -> None:
    assert DIALECT.read_about(request('{"taskId":"t"}', method)) is None
    assert not DIALECT.is_about(method)


def test_methods_of_the_other_dialects_are_not_found() -> None:
    calls = (
        lambda: DIALECT.result(b"1", told.task("completed", "c"), OUTCOMES["completed"]),
        lambda: DIALECT.listed([], None),
        lambda: DIALECT.removed("t"),
    )
    for call in calls:
        with pytest.raises(Refusal) as caught:
            call()
        assert caught.value.code == -32601
    assert DIALECT.bad_cursor().code == -32601


# What is told.


def test_a_new_task_is_told_flat_in_the_result() -> None:
    found = json.loads(DIALECT.created(told.task(dialect="c", request_id=b'"a"')))
    assert (found["jsonrpc"], found["id"]) == ("2.0", "a")
    assert mistakes("tasks-extension", "CreateTaskResult", found["result"]) == []
    assert found["result"] == {
        "resultType": "task",
        "taskId": ID,
        "status": "working",
        "createdAt": "2025-11-25T10:30:00.123Z",
        "lastUpdatedAt": "2025-11-25T10:40:00.123Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 5_000,
    }


def test_words_for_the_model_are_the_message_of_a_new_task() -> None:
    assert json.loads(DIALECT.created(told.task(), "later"))["result"]["statusMessage"] == "later"
    running = told.task(status_message="1 of 2")
    assert json.loads(DIALECT.created(running, "later"))["result"]["statusMessage"] == "1 of 2"


@pytest.mark.parametrize("status", ["submitted", "working"])
def test_a_running_task_is_working(status: str) -> None:
    found = described(told.task(status, "c", status_message="3 of 4", poll_interval=None))
    assert (found["resultType"], found["status"], found["statusMessage"]) == (
        "complete",
        "working",
        "3 of 4",
    )
    assert not {"result", "error", "inputRequests", "pollIntervalMs"} & set(found)


def test_a_task_that_waits_shows_all_that_it_waits_for() -> None:
    waits = tuple(told.pending(method, number) for number, method in enumerate(told.ASKED, 1))
    found = described(told.task("input_required", "c", pending=waits))
    assert found["status"] == "input_required"
    asked = {key_of(one.relay_id): one.method for one in waits}
    assert {key: one["method"] for key, one in found["inputRequests"].items()} == asked
    assert found["inputRequests"][key_of(waits[0].relay_id)]["params"] == told.FORM


def test_I1_a_completed_task_holds_the_plain_result() -> None:
    told_of = DIALECT.described(told.ended(OUTCOMES["completed"]), OUTCOMES["completed"])
    assert told_of.startswith(b'{"resultType":"complete",')
    assert told_of.endswith(b',"result":' + RESULT[:-1] + b',"resultType":"complete"}}')
    assert mistakes("2026-07-28", "CallToolResult", json.loads(told_of)["result"]) == []


def test_I1_a_result_that_has_its_type_keeps_it() -> None:
    for own in (b'{"resultType":"complete","content":[]}', b'{"content":[],"resultType":"complete"}'):
        outcome = Outcome(status="completed", result=own)
        assert DIALECT.described(told.ended(outcome), outcome).endswith(b',"result":' + own + b"}")
    # A field of that name from the older era is no kind of this one.
    for other in (b'{"content":[],"resultType":"other"}', b'{"content":[],"resultType":"task"}'):
        outcome = Outcome(status="completed", result=other)
        assert described(told.ended(outcome), outcome)["result"] == {
            "content": [],
            "resultType": "complete",
        }


def test_a_tools_error_is_a_completed_task() -> None:
    found = described(told.ended(OUTCOMES["tool error"]), OUTCOMES["tool error"])
    assert (found["status"], found["statusMessage"]) == ("completed", "API rate limit exceeded")
    assert found["result"]["isError"]
    assert "error" not in found


def test_I1_a_call_that_ended_in_an_error_holds_that_error() -> None:
    task, outcome = told.ended(OUTCOMES["rpc error"]), OUTCOMES["rpc error"]
    assert DIALECT.described(task, outcome).endswith(b',"error":' + RPC_ERROR + b"}")
    assert described(task, outcome)["status"] == "failed"


@pytest.mark.parametrize("name", ["timed out", "lost", "unknown"])
def test_I5_a_call_without_an_answer_failed_with_an_error_that_says_why(name: str) -> None:
    outcome = OUTCOMES[name]
    for known in (outcome, None):
        found = described(told.ended(outcome), known)
        assert (found["status"], found["statusMessage"]) == ("failed", outcome.error)
        assert found["error"] == {"code": -32603, "message": outcome.error}


def test_a_cancelled_task_holds_neither_result_nor_error() -> None:
    found = described(told.ended(OUTCOMES["cancelled"]), OUTCOMES["cancelled"])
    assert found["status"] == "cancelled"
    assert not {"result", "error", "inputRequests"} & set(found)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(status="completed", result=b"[1.0]"),
        Outcome(status="failed", rpc_error=b"null"),
        Outcome(status="failed", rpc_error=b'"no"', error="no"),
    ],
)
def test_I12_what_an_upstream_answers_that_is_no_object_is_a_failure(outcome: Outcome) -> None:
    found = described(told.ended(outcome), outcome)
    assert (found["status"], found["error"]["code"]) == ("failed", -32603)


def test_I8_a_task_whose_result_is_gone_is_refused_as_expired_and_not_announced() -> None:
    task = told.task("completed", "c")
    with pytest.raises(Refusal) as caught:
        DIALECT.described(task, None)
    assert (caught.value.code, caught.value.message) == (
        -32602,
        "Failed to retrieve task: Task has expired",
    )
    assert DIALECT.status(task, None) is None


def test_a_notification_is_what_the_status_request_would_answer() -> None:
    for outcome in OUTCOMES.values():
        task = told.ended(outcome, dialect="c")
        found = json.loads(DIALECT.status(task, outcome) or b"")
        assert mistakes("tasks-extension", "TaskStatusNotification", found) == []
        assert {"resultType": "complete", **found["params"]} == described(task, outcome)
        assert "resultType" not in found["params"]


def test_cancel_and_update_are_acknowledged_with_nothing_more() -> None:
    for task in (told.task(), told.task("completed")):
        assert json.loads(DIALECT.cancelled(task)) == {"resultType": "complete"}
    assert json.loads(DIALECT.updated()) == {"resultType": "complete"}
    assert mistakes("tasks-extension", "CancelTaskResult", json.loads(DIALECT.updated())) == []


def test_a_task_that_is_not_there_is_refused_in_the_words_of_the_text() -> None:
    refusal = DIALECT.not_found(About("get", "t"))
    assert (refusal.code, refusal.message) == (-32602, "Failed to retrieve task: Task not found")
    for about in (About("cancel", "t"), About("update", "t")):
        assert DIALECT.not_found(about).code == -32602
        assert DIALECT.not_found(about).message.endswith("Task not found")


def test_I1_other_messages_carry_no_name_of_a_task() -> None:
    said = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
    assert DIALECT.relayed("t", said) is said
    assert DIALECT.final(told.task("completed"), OUTCOMES["completed"]) is None


# What a `server/discover` answer says.


def test_the_extension_stands_in_the_capabilities_with_nothing_in_it() -> None:
    own: dict[str, Any] = {"tools": {}, "extensions": {"x/y": {"z": 1}, EXTENSION: {"more": 1}}}
    found = json.loads(DIALECT.advertise(opened(own), TOOLS))["result"]["capabilities"]
    assert found == {"tools": {}, "extensions": {"x/y": {"z": 1}, EXTENSION: {}}}
    assert mistakes("2026-07-28", "ServerCapabilities", found) == []
    assert mistakes("tasks-extension", "TasksExtensionCapability", found["extensions"][EXTENSION]) == []


def test_the_capability_of_the_older_version_does_not_stand_beside_it() -> None:
    before = opened({"tasks": {"list": {}}, "tools": {}})
    found = json.loads(DIALECT.advertise(before, TOOLS))["result"]["capabilities"]
    assert found == {"tools": {}, "extensions": {EXTENSION: {}}}


def test_I1_where_no_call_may_be_a_task_nothing_is_said() -> None:
    kinds: list[dict[str, Any]] = [{"tools": {}}, {"extensions": {EXTENSION: {}}}]
    for own in kinds:
        assert DIALECT.advertise(opened(own), Offer(("resources/read",), listed=True)) == opened(own)


def test_an_upstream_with_tasks_of_its_own_is_known_by_the_extension() -> None:
    assert DIALECT.knows_tasks(opened({"extensions": {EXTENSION: {}}}))
    assert not DIALECT.knows_tasks(opened({"tasks": {"list": {}}, "extensions": {}}))
    assert not DIALECT.knows_tasks(b'{"result":{}}')


# What holds in every state.


@given(told.tasks())
def test_in_every_state_all_messages_are_valid(known: tuple[Task, Outcome | None]) -> None:
    task, outcome = known
    found = described(task, outcome)
    assert found["resultType"] == "complete"
    assert None not in [part for name, part in found.items() if name != "ttlMs"]
    created = json.loads(DIALECT.created(task, "later"))
    assert mistakes("2026-07-28", "JSONRPCResultResponse", created) == []
    assert mistakes("tasks-extension", "CreateTaskResult", created["result"]) == []
    status = json.loads(DIALECT.status(task, outcome) or b"")
    assert mistakes("tasks-extension", "TaskStatusNotification", status) == []
    if found["status"] == "completed":
        assert mistakes("2026-07-28", "CallToolResult", found["result"]) == []
