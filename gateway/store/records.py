"""Tasks as the store keeps them: what is packed into bytes, and how it is read again.

What never changes of a task is one field (`made`, msgpack); what moves has a field each, so that a
move sets single fields and those that a later version added survive it. What a later version says that
this one has no word for is read as the nearest that it has.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from gateway.store.port import Command, CommandKind, Left
from gateway.tasks.model import (
    DialectName,
    KeptFrom,
    LogEntry,
    NewTask,
    Outcome,
    Pending,
    Scope,
    Status,
    Task,
    TaskKey,
)

_FIELDS: Final = 15


class _Made(msgspec.Struct, frozen=True):
    """What is known of a task from its creation on; text that may be odd is bytes."""

    task_id: bytes
    dialect: str
    method: bytes
    tool: bytes | None
    pattern: bytes
    session: bytes
    request_id: bytes
    poll_interval: int | None
    kept_from: str = "end"


class _Ordered(msgspec.Struct, frozen=True):
    """A pending request; the upstream's id stands in front of it, for the script to find."""

    relay_id: bytes
    method: bytes
    message: bytes
    to_session: bool = False


class _Came(msgspec.Struct, frozen=True, kw_only=True):
    """An `Outcome`, of whichever version."""

    status: str
    result: bytes | None = None
    rpc_error: bytes | None = None
    error: str | None = None
    is_error: bool = False


class _Sent(msgspec.Struct, frozen=True):
    kind: str
    upstream: bytes
    tag: bytes
    task_id: bytes
    digest: str
    message: bytes
    session: bytes = b""
    sender: bytes = b""
    relay_id: bytes = b""


_KINDS: Final[dict[str, CommandKind]] = {kind: kind for kind in get_args(CommandKind)}
_encoder = msgspec.msgpack.Encoder()
_made = msgspec.msgpack.Decoder(_Made)
_ordered = msgspec.msgpack.Decoder(_Ordered)
_sent = msgspec.msgpack.Decoder(_Sent)
_outcome = msgspec.msgpack.Decoder(_Came)
_STATUSES: Final[dict[bytes, Status]] = {status.encode(): status for status in get_args(Status)}
_DIALECTS: Final[dict[str, DialectName]] = {name: name for name in get_args(DialectName)}
_KEPT_FROM: Final[dict[str, KeptFrom]] = {name: name for name in get_args(KeptFrom)}


def text_out(text: str) -> bytes:
    """Return text as bytes, whatever a client put into it (lone surrogates among it)."""
    return text.encode("utf-8", "surrogatepass")


def text_in(data: bytes) -> str:
    """Return the text that `text_out` was given."""
    return data.decode("utf-8", "surrogatepass")


def pack_made(new: NewTask) -> bytes:
    """Return what never changes of a task."""
    return _encoder.encode(
        _Made(
            task_id=text_out(new.key.task_id),
            dialect=new.dialect,
            method=text_out(new.method),
            tool=None if new.tool is None else text_out(new.tool),
            pattern=text_out(new.pattern),
            session=text_out(new.session),
            request_id=new.request_id,
            poll_interval=new.poll_interval,
            kept_from=new.kept_from,
        )
    )


def pack_pending(pending: Pending) -> bytes:
    """Return a pending request, the length of the upstream's id and that id in front."""
    # A message may come with its place in a stream, which the encoder does not take for bytes.
    message = bytes(pending.message)
    rest = _encoder.encode(
        _Ordered(text_out(pending.relay_id), text_out(pending.method), message, pending.to_session),
    )
    return b"%d:%b%b" % (len(pending.upstream_id), pending.upstream_id, rest)


def read_pending(stored: bytes) -> tuple[int, Pending]:
    """Return a pending request as the script stored it, with its place in the order of asking."""
    order, length, rest = stored.split(b":", 2)
    end = int(length)
    body = _ordered.decode(rest[end:])
    return int(order), Pending(
        relay_id=text_in(body.relay_id),
        upstream_id=rest[:end],
        method=text_in(body.method),
        message=body.message,
        to_session=body.to_session,
    )


def read_left(reply: list[bytes]) -> Left:
    """Return what the script found that a replica left behind."""
    course, request, place, starts, *answers = reply
    named = iter(answers)
    return Left(
        course,
        request,
        text_in(place),
        int(starts),
        tuple((text_in(relay), *_read_answer(stored)) for relay, stored in zip(named, named, strict=True)),
    )


