"""A request that becomes a task."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from gateway.crossing.port import Caller
from gateway.dialects.port import Ask, Dialect
from gateway.protocol.codes import INTERNAL_ERROR, LIMIT_REACHED
from gateway.protocol.envelope import dump, refusal_response
from gateway.protocol.errors import Refusal, StoreAway
from gateway.protocol.headers import to_upstream
from gateway.service.early import Early
from gateway.service.order import Order
from gateway.service.running import Running
from gateway.service.service import TaskService
from gateway.service.turns import Crowded
from gateway.session.book import session_unknown
from gateway.session.courses import Courses
from gateway.session.exchange import Outbound, Stream, json_answer
from gateway.session.names import Names
from gateway.session.own import OwnTasks
from gateway.session.plain import pass_on
from gateway.session.streams import begun, task_stream, to_wire
from gateway.session.visit import Visit
from gateway.store.port import Bounds, Exists, Full, RateKind, RateLimits
from gateway.tasks.model import NewTask, Scope, TaskKey
from gateway.tasks.policy import Policy, grant_keep_alive
from gateway.upstream.port import Channel

_log: Final = logging.getLogger("gateway.session")
_STORED_PER_ACTIVE: Final = 10
_HIDDEN_KEPT_MS: Final = 60_000


class TaskLimits(msgspec.Struct, frozen=True):
    """Bounds of what becomes a task: bytes of a client's id, tasks that belong to nobody."""

    id_bytes: int
    anonymous: int


class Making(msgspec.Struct, frozen=True):
    """What a task of the stateless era is made of: a message to be sent, or a call on its way.

    `askable` are the methods of server requests that its client can answer, `caller` is that client.
    With `hidden` it is one that nobody is told of: a plain call that waits for its client. It is
    given up where a question is not answered within `answer_within` milliseconds.
    """

    channel: Channel
    message: bytes
    askable: frozenset[str]
    early: Early | None = None
    hidden: bool = False
    answer_within: int | None = None
    caller: Caller | None = None


class MaybeStored(Refusal):
    """The store may have the task all the same: if so, another replica makes the call, nobody else (I3)."""


class Beginning:
    """Begins tasks."""

    def __init__(
        self, service: TaskService, rates: RateLimits, names: Names, own: OwnTasks, limits: TaskLimits
    ) -> None:
        self._service = service
        self._rates = rates
        self._names = names
        self._own = own
        self._limits = limits
        self.courses: Courses | None = None

    async def begin(self, visit: Visit, dialect: Dialect) -> Outbound:
        """Make a task of a request of the handshake era; raise `Refusal` where it cannot be one.

        With the store away a request that need not be a task runs as an ordinary one (I9), where the
        dialect's clients take that for an answer.
        """
        policy = visit.policy
        ask = dialect.read_ask(visit.request, self._limits.id_bytes)
        if dialect.manner.client_ids:
            if visit.scope is None:
                return await pass_on(visit)
            scope, task_id = visit.scope, ask.task_id
        else:
            scope, task_id = self._names.new(visit)
        await check_rate(self._rates, "create", scope)
        channel = await self._own.channel(visit)
        if channel is None:
            raise session_unknown()
        order = self._order(visit, dialect, TaskKey(scope, task_id), ask, channel)
        if self.courses is not None:
            self.courses.furnish(order, visit)
        only_final = not visit.inbound.accepts_events
        try:
            running = await self._service.begin(order, only_final=only_final)
        except StoreAway as away:
            if order.begins_elsewhere:
                raise maybe_stored() from away
            if policy.mode == "optional" and not dialect.manner.at_once:
                _log.warning("the store is away, %s runs as an ordinary request", visit.request.method)
                return await pass_on(visit)
            raise store_away("this request must be a task") from away
        running = begun_or_refused(running, policy, dialect, task_id)
        if dialect.manner.at_once:
            return json_answer(dialect.created(running.task, policy.words))
        if only_final:
            return await self._wait(visit, running)
        return Stream(await begun(task_stream(running, visit.served.dialects)))

    async def make(self, visit: Visit, making: Making) -> Running:
        """Make a task of a request of the stateless era; raise `Refusal`, `StoreAway`.

        After either but `MaybeStored` the call is the caller's to make in another way.
        """
        scope, task_id = self._names.new(visit)
        await check_rate(self._rates, "create", scope)
        dialect = visit.served.dialects["c"]
        order = self._order(visit, dialect, TaskKey(scope, task_id), Ask(), making.channel)
        order.message, order.early = making.message, making.early

        async def reach() -> Channel:
            return making.channel

        order.reach = reach
        order.answer_within = making.answer_within
        order.askable = making.askable
        if making.hidden:
            order.new = _hide(order.new)
        if self._names.belongs_to_nobody(scope):
            order.bounds = self.anonymous
        if self.courses is not None and making.caller is not None:
            self.courses.furnish(order, visit, making.caller)
        try:
            running = await self._service.begin(order)
        except StoreAway as away:
            if order.begins_elsewhere:
                raise maybe_stored() from away
            raise
        return begun_or_refused(running, visit.policy, dialect, task_id)

    def reconfigure(self, limits: TaskLimits) -> None:
        """Hold new tasks to other bounds from now on."""
        self._limits = limits

    @property
    def anonymous(self) -> Bounds:
        """How many tasks an upstream may have that belong to nobody."""
        return Bounds(self._limits.anonymous, self._limits.anonymous * _STORED_PER_ACTIVE)

    def _order(self, visit: Visit, dialect: Dialect, key: TaskKey, ask: Ask, channel: Channel) -> Order:
        return Order(
            new=_new_task(visit, dialect, key, ask),
            policy=visit.policy,
            message=_stripped(visit, dialect),
            channel=channel,
            reach=lambda: self._own.channel(visit),
            headers=to_upstream(visit.inbound.headers),
            streams=not dialect.manner.at_once,
        )

    async def _wait(self, visit: Visit, running: Running) -> Outbound:
        """Answer a client that takes no stream: the original response alone."""
        while (item := await running.feed.get()) is not None:
            wire = None if isinstance(item, bytes) else to_wire(item, visit.served.dialects)
            if wire is not None:
                return json_answer(wire.message)
        cancelled = Refusal(INTERNAL_ERROR, "Request cancelled")
        return json_answer(refusal_response(running.task.request_id, cancelled))


