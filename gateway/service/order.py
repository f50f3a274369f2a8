"""What the task service is asked to run, and the bounds it works in."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import msgspec

from gateway.protocol.headers import Headers
from gateway.service.early import Early
from gateway.store.port import Bounds
from gateway.tasks.model import NewTask
from gateway.tasks.policy import Policy
from gateway.upstream.port import Channel


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A call that another replica began: under which id (raw JSON), and how far it was heard.

    `why_not` says in words why it cannot be resumed; `answers` are the client's that may not have
    reached the upstream: relay id, the upstream's id, message.
    """

    ident: bytes
    wants_progress: bool
    place: str
    why_not: str = ""
    answers: tuple[tuple[str, bytes, bytes], ...] = ()


def new_ident() -> str:
    """Return a request id of the gateway's own."""
    return f"mtg-call.{secrets.token_hex(12)}"


class Order(msgspec.Struct, kw_only=True):
    """One request that is to become a task.

    `message` is the request as the upstream shall get it, but for id and progress token, which the
    service sets; `headers` go with all that is sent for it. `reach` finds the channel again where a
    second attempt is made. `early` is the call where it is on its way already. `streams` says that the
    client's request stays open as the task's first stream. A question to the client that is not
    answered within `answer_within` milliseconds ends the call; `askable` are the methods of those that
    it can be asked, where that is known. `bounds` of the scope, where they are not the usual ones.

    The request goes under `ident`, with `own_token` always with a progress token of that name.
    `recourse` makes the course (see `NewTask`) of a call that goes under an id (raw JSON); with
    `recourse_due` the task was made without a whole one. `taken` is the call where another replica
    began it; `may_repeat` says whether it may be made again, which the policy alone does not say then.
    `has_course` and `has_request` say what the store has of `new`, which keeps neither.
    """

    new: NewTask
    policy: Policy
    message: bytes
    channel: Channel
    reach: Callable[[], Awaitable[Channel | None]]
    headers: Headers
    early: Early | None = None
    streams: bool = True
    answer_within: int | None = None
    askable: frozenset[str] | None = None
    bounds: Bounds | None = None
    ident: str = msgspec.field(default_factory=new_ident)
    own_token: bool = False
    recourse: Callable[[bytes], bytes] | None = None
    recourse_due: bool = False
    taken: Taken | None = None
    may_repeat: bool = True
    has_course: bool = False
    has_request: bool = False

    @property
    def begins_elsewhere(self) -> bool:
        """Whether another replica that finds the task not begun makes the call, though it is no retry."""
        return self.has_request and not self.new.request_kept

    def to_store(self, *, waits: bool) -> NewTask:
        """Return what the store gets; what is for the store alone is not kept here.

        A call that need not wait is not stored to be begun elsewhere: that would be forgotten at once.
        """
        new = self.new if waits or self.new.request_kept else msgspec.structs.replace(self.new, request=b"")
        self.has_course, self.has_request = bool(new.course), bool(new.request)
        if new.course:
            self.new = msgspec.structs.replace(new, course=b"", request=b"")
        return new


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of the task service; bytes, milliseconds, numbers."""

    bounds: Bounds
    result_bytes: int
    stream_queue_bytes: int
    pending_requests: int
    log_bytes: int = 16 * 1024 * 1024
    lease_ms: int
