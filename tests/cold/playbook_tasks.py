"""Plays vectors of dialects B and C: messages in from either side, messages out, through the cold rooms.

The table keeps what a store would keep, waits as a replica would, and counts a minute for each step. It
decides nothing: what is refused, what a message means and what goes out comes from the dialects, the
life of a call, the state machine and the policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gateway.bridge.requests import to_handshake
from gateway.bridge.results import acknowledged, to_stateless
from gateway.dialects.choose import asker, reader
from gateway.dialects.port import About, Dialect, Offer
from gateway.dialects.sep1686 import Sep1686
from gateway.dialects.sep2663 import Sep2663
from gateway.dialects.v2025_11_25 import Tasks20251125
from gateway.protocol.canonical import items
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    peek,
    response,
    text_of,
)
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import set_member
from gateway.protocol.stateless import (
    SUBSCRIPTION_ID,
    TASKS_EXTENSION,
    check_headers,
    declares,
    missing_extension,
    opens_stateless,
    read_meta,
)
from gateway.tasks import call
from gateway.tasks.inputs import answers_of
from gateway.tasks.machine import check_move
from gateway.tasks.model import DialectName, Outcome, Pending, Task, TaskKey
from gateway.tasks.policy import Policy, PolicyBook, grant_keep_alive
from tests.cold.playbook import SCOPE, make_task

ID: Final = "786512e2-9e0d-44bd-8f29-789f320fe840"
MINUTE: Final = 60_000
START: Final = "2025-11-25T10:30:00Z"
SUPPORTED: Final = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
Sent = list[tuple[str, bytes]]


def at(time: str) -> int:
    """Return an RFC 3339 time in milliseconds since the epoch."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def task_of(told: Mapping[str, Any]) -> tuple[Task, Outcome | None]:
    """Return the record of a task that dialect B or C tells of, and its outcome where it has ended.

    `told` has the `task`, beside it `result` or `error` as the other messages have them, and what no
    message says: the `dialect` it was made in, its status inside (`as`), whether its outcome is `gone`.
    """
    task, error = told["task"], told.get("error")
    status, end = told.get("as", task["status"]), None
    if status not in ("working", "input_required"):
        end = Outcome(
            status=status,
            result=dump(told["result"]) if "result" in told else None,
            rpc_error=None if error is None else dump(error),
            error=task.get("statusMessage"),
            is_error=told.get("result", {}).get("isError", False),
        )
    record = make_task(
        task["taskId"],
        status,
        dialect=told.get("dialect", "b"),
        key=TaskKey(SCOPE, task["taskId"]),
        created_at=at(task["createdAt"]),
        updated_at=at(task["lastUpdatedAt"]),
        keep_alive=task.get("ttl", task.get("ttlMs")),
        kept_from="creation",
        poll_interval=task.get("pollInterval", task.get("pollIntervalMs")),
        status_message=None if end is not None else task.get("statusMessage"),
        error=None if end is None else end.error,
        is_error=end is not None and end.is_error,
        pending=tuple(told.get("pending", ())),
    )
    return record, None if told.get("gone") else end


