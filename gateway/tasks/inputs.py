"""Input that a call waits for: server requests as entries of a map, and the answers to them; cold.

The stateless era has no server requests: what an upstream wants of the client is shown as
`inputRequests` and answered as `inputResponses` (2026-07-28 "Multi Round-Trip Requests").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.protocol.codes import INVALID_PARAMS
from gateway.protocol.envelope import dump, members, response, text_of, value
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import put_together
from gateway.tasks.model import Pending, Task

METHODS: Final = ("elicitation/create", "sampling/createMessage", "roots/list")
# What the stateless era has no place for in a request for input.
_LEFT_OUT: Final = ("_meta", "task", "elicitationId")
_ACTIONS: Final = ("accept", "decline", "cancel")


def key_of(relay_id: str) -> str:
    """Return the input key of a relayed request: unique over the life of its task."""
    return relay_id.split(".")[2]


def input_request(message: bytes) -> bytes:
    """Return a server request as an entry of `inputRequests`."""
    outer = members(message)
    parts = {"method": outer.get("method", dump(None))}
    params = {name: part for name, part in members(outer.get("params")).items() if name not in _LEFT_OUT}
    if params or text_of(outer.get("method")) != "roots/list":
        parts["params"] = msgspec.Raw(put_together(dict(params)))
    return put_together(dict(parts))


def input_requests(task: Task) -> bytes:
    """Return all requests that a task waits for, as an `inputRequests` object."""
    return put_together({key_of(one.relay_id): input_request(one.message) for one in task.pending})


def answers_of(task: Task, answers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the responses, by relay id, to those requests of a task that are answered.

    Keys that nothing waits for are left out. Raises `Refusal` -32602 for an answer that is not one
    to its request.
    """
    found: dict[str, bytes] = {}
    for pending in task.pending:
        answer = answers.get(key_of(pending.relay_id))
        if answer is not None:
            _check(pending, answer)
            found[pending.relay_id] = response(dump(pending.relay_id), answer)
    return found


def _check(pending: Pending, answer: bytes) -> None:
    found = members(answer)
    good: Mapping[str, bool] = {
        "elicitation/create": text_of(found.get("action")) in _ACTIONS,
        "sampling/createMessage": {"role", "content", "model"} <= set(found),
        "roots/list": isinstance(_list(found.get("roots")), list),
    }
    if answer[:1] != b"{" or not good.get(pending.method, True):
        key = key_of(pending.relay_id)
        words = f"inputResponses: the answer to {key!r} is not a result of {pending.method}"
        raise Refusal(INVALID_PARAMS, words)


def _list(raw: msgspec.Raw | None) -> Any:
    return value(raw)
