"""What calls of all dialects share: their params, a plain answer, and the end of a request."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.client.connection import Connection, Exchange
from gateway.client.desk import PROGRESS_TOKEN
from gateway.client.options import Call, Outcome
from gateway.client.screen import Screen
from gateway.client.trees import as_object
from gateway.client.watch import as_error
from gateway.protocol.envelope import value
from gateway.protocol.errors import Refusal

CANCEL_SECONDS: Final = 5
ORDINARY: Final = "the server ran this as an ordinary call, not as a task"


def params_of(call: Call, screen: Screen, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the params of `tools/call`, with a progress token where progress can be shown."""
    found = {"progressToken": PROGRESS_TOKEN} if screen.shows_bar else {}
    found |= meta or {}
    params: dict[str, Any] = {"name": call.tool, "arguments": call.arguments}
    return {**params, "_meta": found} if found else params


def plain_outcome(exchange: Exchange) -> Outcome:
    """Return what an answered request came to; raise `UpstreamLost` where no answer came."""
    wrong = exchange.answer.exception()
    if isinstance(wrong, Refusal):
        return Outcome(status="error", error=as_error(wrong))
    if wrong is not None:
        raise wrong
    return outcome_of(exchange.answer.result())


def outcome_of(result: bytes, task_id: str | None = None) -> Outcome:
    """Return the outcome that a result is: one with `isError` has failed."""
    failed = as_object(value(result)).get("isError") is True
    return Outcome(status="failed" if failed else "completed", task_id=task_id, result=result)


async def cancel_request(
    connection: Connection, request_id: bytes, meta: dict[str, Any] | None = None
) -> None:
    """Send `notifications/cancelled` for a request."""
    params: dict[str, Any] = {"requestId": msgspec.Raw(request_id), "reason": "the user cancelled it"}
    await connection.notify("notifications/cancelled", {**params, "_meta": meta} if meta else params)
