"""Turns of calls that may not all run at the same time."""

from __future__ import annotations

import asyncio

from gateway.service.order import Order


class Turns:
    """Bounds, for each rule of each upstream, how many of its tasks call at the same time."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], asyncio.Semaphore] = {}

    def __repr__(self) -> str:
        return f"<Turns of {len(self._turns)} rules>"

    def of(self, order: Order) -> asyncio.Semaphore | None:
        """Return what a call has to acquire first; `None` where it need not wait.

        What is on its way already waits for no turn.
        """
        policy = order.policy
        if policy.max_concurrent is None or order.early is not None:
            return None
        name = (order.new.key.scope.upstream, policy.pattern)
        return self._turns.setdefault(name, asyncio.Semaphore(policy.max_concurrent))