class Table:
    """The tasks of one client, whose upstream is of the handshake era and knows none."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._b = Tasks20251125(given.get("tool_errors", "failed"))
        self._c = Sep2663()
        self._dialects: dict[DialectName, Dialect] = {"a": Sep1686(), "b": self._b, "c": self._c}
        self._version = given.get("version", "2025-11-25")
        policy = Policy(**given.get("policy", {}))
        self._policies = PolicyBook(default=policy, tools=())
        self._offer = Offer(given.get("offer", ["tools/call"]), listed=given.get("listed", True))
        self._next = given.get("next_cursor")
        self._tells = given.get("tells", False)
        self._tasks: dict[str, tuple[Task, Outcome | None]] = {}
        self._waiting: list[tuple[bytes, str]] = []
        self._listening: list[tuple[bytes, str]] = []
        self._told: set[str] = set()
        self._running = self._plain = self._opening = ""
        self._asked = 0
        self._now = at(START)
        for told in given.get("tasks", []):
            self._tasks[told["task"]["taskId"]] = task_of(told)

    def play(self, sender: str, message: bytes, headers: Mapping[str, str] | None) -> list[dict[str, Any]]:
        """Take one message and return what goes out, in order: `to`, `message`, perhaps `status`."""
        if sender == "upstream":
            sent = self._from_upstream(message)
        else:
            envelope = peek(message)
            try:
                sent = self._from_client(envelope, headers)
            except Refusal as refusal:
                refused: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
                if refusal.data is not None:
                    refused["data"] = refusal.data
                out = {"to": "client", "message": json.loads(error_response(envelope.id, dump(refused)))}
                return [out | ({} if refusal.status is None else {"status": refusal.status})]
        self._now += MINUTE
        return [{"to": to, "message": json.loads(out)} for to, out in sent]

    def _from_client(self, envelope: Envelope, headers: Mapping[str, str] | None) -> Sent:
        if envelope.kind == "response":
            return self._answered(text_of(envelope.id) or "", envelope.raw)
        if opens_stateless(envelope, None if headers is None else headers.get("mcp-protocol-version")):
            return self._stateless(envelope, headers)
        if envelope.method == "initialize":
            self._opening = envelope.id.decode() if envelope.id else ""
            return [("upstream", envelope.raw)]
        found = reader(self._dialects, self._version, envelope)
        if found is not None:
            return self._about(envelope, *found)
        dialect = asker(self._dialects, self._version, envelope)
        if dialect is None:
            return [("upstream", envelope.raw)]
        return self._begin(envelope, dialect, dialect.strip(envelope.raw))

    def _stateless(self, envelope: Envelope, headers: Mapping[str, str] | None) -> Sent:
        if headers is not None:
            check_headers(envelope, headers.get)
        declared = declares(read_meta(envelope, SUPPORTED).capabilities, TASKS_EXTENSION)
        ident = envelope.id or b"null"
        match envelope.method:
            case "server/discover":
                self._opening = ident.decode()
                return [("upstream", envelope.raw)]
            case "subscriptions/listen":
                return self._listen(envelope, declared=declared)
            case "tasks/result":
                return [("client", self._c.result(ident, *self._tasks[ID]))]
            case "tasks/list":
                return [("client", response(ident, self._c.listed([], None)))]
            case _:
                return self._call(envelope, declared=declared)

    def _call(self, envelope: Envelope, *, declared: bool) -> Sent:
        about, policy = self._c.read_about(envelope), self._policies.find(envelope.method, None)
        if not declared and (about is not None or policy.mode == "required"):
            raise missing_extension(TASKS_EXTENSION)
        if about is not None:
            return self._about(envelope, self._c, about)
        asks = to_handshake(self._c.strip(envelope.raw))
        if not declared or policy.mode == "forbidden":
            self._plain = (envelope.id or b"null").decode()
            return [("upstream", asks)]
        return self._begin(envelope, self._c, asks)

    def _begin(self, envelope: Envelope, dialect: Dialect, asks: bytes) -> Sent:
        policy = self._policies.find(envelope.method, None)
        ask, manner = dialect.read_ask(envelope, 512), dialect.manner
        kept = grant_keep_alive(
            policy, ask.keep_alive, wanted_forever=ask.forever, kept_from=manner.kept_from
        )
        task = make_task(
            ID,
            manner.first_status,
            dialect=dialect.name,
            request_id=envelope.id,
            keep_alive=kept,
            kept_from=manner.kept_from,
            poll_interval=policy.poll_interval,
            created_at=self._now,
            updated_at=self._now,
        )
        self._tasks[ID] = task, None
        self._running = ID
        sent, _ = call.upstream_request(asks, "u-1")
        return [("client", dialect.created(task, policy.words)), ("upstream", sent)]

    def _about(self, envelope: Envelope, dialect: Dialect, about: About) -> Sent:
        ident = envelope.id or b"null"
        if about.kind == "list":
            page = dialect.listed([task for task, _ in self._tasks.values()], self._next)
            return [("client", response(ident, page))]
        found = self._tasks.get(about.task_id)
        if found is None:
            raise dialect.not_found(about)
        if about.kind == "result":
            return self._result(ident, dialect, *found)
        if about.kind == "cancel":
            return self._cancel(ident, dialect, found[0])
        if about.kind == "update":
            return self._update(ident, found[0], about)
        described = dialect.described(*found)
        if dialect.name == "c":
            described = to_stateless(envelope.method, described, None)
        return [("client", response(ident, described))]

    def _result(self, ident: bytes, dialect: Dialect, task: Task, outcome: Outcome | None) -> Sent:
        if task.ended:
            return [("client", dialect.result(ident, task, outcome))]
        assert dialect.manner.waits
        self._waiting.append((ident, task.key.task_id))
        return self._questions(task)

    def _questions(self, task: Task) -> Sent:
        if task.dialect == "c" or not self._waiting:
            return []
        news = [pending for pending in task.pending if pending.relay_id not in self._told]
        self._told.update(pending.relay_id for pending in news)
        asked = [call.readdressed(pending.message, dump(pending.relay_id)) for pending in news]
        return [("client", self._b.relayed(task.key.task_id, message)) for message in asked]

    def _cancel(self, ident: bytes, dialect: Dialect, task: Task) -> Sent:
        if task.ended and dialect.name == "c":
            return [("client", response(ident, dialect.cancelled(task)))]
        if task.ended:
            raise dialect.ended(task)
        words = call.cancel_words("")
        ended = self._end(task, Outcome(status="cancelled", error=words))
        moved, _ = self._tasks[task.key.task_id]
        stop = call.cancel_message("u-1", words)
        return [("upstream", stop), ("client", response(ident, dialect.cancelled(moved))), *ended]

    def _update(self, ident: bytes, task: Task, about: About) -> Sent:
        found = answers_of(task, about.answers)
        sent = [out for relay, message in found.items() for out in self._answered(relay, message)]
        return [("client", response(ident, self._c.updated())), *sent]

    def _answered(self, relay: str, message: bytes) -> Sent:
        for task, _ in tuple(self._tasks.values()):
            for pending in task.pending:
                if pending.relay_id == relay:
                    rest = tuple(other for other in task.pending if other is not pending)
                    moved = self._move(task, task.status if rest else "working", pending=rest)
                    return [("upstream", call.readdressed(message, pending.upstream_id)), *moved]
        return []

    def _listen(self, envelope: Envelope, *, declared: bool) -> Sent:
        wanted = members(members(envelope.params).get("notifications"))
        ids = [text_of(one) or "" for one in items(wanted.get("taskIds")) or ()]
        if ids and not declared:
            raise missing_extension(TASKS_EXTENSION)
        ident = envelope.id or b"null"
        kept = [task_id for task_id in ids if task_id in self._tasks]
        self._listening += [(ident, task_id) for task_id in kept]
        return [("client", acknowledged({"taskIds": kept} if kept else {}, ident))]

    def _from_upstream(self, message: bytes) -> Sent:
        if self._opening:
            dialect = self._b if self._version != "2026-07-28" else self._c
            self._opening = ""
            return [("client", dialect.advertise(message, self._offer))]
        if self._plain:
            ident, self._plain = self._plain.encode(), ""
            stamped = to_stateless("tools/call", peek(message).result or b"{}", None)
            return [("client", response(ident, stamped))]
        task, _ = self._tasks[self._running]
        heard = call.hear(message)
        match heard.kind:
            case "final":
                return self._end(task, heard.outcome or Outcome(status="completed"))
            case "ask":
                self._asked += 1
                relay = call.relay_id(task.key, 1, self._asked)
                waits = (*task.pending, Pending(relay, heard.upstream_id, heard.method, message))
                moved = self._move(task, "input_required", pending=waits)
                return [*moved, *self._questions(self._tasks[self._running][0])]
            case "progress":
                self._tasks[self._running] = msgspec.structs.replace(task, status_message=heard.text), None
            case "ping":
                return [("upstream", call.pong(heard.upstream_id))]
            case _:
                pass
        return [] if task.dialect == "c" else [("client", self._b.relayed(task.key.task_id, message))]

    def _end(self, task: Task, outcome: Outcome) -> Sent:
        moved = self._move(
            task,
            outcome.status,
            outcome,
            pending=(),
            error=outcome.error,
            is_error=outcome.is_error,
            ended_at=self._now,
        )
        ended, _ = self._tasks[task.key.task_id]
        waiting = [ident for ident, task_id in self._waiting if task_id == task.key.task_id]
        return [*moved, *[("client", self._b.result(ident, ended, outcome)) for ident in waiting]]

    def _move(self, task: Task, status: Any, outcome: Outcome | None = None, **fields: Any) -> Sent:
        if status != task.status:
            check_move(task.status, status)
        moved = msgspec.structs.replace(task, status=status, updated_at=self._now, **fields)
        self._tasks[task.key.task_id] = moved, outcome
        told: Sent = []
        for ident, task_id in self._listening:
            message = self._c.status(moved, outcome) if task_id == task.key.task_id else None
            if message is not None:
                told.append(("client", set_member(message, ("params", "_meta", SUBSCRIPTION_ID), ident)))
        message = self._b.status(moved) if self._tells and status != task.status else None
        return told if message is None else [*told, ("client", message)]
