"""Input asked for in results, and answered by a retry (2026-07-28 "Multi Round-Trip Requests").

Here are the messages around the entries; the entries themselves are made in `gateway.tasks.inputs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.protocol.canonical import items
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from gateway.protocol.envelope import Envelope, dump, members, request, text_of, value
from gateway.protocol.errors import Refusal
from gateway.protocol.splice import Parts, put_together, set_member, take_apart
from gateway.tasks.inputs import METHODS, input_request

# 2025-11-25 "URL Elicitation Required"; no code of the stateless era.
URL_ELICITATION_REQUIRED: Final = -32042
_MAX_SHOWN: Final = 100


def input_required(requests: bytes, state: str | None) -> bytes:
    """Return an `InputRequiredResult` of a raw `inputRequests` object and the state to be echoed.

    Raises `Refusal` -32603 where there is neither: such a result would say nothing.
    """
    parts: Parts = {"resultType": dump("input_required")}
    if members(requests):
        parts["inputRequests"] = requests
    if state is not None:
        parts["requestState"] = dump(state)
    if len(parts) == 1:
        raise Refusal(INTERNAL_ERROR, "There is neither a request for input nor a state to come back with")
    return put_together(parts)


def read_input_required(result: bytes) -> tuple[dict[str, bytes], bytes | None]:
    """Return the raw entries of an upstream's `InputRequiredResult` by key, and its raw state.

    Raises `Refusal` -32603 where the upstream sent what the text does not allow: nothing to ask and
    no state, an entry that is no request, or a request that clients do not know.
    """
    found = members(result)
    raw, state = found.get("inputRequests"), found.get("requestState")
    if raw is not None and not _is_object(raw):
        raise _bad_result("has inputRequests that are not an object")
    if state is not None and text_of(state) is None:
        raise _bad_result("has a requestState that is not a string")
    entries = {key: bytes(entry) for key, entry in members(raw).items()}
    if not entries and state is None:
        raise _bad_result("has neither inputRequests nor requestState")
    for entry in entries.values():
        if text_of(members(entry).get("method")) not in METHODS:
            raise _bad_result(f"asks for something else than {', '.join(METHODS)}")
    return entries, None if state is None else bytes(state)


def as_server_request(ident: bytes, entry: bytes) -> bytes:
    """Return an entry of `inputRequests` as a server's request of the handshake era, id in raw JSON.

    2025-11-25 wants an id of each elicitation by URL, which the stateless era has not: the request's
    own serves. Raises `Refusal` -32603 for an entry that is no request.
    """
    found = members(entry)
    method = text_of(found.get("method"))
    if method is None:
        raise _bad_result("has an entry without a method")
    params = found.get("params")
    raw = None if params is None else bytes(params)
    inner = members(raw)
    if raw is not None and text_of(inner.get("mode")) == "url" and "elicitationId" not in inner:
        own = ident if ident[:1] == b'"' else b'"' + ident + b'"'
        raw = set_member(raw, ("elicitationId",), own)
    return request(ident, method, raw)


def retry(message: bytes, answers: Mapping[str, bytes], state: bytes | None) -> bytes:
    """Return a stateless request with raw answers by key and the raw state that belongs to them.

    What an earlier round brought goes. The id stays, and whoever sends it gives it a new one: a retry
    is a request of its own.
    """
    outer = take_apart(message)
    inner = take_apart(bytes(outer.get("params", b"{}")))
    for name in ("inputResponses", "requestState"):
        inner.pop(name, None)
    if answers:
        inner["inputResponses"] = put_together(dict(answers))
    if state is not None:
        inner["requestState"] = state
    outer["params"] = put_together(inner)
    return put_together(outer)


def answers_in(envelope: Envelope) -> tuple[dict[str, bytes], str | None]:
    """Return the raw answers by key that a client's retry brings, and the state that it echoes.

    Raises `Refusal` -32602 where they are malformed.
    """
    params = members(envelope.params)
    raw, echoed = params.get("inputResponses"), params.get("requestState")
    state = text_of(echoed)
    if echoed is not None and state is None:
        raise Refusal(INVALID_PARAMS, "Invalid params: requestState must be a string")
    if raw is not None and not _is_object(raw):
        raise Refusal(INVALID_PARAMS, "Invalid params: inputResponses must be an object")
    answers = {key: bytes(answer) for key, answer in members(raw).items()}
    for key, answer in answers.items():
        if answer[:1] != b"{":
            words = f"Invalid params: inputResponses[{key[:_MAX_SHOWN]!r}] must be an object"
            raise Refusal(INVALID_PARAMS, words)
    return answers, state


def url_elicitations(error: bytes) -> bytes | None:
    """Return the `inputRequests` object that a 2025-11-25 error -32042 amounts to.

    `None` where the error is another one, or names no place to go to.
    """
    found = members(error)
    if value(found.get("code")) != URL_ELICITATION_REQUIRED:
        return None
    wanted = items(members(found.get("data")).get("elicitations")) or []
    good = [params for params in wanted if _is_url_elicitation(params)]
    entries: Parts = {
        f"url-{number}": input_request(request(b"0", "elicitation/create", params))
        for number, params in enumerate(good, 1)
    }
    return put_together(entries) if entries else None


def _is_url_elicitation(params: bytes) -> bool:
    found = members(params)
    named = all(text_of(found.get(name)) for name in ("url", "message"))
    return named and text_of(found.get("mode")) == "url"


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(raw)[:1] == b"{"


def _bad_result(what: str) -> Refusal:
    return Refusal(INTERNAL_ERROR, f"The upstream's request for input {what}")
