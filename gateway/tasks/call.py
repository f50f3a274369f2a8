"""The life of one call: what an upstream's message means for its task, and how calls end; cold."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.protocol.canonical import items
from gateway.protocol.envelope import Envelope, dump, members, meta_of, peek, text_of, value
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import Parts, put_together, set_member, take_apart
from gateway.tasks.model import Outcome, TaskKey

RELAY_MARK: Final = "mtg-ask"
ANYBODY: Final = "i-"
_MAX_WORDS: Final = 500
_MAX_DIGITS: Final = 40
_RELAY_PARTS: Final = (3, 4)
HeardKind = Literal["progress", "notification", "ask", "ping", "withdrawn", "final", "noise"]
FinishedLabel = Literal[
    "completed", "tool_error", "rpc_error", "timed_out", "upstream_lost", "lost", "cancelled", "too_large"
]


class Heard(msgspec.Struct, frozen=True):
    """One message of an upstream, as far as its task is concerned.

    `text` is the progress in words; `upstream_id` the id (raw JSON) of a server request or of the
    one that was withdrawn.
    """

    kind: HeardKind
    message: bytes
    method: str = ""
    text: str | None = None
    upstream_id: bytes = b""
    outcome: Outcome | None = None


def hear(message: bytes) -> Heard:
    """Tell what a message of the upstream means; broken ones are noise."""
    try:
        envelope = peek(message)
    except Refusal:
        return Heard("noise", message)
    if envelope.kind == "response":
        return Heard("final", message, outcome=outcome_of(envelope))
    if envelope.kind == "request":
        kind: HeardKind = "ping" if envelope.method == "ping" else "ask"
        return Heard(kind, message, envelope.method, upstream_id=envelope.id or b"")
    if envelope.method == "notifications/progress":
        return Heard("progress", message, envelope.method, text=progress_text(envelope.params))
    if envelope.method == "notifications/cancelled":
        withdrawn = members(envelope.params).get("requestId")
        return Heard("withdrawn", message, envelope.method, upstream_id=bytes(withdrawn or b""))
    return Heard("notification", message, envelope.method)


def outcome_of(envelope: Envelope) -> Outcome:
    """Return how the upstream's response ends the task (SEP-1686 section 7.2)."""
    if envelope.error is not None:
        words = text_of(members(envelope.error).get("message")) or "the upstream answered an error"
        return Outcome(status="failed", rpc_error=envelope.error, error=words)
    result = envelope.result or b"{}"
    is_error = value(members(result).get("isError")) is True
    return Outcome(
        status="completed",
        result=result,
        is_error=is_error,
        error=_tool_error(result) if is_error else None,
    )


def _tool_error(result: bytes) -> str:
    """Return a tool's error in words: some clients show nothing else of it."""
    for part in items(members(result).get("content")) or ():
        words = text_of(members(part).get("text"))
        if words:
            return words[:_MAX_WORDS]
    return "the tool reported an error"


def label_of(outcome: Outcome) -> FinishedLabel:
    """Return the metric label of an outcome that came from the upstream."""
    if outcome.rpc_error is not None:
        return "rpc_error"
    return "tool_error" if outcome.is_error else "completed"


def timed_out(timeout_ms: int) -> Outcome:
    """Return the end of a call that took longer than its policy lets it."""
    return Outcome(
        status="failed", error=f"Timed out: the tool did not answer within {timeout_ms / 1000:g} s"
    )


def unanswered(within_ms: int) -> Outcome:
    """Return the end of a call whose client did not bring the input that was asked for."""
    return Outcome(
        status="failed", error=f"No answer: the client did not answer within {within_ms / 1000:g} s"
    )


def lost(words: str) -> Outcome:
    """Return the end of a call whose upstream did not answer."""
    return Outcome(status="failed", error=f"Upstream lost: {words}")


def too_large(size: int, limit: int) -> Outcome:
    """Return the end of a call whose result is larger than may be stored."""
    words = f"Limit reached: the result has {size} bytes, result_bytes allows {limit}"
    return Outcome(status="failed", error=words)


