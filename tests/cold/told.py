"""Tasks in every state that the machine knows, for tests of what the dialects tell of them."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from gateway.protocol.envelope import dump
from gateway.tasks import call
from gateway.tasks.model import DialectName, Outcome, Pending, Task, TaskKey
from tests.cold.playbook import SCOPE, make_task

ID: Final = "786512e2-9e0d-44bd-8f29-789f320fe840"
KEY: Final = TaskKey(SCOPE, ID)
# 2025-11-25T10:30:00.123Z and ten minutes later.
CREATED_AT: Final = 1_764_066_600_123
UPDATED_AT: Final = CREATED_AT + 600_000
RESULT: Final = b'{"content":[{"type":"text","text":"72 \\u00b0F"}],"n":1.0,"big":12345678901234567890}'
TOOL_ERROR: Final = b'{"content":[{"type":"text","text":"API rate limit exceeded"}],"isError":true}'
RPC_ERROR: Final = b'{"code":-32000, "message":"no such city","data":{"n":1.0}}'
FORM: Final = {
    "mode": "form",
    "message": "Please enter your name.",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
ASKED: Final[dict[str, dict[str, Any]]] = {
    "elicitation/create": FORM,
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
        "maxTokens": 5,
    },
    "roots/list": {},
}


def task(status: str = "working", dialect: DialectName = "b", **fields: Any) -> Task:
    """Return a task that was made at the time that the protocol's examples have."""
    known: dict[str, Any] = {
        "key": KEY,
        "dialect": dialect,
        "created_at": CREATED_AT,
        "updated_at": UPDATED_AT,
        "keep_alive": 60_000,
        "kept_from": "end" if dialect == "a" else "creation",
        "ended_at": UPDATED_AT if status in ("completed", "failed", "cancelled", "unknown") else None,
    }
    return make_task(ID, status, **(known | fields))


def ended(outcome: Outcome, **fields: Any) -> Task:
    """Return the task that an outcome ends."""
    return task(outcome.status, error=outcome.error, is_error=outcome.is_error, **fields)


def pending(method: str, number: int = 1) -> Pending:
    """Return a server request that waits."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": ASKED[method]}
    return Pending(call.relay_id(KEY, 1, number), dump(number), method, dump(message))


OUTCOMES: Final[dict[str, Outcome]] = {
    "completed": Outcome(status="completed", result=RESULT),
    "tool error": Outcome(
        status="completed", result=TOOL_ERROR, is_error=True, error="API rate limit exceeded"
    ),
    "rpc error": Outcome(status="failed", rpc_error=RPC_ERROR, error="no such city"),
    "timed out": call.timed_out(1_000),
    "lost": call.lost("it closed the connection"),
    "cancelled": Outcome(status="cancelled", error="changed my mind"),
    "cancelled without a word": Outcome(status="cancelled"),
    "unknown": Outcome(status="unknown", error="Outcome unknown"),
}


@st.composite
def tasks(draw: st.DrawFn) -> tuple[Task, Outcome | None]:
    """Draw a task of any dialect in any state, and its outcome where it has ended."""
    dialect: DialectName = draw(st.sampled_from(("a", "b", "c", "none")))
    fields: dict[str, Any] = {
        "dialect": dialect,
        "key": TaskKey(SCOPE, draw(st.text(min_size=1, max_size=20))),
        "keep_alive": draw(st.none() | st.integers(0, 2**53)),
        "poll_interval": draw(st.none() | st.integers(0, 10**9)),
        "status_message": draw(st.none() | st.text(max_size=20)),
        "created_at": draw(st.integers(0, 4_000_000_000_000)),
        "request_id": draw(st.sampled_from((b"1", b'"a"', b"-7"))),
    }
    fields["updated_at"] = fields["created_at"] + draw(st.integers(0, 10**10))
    if draw(st.booleans()):
        outcome = draw(st.sampled_from(list(OUTCOMES.values())))
        return ended(outcome, **(fields | {"ended_at": fields["updated_at"]})), outcome
    status = draw(st.sampled_from(("submitted", "working", "input_required")))
    methods = (
        draw(st.lists(st.sampled_from(sorted(ASKED)), max_size=3)) if status == "input_required" else []
    )
    waits = tuple(pending(method, number) for number, method in enumerate(methods, 1))
    return task(status, **fields, pending=waits), None