def _read_answer(stored: bytes) -> tuple[bytes, bytes]:
    length, rest = stored.split(b":", 1)
    return rest[: int(length)], rest[int(length) :]


def unpack(packed: bytes) -> list[bytes | None]:
    """Return packed values (see `lua/shared_record.lua`)."""
    head = packed.index(b"\n")
    place = head + 1
    values: list[bytes | None] = []
    if head:
        for length in packed[:head].split(b","):
            if length == b"-":
                values.append(None)
            else:
                end = place + int(length)
                values.append(packed[place:end])
                place = end
    return values


def read_task(scope: Scope, packed: bytes) -> Task:
    """Return the record that a script packed."""
    values = unpack(packed)
    made = _made.decode(values[1] or b"")
    error, words = values[9], values[10]
    return Task(
        key=TaskKey(scope, text_in(made.task_id)),
        dialect=_DIALECTS.get(made.dialect, "none"),
        method=text_in(made.method),
        tool=None if made.tool is None else text_in(made.tool),
        pattern=text_in(made.pattern),
        session=text_in(made.session),
        request_id=made.request_id,
        poll_interval=made.poll_interval,
        kept_from=_KEPT_FROM.get(made.kept_from, "end"),
        version=int(values[0] or 0),
        keep_alive=_number(values[2]),
        timeout=int(values[3] or 0),
        status=_status(values[4], values[8]),
        created_at=int(values[5] or 0),
        updated_at=int(values[6] or 0),
        started_at=_number(values[7]),
        ended_at=_number(values[8]),
        error=None if error is None else text_in(error),
        status_message=None if words is None else text_in(words),
        is_error=values[11] == b"1",
        owner=text_in(values[12] or b""),
        epoch=int(values[13] or 0),
        pending=_read_pendings(values) if len(values) > _FIELDS else (),
    )


def pack_outcome(outcome: Outcome) -> bytes:
    """Return an outcome as it is stored."""
    return _encoder.encode(outcome)


def read_outcome(stored: bytes) -> Outcome:
    """Return a stored outcome."""
    came = _outcome.decode(stored)
    return Outcome(
        status=_STATUSES.get(came.status.encode(), "unknown"),
        result=came.result,
        rpc_error=came.rpc_error,
        error=came.error,
        is_error=came.is_error,
    )


def read_entries(packed: bytes) -> list[LogEntry]:
    """Return the log entries that a script packed."""
    values = iter(unpack(packed))
    return [
        LogEntry(offset=(offset or b"").decode(), message=message or b"")
        for offset, message in zip(values, values, strict=True)
    ]


def pack_command(command: Command) -> bytes:
    """Return a command as it crosses to another replica."""
    scope = command.key.scope
    return _encoder.encode(
        _Sent(
            kind=command.kind,
            upstream=text_out(scope.upstream),
            tag=text_out(scope.tag),
            task_id=text_out(command.key.task_id),
            digest=command.key.known_digest,
            message=command.message,
            session=text_out(command.session),
            sender=text_out(command.sender),
            relay_id=text_out(command.relay_id),
        )
    )


def read_command(data: bytes) -> Command | None:
    """Return a command that came, or `None` for one that is not understood (a later version's)."""
    try:
        sent = _sent.decode(data)
        kind = _KINDS.get(sent.kind)
        if kind is None:
            return None
        scope = Scope(text_in(sent.upstream), text_in(sent.tag))
        key = TaskKey(scope, text_in(sent.task_id), sent.digest)
        session, sender, relay_id = (text_in(text) for text in (sent.session, sent.sender, sent.relay_id))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return Command(kind, key, sent.message, session, sender, relay_id)


def _status(stored: bytes | None, ended_at: bytes | None) -> Status:
    """Return a status; of one that this version does not know only whether it is an end is told."""
    status = _STATUSES.get(stored or b"unknown")
    if status is None:
        return "unknown" if ended_at else "working"
    return status


def _number(value: bytes | None) -> int | None:
    return int(value) if value else None


def _read_pendings(values: list[bytes | None]) -> tuple[Pending, ...]:
    stored = sorted((read_pending(value or b"") for value in values[_FIELDS:]), key=lambda pair: pair[0])
    return tuple(pending for _, pending in stored)
