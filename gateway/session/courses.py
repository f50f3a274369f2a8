"""What another replica must know to go on with a call, sealed: the store is not trusted with it.

A course is bound to its task. It carries the client's headers, which may hold credentials: those only
where the gateway's secret is its operator's, for one that is in the store itself would seal nothing
from who reads the store. Without them a call can be taken up where its client sent none.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.crossing.port import Caller, Ground, Grounded
from gateway.protocol.headers import Headers
from gateway.service.order import Order
from gateway.session.token import Session, derive
from gateway.session.visit import Visit
from gateway.tasks import call
from gateway.tasks.model import TaskKey

_NONCE: Final = 12
_MARK: Final = b"mtg-course-1"
_MAX_COURSE: Final = 64 * 1024
# Headers that say nothing of who is asking; all others count as credentials.
_HARMLESS: Final = re.compile(
    r"accept(-.*)?|content-type|user-agent|cache-control|pragma|origin|referer|dnt|via|priority"
    r"|sec-(?!websocket).*|mcp-protocol-version|mcp-method|mcp-name|last-event-id|traceparent|tracestate"
    r"|x-request-id|forwarded|upgrade-insecure-requests"
    r"|x-forwarded-(for|by|host|port|proto|scheme|ssl|server|prefix|path|uri|method|user|email|groups"
    r"|preferred-username)"
)


class Course(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a call, but for its request.

    `ident` is the id (raw JSON) under which it was sent, `lacking` says that headers were left out.
    `caller` is that of a call of the stateless era, `ground` where its exchange with the upstream is.
    Later versions may add members at the end.
    """

    ident: bytes
    headers: list[tuple[str, str]]
    lacking: bool
    wants_progress: bool
    own_token: bool
    streams: bool
    answer_within: int | None = None
    askable: list[str] | None = None
    session: Session | None = None
    principal: str | None = None
    known: bool = False
    caller: Caller | None = None
    ground: Ground | None = None


class Courses:
    """Seals and opens courses and requests; `keeps_credentials` where the secret is not in the store."""

    def __init__(self, secret: bytes, *, keeps_credentials: bool) -> None:
        self._aead = AESGCM(derive(secret, b"course"))
        self._keeps = keeps_credentials

    def __repr__(self) -> str:
        return f"<Courses {'with' if self._keeps else 'without'} credentials>"

    def furnish(self, order: Order, visit: Visit, caller: Caller | None = None) -> None:
        """Give an order what lets another replica take its call up.

        The request is only kept where it may be sent by another: again, or for the first time after it
        waited for its turn.
        """
        if visit.pipe is not None:
            return
        policy = order.policy
        bounded = policy.max_concurrent is not None or policy.max_concurrent_per_scope is not None
        kept = policy.on_loss == "retry"
        key = order.new.key
        wanted = kept or (bounded and order.early is None)
        if not wanted and (_over_link(visit) if caller is None else not _over_http(visit)):
            return
        order.own_token = order.early is not None
        course = self._course(order, visit, caller)
        request = self._seal(order.message, key, b"request") if wanted else b""
        sealed = self.seal(course, key) if caller is None or wanted else b""
        order.new = msgspec.structs.replace(order.new, course=sealed, request=request, request_kept=kept)

        def recourse(ident: bytes) -> bytes:
            return self.again(course, key, order, ident)

        order.recourse = recourse
        order.recourse_due = caller is not None

    def again(self, course: Course, key: TaskKey, order: Order, ident: bytes) -> bytes:
        """Return the course of a call that goes under another id now, or whose ground is known now."""
        channel = order.channel
        ground = channel.ground if isinstance(channel, Grounded) else None
        return self.seal(msgspec.structs.replace(course, ident=ident, ground=ground), key)

    def seal(self, course: Course, key: TaskKey) -> bytes:
        """Return a course as it is stored; empty where it is too large."""
        packed = msgspec.msgpack.encode(course)
        return b"" if len(packed) > _MAX_COURSE else self._seal(packed, key, b"course")

    def open(self, sealed: bytes, key: TaskKey) -> Course | None:
        """Return a course; `None` where it was sealed under another secret, or for another task."""
        packed = self.open_request(sealed, key, b"course")
        try:
            return None if packed is None else msgspec.msgpack.decode(packed, type=Course)
        except msgspec.DecodeError:
            return None

    def open_request(self, sealed: bytes, key: TaskKey, what: bytes = b"request") -> bytes | None:
        """Return a request, as it was before its id was set; `None` as in `open`."""
        try:
            return self._aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound(key, what))
        except (InvalidTag, ValueError):
            return None

    def _seal(self, plain: bytes, key: TaskKey, what: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._aead.encrypt(nonce, plain, _bound(key, what))

    def _course(self, order: Order, visit: Visit, caller: Caller | None) -> Course:
        early = order.early
        headers, lacking = self.kept(order.headers)
        return Course(
            ident=b'"%b"' % (order.ident if early is None else early.ident).encode(),
            headers=headers,
            lacking=lacking,
            wants_progress=call.wants_progress(order.message) if early is None else early.wants_progress,
            own_token=order.own_token,
            streams=order.streams,
            answer_within=order.answer_within,
            askable=None if order.askable is None else sorted(order.askable),
            session=visit.session if caller is None else None,
            principal=visit.principal,
            known=visit.known,
            caller=caller,
        )

    def kept(self, headers: Headers) -> tuple[Headers, bool]:
        """Return the headers that are kept, and whether any are left out."""
        if self._keeps:
            return headers, False
        kept = [pair for pair in headers if _HARMLESS.fullmatch(pair[0].lower())]
        return kept, len(kept) < len(headers)


def _over_link(visit: Visit) -> bool:
    return visit.session is not None and visit.session.link


def _over_http(visit: Visit) -> bool:
    return visit.served.upstream.http is not None and not visit.served.upstream.prefers_links


def _bound(key: TaskKey, what: bytes) -> bytes:
    parts = (key.scope.upstream, key.scope.tag, key.digest)
    return b"\0".join((_MARK, what, *(part.encode("utf-8", "surrogatepass") for part in parts)))
