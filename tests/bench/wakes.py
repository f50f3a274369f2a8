"""Clients of the wake scenario: how long after the upstream's answer one who waits has it."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tests.bench.calls import Session
from tests.bench.cycles import Cycle
from tests.bench.wire import Answer, Connection, Target


class Wake(Cycle):
    """A call of `told`, whose answer says when it was sent; as a task its result is asked for elsewhere.

    With `beside` the call is a task of dialect B, and `tasks/result` goes to that replica; the clock
    stops when the result is there.
    """

    def __init__(self, session: Session, beside: Target | None) -> None:
        super().__init__(session.connection, "told", 0.0)
        self._head = session.head()
        self._own = session.connection
        self._beside = beside
        self._waiting = None if beside is None else Connection(beside)
        self._waiting_head = session.head(beside)

    async def open(self) -> None:
        """Connect to the other replica."""
        if self._waiting is not None:
            await self._waiting.open()

    def close(self) -> None:
        """Close both connections."""
        self._own.close()
        if self._waiting is not None:
            self._waiting.close()

    def _create(self) -> None:
        self._connection = self._own
        params: dict[str, Any] = {"name": self._tool, "arguments": {}}
        if self._beside is None:
            self._send(self._head, "tools/call", params, self._fetched)
        else:
            self._send(self._head, "tools/call", params | {"task": {"ttl": 60_000}}, self._called)

    def _called(self, answer: Answer) -> None:
        task = self._last(answer)["task"]
        if self._waiting is None or self._round is None:
            return
        self._connection = self._waiting
        self._connection.failed = self._round.fail
        self._send(self._waiting_head, "tasks/result", {"taskId": task["taskId"]}, self._fetched)

    def _fetched(self, answer: Answer) -> None:
        now = time.perf_counter()
        result = self._last(answer)
        told = float(msgspec.json.decode(result["content"][0]["text"]))
        self._expect(0 < told < now, "the moment")
        self._marks = [told, now]
        self._finish()
