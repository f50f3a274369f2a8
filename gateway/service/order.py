"""What the task service is asked to run, and the bounds it works in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from gateway.protocol.headers import Headers
from gateway.service.early import Early
from gateway.store.port import Bounds
from gateway.tasks.model import NewTask
from gateway.tasks.policy import Policy
from gateway.upstream.port import Channel


class Order(msgspec.Struct, kw_only=True):
    """One request that is to become a task.

    `message` is the request as the upstream shall get it, but for id and progress token, which the
    service sets; `headers` go with all that is sent for it. `reach` finds the channel again where a
    second attempt is made. `early` is the call where it is on its way already. `streams` says that the
    client's request stays open as the task's first stream. A question to the client that is not
    answered within `answer_within` milliseconds ends the call; `askable` are the methods of those that
    it can be asked, where that is known. `bounds` of the scope, where they are not the usual ones.
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


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of the task service; bytes, milliseconds, numbers."""

    bounds: Bounds
    result_bytes: int
    stream_queue_bytes: int
    pending_requests: int
    log_bytes: int = 16 * 1024 * 1024
    lease_ms: int