def stopped() -> Outcome:
    """Return the end of a call that the gateway's own stop cut off."""
    return Outcome(status="failed", error="Outcome unknown: the gateway stopped before the task ended")


def orphaned(why: str = "") -> Outcome:
    """Return the end of a task whose replica died, with `why` no other could take it up."""
    words = "Outcome unknown: the gateway replica that ran this task was lost before it ended"
    return Outcome(status="failed", error=f"{words}, and {why[:_MAX_WORDS]}" if why else words)


def progress_text(params: bytes | None) -> str | None:
    """Return progress in words: the upstream's message, or how far of how much."""
    found = members(params)
    words = text_of(found.get("message"))
    if words:
        return words
    done, total = _number(found.get("progress")), _number(found.get("total"))
    return f"{done} of {total}" if done and total else done


def _number(raw: msgspec.Raw | None) -> str | None:
    """Return a number in words, `None` where it is none that a person would read."""
    found = None if raw is None or len(raw) > _MAX_DIGITS else value(raw)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return f"{found:g}"


def cancel_words(reason: str) -> str:
    """Return why a task was cancelled, in bounded words."""
    return f"Cancelled by the client: {reason[:_MAX_WORDS]}" if reason else "Cancelled by the client"


def relay_id(key: TaskKey, epoch: int, number: int) -> str:
    """Return the id under which a server request reaches the client: it names its task.

    With the epoch in it no id comes twice, whichever replica asks. A task that belongs to whoever
    knows its id has the place of its scope in it too.
    """
    tag = key.scope.tag
    hint = f".{tag.removeprefix(ANYBODY)}" if tag.startswith(ANYBODY) else ""
    return f"{RELAY_MARK}.{key.digest}.{epoch}-{number}{hint}"


def relayed_digest(relay: str) -> str:
    """Return the digest of the task that a relay id names, empty where it is none."""
    parts = relay.split(".")
    return parts[1] if len(parts) in _RELAY_PARTS else ""


def relayed_hint(relay: str) -> str:
    """Return the place of the scope that a relay id names, empty where it names none."""
    parts = relay.split(".")
    return parts[3] if len(parts) == _RELAY_PARTS[1] else ""


def is_relay_id(ident: bytes | None) -> bool:
    """Tell whether a response answers a relayed server request."""
    return ident is not None and ident.startswith(b'"' + RELAY_MARK.encode() + b".")


def readdressed(message: bytes, ident: bytes) -> bytes:
    """Return a message under another id, the rest byte for byte."""
    return set_member(message, ("id",), ident)


def upstream_request(message: bytes, ident: str, *, own_token: bool = False) -> tuple[bytes, bool]:
    """Return the request the gateway sends for a task, and whether the client itself wants progress.

    It goes under an id of the gateway's own; without a progress token it gets one of that name, so
    that progress can be shown as status; with `own_token` it always gets that one.
    """
    parts = take_apart(message)
    params = take_apart(bytes(parts.get("params", b"{}")))
    meta = Parts(members(params.get("_meta")))
    parts["id"] = dump(ident)
    wanted = "progressToken" in meta
    if not wanted or own_token:
        meta["progressToken"] = dump(ident)
        params["_meta"] = put_together(meta)
        parts["params"] = put_together(params)
    return put_together(parts), wanted


def wants_progress(message: bytes) -> bool:
    """Tell whether a request asks for progress itself."""
    return b"progressToken" in message and "progressToken" in meta_of(peek(message).params)


def cancel_message(ident: str | bytes, reason: str) -> bytes:
    """Return `notifications/cancelled` for a request of the gateway's own; bytes are an id as raw JSON."""
    known = ident if isinstance(ident, bytes) else dump(ident)
    params = b'{"requestId":%b,"reason":%b}' % (known, dump(reason))
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}' % params


def pong(ident: bytes) -> bytes:
    """Return the answer to a ping."""
    return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % ident


def withdrawal(message: bytes, relay: str) -> bytes:
    """Return the upstream's `notifications/cancelled` with the id that the client knows."""
    return set_member(message, ("params", "requestId"), dump(relay))
