"""A request that becomes a task."""

from __future__ import annotations

import logging
from typing import Final

from gateway.dialects.port import Ask, Dialect
from gateway.protocol.codes import INTERNAL_ERROR, LIMIT_REACHED
from gateway.protocol.envelope import dump, members, refusal_response, text_of
from gateway.protocol.errors import Refusal, StoreAway
from gateway.protocol.headers import to_upstream
from gateway.service.order import Order
from gateway.service.running import Running
from gateway.service.service import TaskService
from gateway.session.book import session_unknown
from gateway.session.exchange import Outbound, Stream, json_answer
from gateway.session.plain import pass_on
from gateway.session.streams import Dialects, begun, task_stream, to_wire
from gateway.session.visit import Visit, find_channel
from gateway.store.port import Exists, Full, RateKind, RateLimits
from gateway.tasks.model import NewTask, Scope, TaskKey
from gateway.tasks.policy import Policy, grant_keep_alive

_log: Final = logging.getLogger("gateway.session")


class Beginning:
    """Begins tasks."""

    def __init__(
        self,
        service: TaskService,
        rates: RateLimits,
        dialects: Dialects,
        max_id_bytes: int,
    ) -> None:
        self._service = service
        self._rates = rates
        self._dialects = dialects
        self._max_id_bytes = max_id_bytes

    async def begin(self, visit: Visit, dialect: Dialect, policy: Policy, scope: Scope) -> Outbound:
        """Make a task of a request and return its stream; raise `Refusal` where it cannot be one.

        With the store away a request that need not be a task runs as an ordinary one (I9).
        """
        ask = dialect.read_ask(visit.request, self._max_id_bytes)
        await check_rate(self._rates, "create", scope)
        channel = await find_channel(visit)
        if channel is None:
            raise session_unknown()
        order = Order(
            new=_new_task(visit, dialect, policy, TaskKey(scope, ask.task_id), ask),
            policy=policy,
            message=dialect.strip(visit.request.raw),
            channel=channel,
            reach=lambda: find_channel(visit),
            headers=to_upstream(visit.inbound.headers),
        )
        only_final = not visit.inbound.accepts_events
        try:
            running = await self._service.begin(order, only_final=only_final)
        except StoreAway as away:
            if policy.mode == "optional":
                _log.warning("the store is away, %s runs as an ordinary request", visit.request.method)
                return await pass_on(visit)
            words = "Task store unavailable: this request must be a task, try again later"
            raise Refusal(INTERNAL_ERROR, words, {"retryAfter": 5}, retry_after=5) from away
        match running:
            case Exists():
                raise dialect.exists(ask.task_id)
            case Full():
                raise _full(running, policy)
            case Running():
                if only_final:
                    return await self._wait(running)
                return Stream(await begun(task_stream(running, self._dialects)))

    async def _wait(self, running: Running) -> Outbound:
        """Answer a client that takes no stream: the original response alone."""
        while (item := await running.feed.get()) is not None:
            wire = None if isinstance(item, bytes) else to_wire(item, self._dialects)
            if wire is not None:
                return json_answer(wire.message)
        cancelled = Refusal(INTERNAL_ERROR, "Request cancelled")
        return json_answer(refusal_response(running.task.request_id, cancelled))


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


def _new_task(visit: Visit, dialect: Dialect, policy: Policy, key: TaskKey, ask: Ask) -> NewTask:
    request = visit.request
    tool = text_of(members(request.params).get("name")) if request.method == "tools/call" else None
    return NewTask(
        key=key,
        dialect=dialect.name,
        method=request.method,
        tool=tool,
        pattern=policy.pattern,
        session=visit.tag,
        request_id=request.id or dump(None),
        keep_alive=grant_keep_alive(policy, ask.keep_alive, wanted_forever=ask.forever),
        poll_interval=policy.poll_interval,
        timeout=policy.timeout,
        first_status=dialect.manner.first_status,
        kept_from=dialect.manner.kept_from,
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
