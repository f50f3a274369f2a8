"""Dialect B tells of tasks as protocol version 2025-11-25 has them."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.port import About, Dialect, Offer
from gateway.dialects.v2025_11_25 import RELATED_KEY, Tasks20251125
from gateway.protocol.errors import Refusal
from gateway.tasks.model import Outcome, Task
from tests.cold import told
from tests.cold.told import ID, OUTCOMES, RESULT, RPC_ERROR
from tests.schemas import mistakes

DIALECT: Final[Dialect] = Tasks20251125()
LENIENT: Final[Dialect] = Tasks20251125(tool_errors="completed")
RELATED: Final = {RELATED_KEY: {"taskId": ID}}
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
TASKS: Final = Offer(("tools/call", "resources/read"), listed=True)


def opened(**result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def test_a_new_task_is_told_at_once_as_the_response_to_its_request() -> None:
    found = json.loads(DIALECT.created(told.task(updated_at=told.CREATED_AT, request_id=b'"a"')))
    assert (found["jsonrpc"], found["id"]) == ("2.0", "a")
    assert mistakes("2025-11-25", "CreateTaskResult", found["result"]) == []
    assert found["result"]["task"] == {
        "taskId": ID,
        "status": "working",
        "createdAt": "2025-11-25T10:30:00.123Z",
        "lastUpdatedAt": "2025-11-25T10:30:00.123Z",
        "ttl": 60_000,
        "pollInterval": 5_000,
    }
    assert found["result"]["_meta"][RELATED_KEY] == {"taskId": ID}
    assert "io.modelcontextprotocol/model-immediate-response" not in found["result"]["_meta"]


def test_words_for_the_model_stand_under_their_key() -> None:
    found = json.loads(DIALECT.created(told.task(), "Rendering; ask again later."))["result"]
    assert (
        found["_meta"]["io.modelcontextprotocol/model-immediate-response"] == "Rendering; ask again later."
    )
    assert mistakes("2025-11-25", "CreateTaskResult", found) == []


def test_clients_that_read_a_tool_result_find_the_task_in_it() -> None:
    found = json.loads(DIALECT.created(told.task()))["result"]
    assert mistakes("2025-11-25", "CallToolResult", found) == []
    assert found["content"] == []
    assert found["_meta"]["modelcontextprotocol.io/task"] == {"taskId": ID, "status": "working"}


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("submitted", "working"),
        ("working", "working"),
        ("input_required", "input_required"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("unknown", "failed"),
    ],
)
def test_every_status_has_one_of_the_five_names(status: str, shown: str) -> None:
    assert json.loads(DIALECT.described(told.task(status), None))["status"] == shown


def test_optional_fields_are_left_out_and_retention_without_end_is_null() -> None:
    found = json.loads(DIALECT.described(told.task(keep_alive=None, poll_interval=None), None))
    assert set(found) == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl"}
    assert found["ttl"] is None
    assert found["lastUpdatedAt"] == "2025-11-25T10:40:00.123Z"


def test_progress_shows_until_the_end_and_then_what_went_wrong() -> None:
    running = told.task(status_message="3 of 4")
    assert json.loads(DIALECT.described(running, None))["statusMessage"] == "3 of 4"
    failed = told.ended(OUTCOMES["timed out"], status_message="3 of 4")
    assert json.loads(DIALECT.described(failed, None))["statusMessage"] == OUTCOMES["timed out"].error
    done = told.ended(OUTCOMES["completed"], status_message="3 of 4")
    assert "statusMessage" not in json.loads(DIALECT.described(done, None))


def test_a_tools_error_is_a_failed_task_with_its_text_and_its_result() -> None:
    outcome = OUTCOMES["tool error"]
    task = told.ended(outcome)
    found = json.loads(DIALECT.described(task, None))
    assert (found["status"], found["statusMessage"]) == ("failed", "API rate limit exceeded")
    result = json.loads(DIALECT.result(b"4", task, outcome))["result"]
    assert result == json.loads(outcome.result or b"") | {"_meta": RELATED}


def test_a_tools_error_can_be_shown_as_completed() -> None:
    task = told.ended(OUTCOMES["tool error"])
    assert json.loads(LENIENT.described(task, None))["status"] == "completed"
    assert json.loads(LENIENT.result(b"4", task, OUTCOMES["tool error"]))["result"]["isError"]
    assert json.loads(LENIENT.described(told.ended(OUTCOMES["rpc error"]), None))["status"] == "failed"


def test_I1_the_result_is_the_plain_answer_and_the_related_task() -> None:
    found = DIALECT.result(b'"r"', told.ended(OUTCOMES["completed"]), OUTCOMES["completed"])
    meta = b',"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"%b"}}}' % ID.encode()
    assert found == b'{"jsonrpc":"2.0","id":"r","result":' + RESULT[:-1] + meta + b"}"


def test_I1_the_result_of_a_call_that_ended_in_an_error_is_that_error() -> None:
    found = DIALECT.result(b"4", told.ended(OUTCOMES["rpc error"]), OUTCOMES["rpc error"])
    assert found == b'{"jsonrpc":"2.0","id":4,"error":' + RPC_ERROR + b"}"


@pytest.mark.parametrize("name", ["timed out", "lost", "unknown", "cancelled"])
def test_I5_a_call_without_an_answer_has_an_internal_error_that_says_why(name: str) -> None:
    outcome = OUTCOMES[name]
    found = json.loads(DIALECT.result(b"4", told.ended(outcome), outcome))
    assert mistakes("2025-11-25", "JSONRPCErrorResponse", found) == []
    assert found["error"]["code"] == -32603
    assert outcome.error is not None
    assert outcome.error in found["error"]["message"]


def test_the_result_of_a_cancelled_task_says_that_it_was_cancelled() -> None:
    for name in ("cancelled", "cancelled without a word"):
        found = json.loads(DIALECT.result(b"4", told.ended(OUTCOMES[name]), OUTCOMES[name]))
        assert (found["error"]["code"], "cancelled" in found["error"]["message"]) == (-32603, True)


@pytest.mark.parametrize("status", ["working", "input_required"])
def test_a_result_before_the_end_is_to_be_waited_for(status: str) -> None:
    assert DIALECT.manner.waits
    with pytest.raises(Refusal) as caught:
        DIALECT.result(b"4", told.task(status), None)
    assert caught.value.code == -32602
    assert status in caught.value.message


def test_I8_a_result_that_is_gone_is_refused_as_expired() -> None:
    with pytest.raises(Refusal) as caught:
        DIALECT.result(b"4", told.task("completed"), None)
    assert caught.value.code == -32602
    assert "expired" in caught.value.message


def test_a_cancel_is_answered_with_the_cancelled_task() -> None:
    found = json.loads(DIALECT.cancelled(told.ended(OUTCOMES["cancelled"])))
    assert mistakes("2025-11-25", "CancelTaskResult", found) == []
    assert (found["taskId"], found["status"], found["statusMessage"]) == (
        ID,
        "cancelled",
        "changed my mind",
    )


@pytest.mark.parametrize(
    ("task", "status"),
    [
        (told.task("completed"), "completed"),
        (told.task("cancelled"), "cancelled"),
        (told.task("unknown"), "failed"),
        (told.ended(OUTCOMES["tool error"]), "failed"),
    ],
)
def test_a_cancel_of_a_task_that_has_ended_is_refused(task: Task, status: str) -> None:
    refusal = DIALECT.ended(task)
    words = f"Cannot cancel task: already in terminal status '{status}'"
    assert (refusal.code, refusal.message) == (-32602, words)


def test_a_task_that_is_not_there_is_refused_in_the_words_of_the_text() -> None:
    refusal = DIALECT.not_found(About("get", "t"))
    assert (refusal.code, refusal.message) == (-32602, "Failed to retrieve task: Task not found")
    assert DIALECT.not_found(About("result", "t")).message.endswith(": Task not found")
    assert DIALECT.not_found(About("cancel", "t")).message == "Cannot cancel task: Task not found"


def test_a_status_notification_carries_the_task_and_no_related_task() -> None:
    found = json.loads(DIALECT.status(told.task("completed"), None) or b"")
    assert mistakes("2025-11-25", "TaskStatusNotification", found) == []
    assert found["params"] == json.loads(DIALECT.described(told.task("completed"), None))
    assert "_meta" not in found["params"]


def test_a_list_has_a_cursor_where_more_follows() -> None:
    found = json.loads(DIALECT.listed([told.task(), told.task("completed")], "next"))
    assert mistakes("2025-11-25", "ListTasksResult", found) == []
    assert [entry["status"] for entry in found["tasks"]] == ["working", "completed"]
    assert found["nextCursor"] == "next"
    assert json.loads(DIALECT.listed([], None)) == {"tasks": []}


def test_a_list_tells_tasks_of_dialect_a_in_both_ways() -> None:
    running, failed = told.task("submitted", "a"), told.task("failed", "a", error="no")
    first, second = json.loads(DIALECT.listed([running, failed], None))["tasks"]
    assert (first["status"], first["keepAlive"], first["pollFrequency"]) == ("working", 60_000, 5_000)
    assert (second["error"], second["statusMessage"]) == ("no", "no")
    assert "keepAlive" not in json.loads(DIALECT.listed([told.task()], None))["tasks"][0]


def test_I8_retention_from_the_end_is_told_from_the_creation() -> None:
    """A task that ended 600 s after it was made and is kept for 60 s is there for 660 s."""
    assert json.loads(DIALECT.described(told.task("completed", "a"), None))["ttl"] == 660_000
    assert json.loads(DIALECT.described(told.task("working", "a"), None))["ttl"] == 660_000
    assert json.loads(DIALECT.described(told.task("working", "a", keep_alive=None), None))["ttl"] is None


def test_messages_of_a_task_carry_its_name() -> None:
    asked = b'{"jsonrpc":"2.0","id":"x","method":"elicitation/create","params":{"n":1.0}}'
    meta = b',"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}'
    assert DIALECT.relayed("t", asked) == asked[:-2] + meta + b"}}"
    said = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"_meta":{"k":1},"progress":1}}'
    assert json.loads(DIALECT.relayed("t", said))["params"]["_meta"] == {
        "k": 1,
        RELATED_KEY: {"taskId": "t"},
    }


@pytest.mark.parametrize(
    "method",
    [
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
    ],
)
def test_I1_news_of_the_server_is_not_of_the_task(method: str) -> None:
    said = f'{{"jsonrpc":"2.0","method":"{method}","params":{{"uri":"a"}}}}'.encode()
    assert DIALECT.relayed("t", said) is said


def test_the_request_itself_is_answered_once() -> None:
    assert DIALECT.final(told.task("completed"), Outcome(status="completed", result=b"{}")) is None


def test_methods_of_the_other_dialects_are_not_found() -> None:
    for call in (lambda: DIALECT.removed("t"), DIALECT.updated):
        with pytest.raises(Refusal) as caught:
            call()
        assert caught.value.code == -32601


# What an `initialize` answer says.


def test_the_capability_has_exactly_what_is_true() -> None:
    before = opened(protocolVersion="2025-11-25", capabilities={"tools": {}})
    found = json.loads(DIALECT.advertise(before, TASKS))["result"]["capabilities"]
    call: dict[str, Any] = {"tools": {"call": {}}}
    assert found == {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": call}}
    assert mistakes("2025-11-25", "ServerCapabilities", found) == []
    found = json.loads(DIALECT.advertise(before, Offer(("tools/call",), listed=False)))["result"]
    assert found["capabilities"]["tasks"] == {"cancel": {}, "requests": call}
    found = json.loads(DIALECT.advertise(before, Offer(("resources/read",), listed=True)))["result"]
    assert found["capabilities"]["tasks"] == {"list": {}, "cancel": {}}


def test_I1_what_is_said_already_stays() -> None:
    own: dict[str, Any] = {
        "requests": {"tools": {"call": {"x": 1}, "other": {}}, "sampling": {}},
        "list": {"y": 2},
        "tools": {"call": True},
    }
    before = opened(protocolVersion="2025-11-25", capabilities={"tasks": own})
    assert DIALECT.knows_tasks(before)
    found = json.loads(DIALECT.advertise(before, TASKS))["result"]["capabilities"]["tasks"]
    assert found == own | {"cancel": {}}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "", None])
def test_I1_older_versions_hear_nothing_of_it(version: str | None) -> None:
    before = opened(protocolVersion=version, capabilities={"tools": {}})
    assert DIALECT.advertise(before, TASKS) == before
    assert not DIALECT.knows_tasks(before)


def test_I1_where_nothing_may_be_a_task_not_one_byte_changes() -> None:
    before = opened(protocolVersion="2025-11-25", capabilities={})
    assert DIALECT.advertise(before, Offer((), listed=True)) == before


# What holds in every state.


def errors_in(task: Task, outcome: Outcome | None, dialect: Dialect) -> list[str]:
    """Return what the schema has against all that is told of a task."""
    created = json.loads(dialect.created(task, "later"))
    found = mistakes("2025-11-25", "JSONRPCResultResponse", created)
    found += mistakes("2025-11-25", "CreateTaskResult", created["result"])
    described = json.loads(dialect.described(task, outcome))
    found += mistakes("2025-11-25", "GetTaskResult", described)
    found += mistakes("2025-11-25", "ListTasksResult", json.loads(dialect.listed([task], "c")))
    status = dialect.status(task, outcome)
    found += mistakes("2025-11-25", "TaskStatusNotification", json.loads(status or b"{}"))
    if outcome is None:
        return found
    answer = json.loads(dialect.result(b"1", task, outcome))
    found += mistakes("2025-11-25", "JSONRPCResponse", answer)
    if "result" in answer:
        found += mistakes("2025-11-25", "GetTaskPayloadResult", answer["result"])
        found += [] if RELATED_KEY in answer["result"]["_meta"] else ["no related task"]
    return found


@given(told.tasks(), st.sampled_from([DIALECT, LENIENT]))
def test_in_every_state_all_messages_are_valid(
    known: tuple[Task, Outcome | None], dialect: Dialect
) -> None:
    task, outcome = known
    assert errors_in(task, outcome, dialect) == []
    described = json.loads(dialect.described(task, outcome))
    assert None not in [part for name, part in described.items() if name != "ttl"]
    assert TIME.fullmatch(described["createdAt"])
    assert TIME.fullmatch(described["lastUpdatedAt"])
    assert described["ttl"] is None or 0 <= described["ttl"] < 2**53
