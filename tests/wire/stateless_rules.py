"""What the texts of 2026-07-28 and of the tasks extension say of single messages, beyond the schemas.

The client of the tests (`stateless_client`) holds each answer against it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from tests.wire.answers import Answer, Json
from tests.wire.checked import book

Ident: TypeAlias = str | int
# Answers to input requests, by key and request; one of these, or results by method.
Inputs: TypeAlias = Callable[[str, Json], Json] | Mapping[str, Json]

VERSION: Final = "2026-07-28"
TASKS: Final = "io.modelcontextprotocol/tasks"
META: Final = "io.modelcontextprotocol/"
SUBSCRIPTION: Final = f"{META}subscriptionId"
BOTH: Final = "application/json, text/event-stream"
ALL: Final[Json] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
TERMINAL: Final = ("completed", "failed", "cancelled")
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
ROUNDS: Final = 10
PAUSE: Final = 0.02

_STATUS: Final = {
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
# Codes of earlier versions that must not be sent any more (Overview, "Error Codes").
GONE: Final = (-32002, -32042)
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_MRTR: Final = ("tools/call", "prompts/get", "resources/read")


def retry(result: Json, inputs: Inputs) -> Json:
    """Return what is added to a request that is sent again after an `InputRequiredResult`."""
    requests: Json = result.get("inputRequests", {})
    more: Json = {"inputResponses": answers(requests, inputs)} if requests else {}
    if "requestState" in result:
        more["requestState"] = result["requestState"]
    return more


def answers(requests: Json, inputs: Inputs) -> Json:
    """Return the responses to input requests, those of an `InputRequiredResult` or of a task."""
    if callable(inputs):
        return {key: inputs(key, request) for key, request in requests.items()}
    return {key: inputs[request["method"]] for key, request in requests.items()}


def accept(**content: Any) -> Json:
    """Return the result of an elicitation that was accepted."""
    return {"action": "accept", "content": content}


def sampled(words: str) -> Json:
    """Return the result of a sampling request."""
    return {"role": "assistant", "content": {"type": "text", "text": words}, "model": "none"}


def sentinel(value: str) -> str:
    """Return a value as a header has it ("Value Encoding": Base64 where it is not plain ASCII)."""
    plain = all(0x20 <= ord(sign) <= 0x7E or sign == "\t" for sign in value) and value == value.strip()
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def check_answer(message: Json, answer: Answer, response: Json) -> None:
    """Check what the texts say of an answer beyond the schemas."""
    if "error" in response:
        wanted = _STATUS.get(response["error"]["code"])
        if wanted is not None and not answer.is_stream:
            assert answer.status == wanted, (answer.status, response)
        return
    assert answer.status == 200, (answer.status, response)
    result = response["result"]
    kind = result["resultType"]
    allowed = {"tools/call": ("complete", "input_required", "task")}
    plain = ("complete", "input_required") if message["method"] in _MRTR else ("complete",)
    assert kind in allowed.get(message["method"], plain), response
    if kind == "input_required":
        assert "inputRequests" in result or "requestState" in result, response
        _check_declared(message, result)
    if kind == "task":
        extensions = message["params"]["_meta"][f"{META}clientCapabilities"].get("extensions", {})
        assert TASKS in extensions, f"a task for one who did not declare them: {response}"
        assert not {"result", "error", "inputRequests", "requestState"} & set(result), response
    if kind == "task" or message["method"] == "tasks/get":
        _check_task(result)
    if message["method"] in ("tasks/update", "tasks/cancel"):
        assert set(result) <= {"resultType", "_meta"}, f"not empty: {response}"


def _check_declared(message: Json, result: Json) -> None:
    """Nothing is asked for that the client did not declare on that request."""
    declared = message["params"]["_meta"][f"{META}clientCapabilities"]
    for request in result.get("inputRequests", {}).values():
        assert request["method"].split("/")[0] in declared, (declared, result)


def _check_task(task: Json) -> None:
    for name in ("createdAt", "lastUpdatedAt"):
        assert datetime.fromisoformat(task[name]).tzinfo is not None, task
    assert task["ttlMs"] is None or task["ttlMs"] > 0, task
    assert task.get("pollIntervalMs", 1) > 0, task
    assert not {"ttl", "pollInterval", "requestState"} & set(task), task
    for status, name in {
        "completed": "result",
        "failed": "error",
        "input_required": "inputRequests",
    }.items():
        assert (name in task) == (task["status"] == status) or task.get("resultType") == "task", task
    if task["status"] == "completed":
        faults = book(VERSION).result_faults("CallToolResult", task["result"])
        assert not faults, (faults, task)
