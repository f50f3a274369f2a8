"""Input that a call waits for: server requests as entries of a map, and the answers to them; cold.

The stateless era has no server requests: what an upstream wants of the client is shown as
`inputRequests` and answered as `inputResponses` (2026-07-28 "Multi Round-Trip Requests").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gateway.protocol.codes import INVALID_PARAMS
from gateway.protocol.envelope import dump, members, response, text_of
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import put_together
from gateway.tasks.model import Pending, Task

# What a client declares that can answer a server request of a method.
CAPABILITIES: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
METHODS: Final = tuple(CAPABILITIES)
# What the stateless era has no place for in a request for input.
_LEFT_OUT: Final = ("_meta", "task", "elicitationId")
_MAX_NAME: Final = 128
Name = Callable[[Pending], str]
_ACTIONS: Final = ("accept", "decline", "cancel")


def key_of(relay_id: str) -> str:
    """Return the input key of a relayed request: unique over the life of its task."""
    return relay_id.split(".")[2]


def own_key(pending: Pending) -> str:
    """Return the key of a request for input during a plain call: the upstream's own name where it has one.

    It is unique within the call, as the upstream's request ids are; other ids get the relay's.
    """
    name = text_of(pending.upstream_id)
    return name if name and len(name) <= _MAX_NAME and name.isprintable() else relay_key(pending)


def relay_key(pending: Pending) -> str:
    """Return the key of a request for input during a task: never used again while the task lives."""
    return key_of(pending.relay_id)


def input_request(message: bytes) -> bytes:
    """Return a server request as an entry of `inputRequests`."""
    outer = members(message)
    parts = {"method": outer.get("method", dump(None))}
    params = {name: part for name, part in members(outer.get("params")).items() if name not in _LEFT_OUT}
    if params or text_of(outer.get("method")) != "roots/list":
        parts["params"] = msgspec.Raw(put_together(dict(params)))
    return put_together(dict(parts))


def input_requests(task: Task, name: Name = relay_key) -> bytes:
    """Return all requests that a task waits for, as an `inputRequests` object."""
    return put_together({name(one): input_request(one.message) for one in task.pending})


def answers_of(task: Task, answers: Mapping[str, bytes], name: Name = relay_key) -> dict[str, bytes]:
    """Return the responses, by relay id, to those requests of a task that are answered.

    Keys that nothing waits for are left out. Raises `Refusal` -32602 for an answer that is not one
    to its request.
    """
    found: dict[str, bytes] = {}
    for pending in task.pending:
        answer = answers.get(name(pending))
        if answer is not None:
            check_answer(pending.method, name(pending), answer)
            found[pending.relay_id] = response(dump(pending.relay_id), answer)
    return found


def check_answer(method: str, key: str, answer: bytes) -> None:
    """Raise `Refusal` -32602 for what is not a result of a server request of this method."""
    found = members(answer)
    # Some clients write null where there is no content.
    filled = bytes(found.get("content", b"{}"))[:1] in (b"{", b"n")
    good: Mapping[str, bool] = {
        "elicitation/create": text_of(found.get("action")) in _ACTIONS and filled,
        "sampling/createMessage": {"role", "content", "model"} <= set(found),
        "roots/list": bytes(found.get("roots", b""))[:1] == b"[",
    }
    if answer[:1] != b"{" or not good.get(method, True):
        words = f"inputResponses: the answer to {key!r} is not a result of {method}"
        raise Refusal(INVALID_PARAMS, words)
