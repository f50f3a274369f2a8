"""Plays vectors of the bridge: a client of one era, an upstream of the other, and the cold rooms between.

The tables remember what a replica would: which request waits, what it was asked, who listens. They decide
nothing of what a message says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.bridge.discover import discovered, initialized, negotiated
from gateway.bridge.inputs import (
    answers_in,
    as_server_request,
    input_required,
    read_input_required,
    retry,
    url_elicitations,
)
from gateway.bridge.requests import to_handshake
from gateway.bridge.requests import to_stateless as request_to_stateless
from gateway.bridge.results import (
    acknowledged,
    change_for,
    error_to_handshake,
    error_to_stateless,
    kind_of,
    notification_for,
    subscription_cancelled,
    subscription_end,
    to_stateless,
)
from gateway.bridge.results import to_handshake as result_to_handshake
from gateway.protocol.envelope import (
    Envelope,
    dump,
    error_response,
    members,
    peek,
    response,
    text_of,
    value,
)
from gateway.protocol.errors import Refusal
from gateway.protocol.stateless import (
    RequestMeta,
    check_headers,
    check_param_headers,
    opens_stateless,
    param_headers,
    read_meta,
    request_headers,
)
from gateway.tasks import call
from gateway.tasks.inputs import answers_of, input_requests, own_key
from gateway.tasks.model import Pending, Task
from tests.cold.playbook import make_task
from tests.cold.playbook_tasks import SUPPORTED, Sent

STATE: Final = "AEAD-protected blob"
FLAGS: Final = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


def refused(envelope: Envelope, refusal: Refusal) -> list[dict[str, Any]]:
    """Return what goes out for a refused request: the error, and the HTTP status where it has one."""
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    out = {"to": "client", "message": json.loads(error_response(envelope.id, dump(error)))}
    return [out if refusal.status is None else out | {"status": refusal.status}]


class StatelessClient:
    """One client of the stateless era before an upstream with sessions."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._initialized = dump(given.get("initialized", {}))
        info = members(self._initialized).get("serverInfo")
        self._info = None if info is None else bytes(info)
        self._schemas = {name: dump(schema) for name, schema in given.get("schemas", {}).items()}
        self._supported: Sequence[str] = given.get("supported", SUPPORTED)
        self._method, self._ident = "", b"null"
        self._meta: RequestMeta | None = None
        self._task: Task = make_task()
        self._told: set[str] = set()
        self._listens: list[tuple[bytes, dict[str, msgspec.Raw]]] = []
        self._on_pipe = False
        self._asked = 0

    def play(
        self, sender: str, messages: list[bytes], headers: Mapping[str, str] | None
    ) -> list[dict[str, Any]]:
        """Take messages and return what goes out for them, in order."""
        if sender == "upstream":
            sent = [out for message in messages for out in self._from_upstream(message)]
            sent += self._questions()
        else:
            envelope = peek(messages[0])
            try:
                sent = self._from_client(envelope, headers)
            except Refusal as refusal:
                return refused(envelope, refusal)
        return [{"to": to, "message": json.loads(out)} for to, out in sent]

    def _from_client(self, envelope: Envelope, headers: Mapping[str, str] | None) -> Sent:
        given: Mapping[str, str] = headers or {}
        if not opens_stateless(envelope, given.get("mcp-protocol-version")):
            return [("upstream", envelope.raw)]
        if headers is not None:
            check_headers(envelope, given.get)
        meta, ident = read_meta(envelope, self._supported), envelope.id or b"null"
        params = members(envelope.params)
        schema = self._schemas.get(text_of(params.get("name")) or "")
        if schema is not None and headers is not None:
            arguments = params.get("arguments")
            check_param_headers(None if arguments is None else bytes(arguments), schema, given.get)
        if envelope.method == "server/discover":
            return [("client", response(ident, discovered(self._initialized, self._supported, 60_000)))]
        if envelope.method == "subscriptions/listen":
            self._on_pipe = headers is None
            return self._listen(ident, bytes(params.get("notifications", b"{}")))
        self._method, self._ident, self._meta = envelope.method, ident, meta
        answers, state = answers_in(envelope)
        if state is None:
            return [("upstream", call.readdressed(to_handshake(envelope.raw), dump("u-1")))]
        assert state == STATE
        return self._answered(answers)

    def _answered(self, answers: Mapping[str, bytes]) -> Sent:
        found = answers_of(self._task, answers, own_key)
        sent: Sent = []
        for pending in self._task.pending:
            if pending.relay_id in found:
                sent.append(("upstream", call.readdressed(found[pending.relay_id], pending.upstream_id)))
        rest = tuple(pending for pending in self._task.pending if pending.relay_id not in found)
        self._task = msgspec.structs.replace(self._task, pending=rest)
        self._told.clear()
        return [*sent, *self._questions()]

    def _questions(self) -> Sent:
        """Ask for all that is still to be asked for; nothing where the client has been told all of it."""
        waiting = {pending.relay_id for pending in self._task.pending}
        if not waiting - self._told:
            return []
        self._told |= waiting
        return [
            ("client", response(self._ident, input_required(input_requests(self._task, own_key), STATE)))
        ]

    def _listen(self, ident: bytes, notifications: bytes) -> Sent:
        self._listens.append((ident, members(notifications)))
        return [("client", acknowledged(notifications, ident))]

    def _from_upstream(self, message: bytes) -> Sent:
        if message == b'"the gateway stops"':
            ends = [subscription_end, subscription_cancelled] if self._on_pipe else [subscription_end]
            return [("client", end(ident)) for ident, _ in self._listens for end in ends]
        heard = call.hear(message)
        if heard.kind == "final":
            return [("client", self._final(peek(message)))]
        if heard.kind == "ask":
            self._asked += 1
            relay = call.relay_id(self._task.key, 1, self._asked)
            waits = (*self._task.pending, Pending(relay, heard.upstream_id, heard.method, message))
            self._task = msgspec.structs.replace(self._task, pending=waits)
            return []
        meta = self._meta
        shown = meta and notification_for(message, token=meta.token, log_level=meta.log_level)
        return [*([("client", shown)] if shown else []), *self._changes(message)]

    def _changes(self, message: bytes) -> Sent:
        told: Sent = []
        for ident, wanted in self._listens:
            flags = {name: value(wanted.get(flag)) is True for name, flag in FLAGS.items()}
            uris: list[str] = value(wanted.get("resourceSubscriptions")) or []
            change = change_for(message, **flags, uris=uris, subscription_id=ident)
            if change is not None:
                told.append(("client", change))
        return told

    def _final(self, envelope: Envelope) -> bytes:
        if envelope.error is None:
            stamped = to_stateless(self._method, envelope.result or b"{}", self._info)
            return response(self._ident, stamped)
        wanted = url_elicitations(envelope.error)
        if wanted is not None:
            return response(self._ident, input_required(wanted, None))
        return error_response(self._ident, error_to_stateless(envelope.error))