def begun_or_refused(
    found: Running | Exists | Full | Crowded, policy: Policy, dialect: Dialect, task_id: str
) -> Running:
    """Return the running task; raise `Refusal` where the store did not take it."""
    match found:
        case Exists():
            raise dialect.exists(task_id)
        case Full():
            raise _full(found, policy)
        case Crowded():
            raise _crowded(found)
        case Running():
            return found


async def check_rate(rates: RateLimits, kind: RateKind, scope: Scope) -> None:
    """Raise `Refusal` with HTTP 429 where a scope asks too often (SEP-1686 section 8.1.3)."""
    wait = await rates.hit(kind, scope)
    if wait is None:
        return
    raise Refusal(
        LIMIT_REACHED,
        f"Limit reached: rates.{kind}; try again in {wait:.1f} s",
        {"limit": f"rates.{kind}", "retryAfter": round(wait, 3)},
        status=429,
        retry_after=wait,
    )


def store_away(what: str) -> Refusal:
    """Return the refusal for what cannot be done without the store."""
    words = f"Task store unavailable: {what}, try again later"
    return Refusal(INTERNAL_ERROR, words, {"retryAfter": 5}, retry_after=5)


def maybe_stored() -> MaybeStored:
    """Return the refusal of a call that must not be made in another way now."""
    refusal = store_away("the call may wait for its turn as a task")
    return MaybeStored(
        refusal.code, refusal.message, refusal.data, status=refusal.status, retry_after=refusal.retry_after
    )


def _new_task(visit: Visit, dialect: Dialect, key: TaskKey, ask: Ask) -> NewTask:
    policy, manner = visit.policy, dialect.manner
    return NewTask(
        key=key,
        dialect=dialect.name,
        method=visit.request.method,
        tool=visit.tool,
        pattern=policy.pattern,
        session=visit.tag,
        request_id=visit.request.id or dump(None),
        keep_alive=grant_keep_alive(
            policy, ask.keep_alive, wanted_forever=ask.forever, kept_from=manner.kept_from
        ),
        poll_interval=policy.poll_interval,
        timeout=policy.timeout,
        first_status=manner.first_status,
        kept_from=manner.kept_from,
    )


def _stripped(visit: Visit, dialect: Dialect) -> bytes:
    """Return the request without a wish for a task in any dialect: the upstream may have its own."""
    message = dialect.strip(visit.request.raw)
    if dialect.name != "a" or visit.request.method != "tools/call":
        return message
    return visit.served.dialects["b"].strip(message)


def _hide(new: NewTask) -> NewTask:
    scope = msgspec.structs.replace(new.key.scope, tag=f"h-{new.key.scope.tag}")
    key = msgspec.structs.replace(new.key, scope=scope)
    return msgspec.structs.replace(
        new, key=key, dialect="none", keep_alive=_HIDDEN_KEPT_MS, kept_from="end", session=""
    )


def _full(full: Full, policy: Policy) -> Refusal:
    limit = "tasks_per_scope" if full.which == "active" else "stored_tasks_per_scope"
    wait = policy.poll_interval / 1000
    return Refusal(
        LIMIT_REACHED,
        f"Limit reached: {limit} ({full.bound}); try again when tasks have ended",
        {"limit": limit, "max": full.bound, "retryAfter": wait},
        status=429,
        retry_after=wait,
    )


def _crowded(crowded: Crowded) -> Refusal:
    return Refusal(
        LIMIT_REACHED,
        f"Limit reached: max_queued ({crowded.bound}); try again in {crowded.seconds:.1f} s",
        {"limit": "max_queued", "max": crowded.bound, "retryAfter": round(crowded.seconds, 3)},
        status=429,
        retry_after=crowded.seconds,
    )
