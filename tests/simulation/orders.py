"""What clients of the simulation order, and how a replica takes up an order that another one had."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from gateway.service.order import Order, Taken
from gateway.store.port import Left
from gateway.tasks.model import DialectName, NewTask, Scope, Task, TaskKey
from gateway.tasks.policy import Policy
from gateway.upstream.port import Channel

Json = dict[str, Any]
TIMEOUT_MS: Final = 60_000
KEPT_MS: Final = 20_000
CONCURRENT: Final = 2
Reach = Callable[[str], Channel]


class Plan(msgspec.Struct, frozen=True):
    """One task as its client wants it: `nonce` is in its arguments and in its result."""

    nonce: str
    scope: Scope
    upstream: str
    dialect: DialectName
    retry: bool
    in_turn: bool

    @property
    def key(self) -> TaskKey:
        """The name of the task."""
        return TaskKey(self.scope, f"task-{self.nonce}")

    @property
    def policy(self) -> Policy:
        """What the configuration says of its tool."""
        return Policy(
            pattern="turns" if self.in_turn else "free",
            timeout=TIMEOUT_MS,
            keep_alive_default=KEPT_MS,
            max_concurrent=CONCURRENT if self.in_turn else None,
            on_loss="retry" if self.retry else "fail",
        )

    @property
    def message(self) -> bytes:
        """The request."""
        params = {"name": "work", "arguments": {"nonce": self.nonce}}
        request: Json = {"jsonrpc": "2.0", "id": self.nonce, "method": "tools/call", "params": params}
        return json.dumps(request).encode()


def order_of(plan: Plan, channel: Channel) -> Order:
    """Return the order of a plan, as the session room makes one."""
    order = Order(
        new=NewTask(
            key=plan.key,
            dialect=plan.dialect,
            method="tools/call",
            tool="work",
            pattern=plan.policy.pattern,
            session=f"session-{plan.nonce}",
            request_id=json.dumps(plan.nonce).encode(),
            keep_alive=KEPT_MS,
            poll_interval=None,
            timeout=TIMEOUT_MS,
            first_status="submitted" if plan.dialect == "a" else "working",
            request=plan.message,
            request_kept=plan.retry,
        ),
        policy=plan.policy,
        message=plan.message,
        channel=channel,
        reach=_same(channel),
        headers=[],
        streams=plan.dialect == "a",
        recourse=lambda ident: _course(plan, ident),
    )
    course = _course(plan, json.dumps(order.ident).encode())
    order.new = msgspec.structs.replace(order.new, course=course)
    return order


def rebuild_over(reach: Reach) -> Callable[[Task, Left], Awaitable[Order | str]]:
    """Return what makes an order of what a lost replica left."""

    async def rebuild(task: Task, left: Left) -> Order | str:
        course = json.loads(left.course)
        plan = msgspec.convert(course["plan"], Plan)
        order = order_of(plan, reach(plan.upstream))
        order.has_course, order.has_request = True, bool(left.request)
        order.message = left.request
        if task.started_at is None:
            order.ident = json.loads(course["ident"])
            return order
        order.may_repeat = plan.retry and bool(left.request)
        order.taken = Taken(
            ident=course["ident"].encode(), wants_progress=False, place=left.place, answers=left.answers
        )
        return order

    return rebuild


def _course(plan: Plan, ident: bytes) -> bytes:
    return json.dumps({"plan": msgspec.to_builtins(plan), "ident": ident.decode()}).encode()


def _same(channel: Channel) -> Callable[[], Awaitable[Channel]]:
    async def reach() -> Channel:
        return channel

    return reach