class HandshakeClient:
    """One client of the handshake era before an upstream without sessions."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._discovered = dump(given.get("discovered", {}))
        self._capabilities = dump(given.get("capabilities", {}))
        self._info = dump(given.get("info", {"name": "c", "version": "1"}))
        self._schemas = {name: dump(schema) for name, schema in given.get("schemas", {}).items()}
        self._log_level = given.get("log_level")
        self._ident, self._sent, self._number = b"null", b"", 0
        self._asked: dict[bytes, str] = {}
        self._answers: dict[str, bytes] = {}
        self._state: bytes | None = None

    def play(
        self, sender: str, messages: list[bytes], headers: Mapping[str, str] | None
    ) -> list[dict[str, Any]]:
        """Take messages and return what goes out; to the upstream with its headers."""
        del headers
        envelope = peek(messages[0])
        if sender == "upstream":
            return self._from_upstream(envelope)
        if envelope.kind == "response":
            return self._answered(envelope)
        if envelope.method == "initialize":
            version = negotiated(text_of(members(envelope.params).get("protocolVersion")))
            return [self._told(response(envelope.id, initialized(self._discovered, version)))]
        self._ident = envelope.id or b"null"
        asked = request_to_stateless(
            envelope.raw, "2026-07-28", self._capabilities, self._info, self._log_level
        )
        return [self._send(asked)]

    def _from_upstream(self, envelope: Envelope) -> list[dict[str, Any]]:
        if envelope.error is not None:
            return [self._told(error_response(self._ident, error_to_handshake(envelope.error)))]
        result = envelope.result or b"{}"
        try:
            if kind_of(result) == "input_required":
                return self._ask(result)
        except Refusal as refusal:
            return refused(msgspec.structs.replace(envelope, id=self._ident), refusal)
        return [self._told(response(self._ident, result_to_handshake(result)))]

    def _ask(self, result: bytes) -> list[dict[str, Any]]:
        entries, self._state = read_input_required(result)
        self._answers = {}
        self._asked = {dump(f"ask-{key}"): key for key in entries}
        if not entries:
            return [self._send(retry(self._sent, {}, self._state))]
        return [self._told(as_server_request(dump(f"ask-{key}"), entry)) for key, entry in entries.items()]

    def _answered(self, envelope: Envelope) -> list[dict[str, Any]]:
        key = self._asked.pop(envelope.id or b"", None)
        if key is not None:
            self._answers[key] = envelope.result or b"{}"
        return [] if self._asked else [self._send(retry(self._sent, self._answers, self._state))]

    def _send(self, message: bytes) -> dict[str, Any]:
        self._number += 1
        self._sent = call.readdressed(message, dump(self._number))
        envelope = peek(self._sent)
        headers = request_headers(envelope)
        params = members(envelope.params)
        schema = self._schemas.get(text_of(params.get("name")) or "")
        if schema is not None:
            arguments = params.get("arguments")
            headers = [*headers, *param_headers(None if arguments is None else bytes(arguments), schema)]
        return {"to": "upstream", "message": json.loads(self._sent), "headers": dict(headers)}

    def _told(self, message: bytes) -> dict[str, Any]:
        return {"to": "client", "message": json.loads(message)}
