"""Clients of the tasks scenario: the full cycle of a task, in each dialect.

Equal work in all: the call is made, its task is seen completed, its result is fetched and verified.
A needs three requests (create, get, result). B needs two, since `tasks/result` waits for the end. C has the
result in `tasks/get` and needs two, and as many more as polls come too early: the waits between them are
those of FastMCP's own client (20 ms, doubled).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tests.bench import payloads
from tests.bench.bridged_calls import meta_of, stateless_head
from tests.bench.calls import Session
from tests.bench.rounds import Round
from tests.bench.wire import Answer, Connection, Target, WrongAnswer

RELATED: Final = "modelcontextprotocol.io/related-task"
B_RELATED: Final = "io.modelcontextprotocol/related-task"
C_META: Final = meta_of({"extensions": {"io.modelcontextprotocol/tasks": {}}})


class Cycle:
    """What both dialects share: steps on one connection, a wrong answer ends the round.

    With `pause` (seconds) the client rests after each step, so that a counter can tell the steps apart.
    """

    def __init__(self, connection: Connection, tool: str, pause: float) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._tool = tool
        self._pause = pause
        self._number = 0
        self._round: Round | None = None
        self._marks: list[float] = []
        self._first: float | None = None

    def begin(self, current: Round) -> None:
        self._round = current
        self._connection.failed = current.fail
        self._create()

    def close(self) -> None:
        self._connection.close()

    def _create(self) -> None:
        raise NotImplementedError

    def _send(
        self, head: bytes, method: str, params: dict[str, Any], step: Callable[[Answer], None]
    ) -> None:
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._marks.append(time.perf_counter())
        self._connection.done = lambda answer: self._step(step, answer)
        self._connection.send(head, msgspec.json.encode(body))

    def _step(self, step: Callable[[Answer], None], answer: Answer) -> None:
        self._marks.append(time.perf_counter())
        try:
            step(answer)
        except (WrongAnswer, LookupError, TypeError, msgspec.DecodeError) as wrong:
            if self._round is not None:
                self._round.fail(WrongAnswer(f"{step.__name__}: {wrong!r} in {answer}"))

    def _then(self, work: Callable[[], None], wait: float = 0.0) -> None:
        if wait or self._pause:
            self._loop.call_later(max(wait, self._pause), work)
        else:
            work()

    def _again(self) -> None:
        if self._round is None:
            return
        self._round.result.polls += 1

    def _finish(self) -> None:
        if self._round is None:
            return
        if self._pause:
            self._round.result.marks.append([self._marks[0], self._first or 0.0, *self._marks[1:]])
        marks, self._marks = self._marks, []
        if self._round.record(marks[0], marks[-1], self._first):
            self._then(self._create)

    def _expect(self, condition: object, what: str) -> None:
        if not condition:
            raise WrongAnswer(f"{what} is not what it must be")

    def _last(self, answer: Answer) -> Any:
        self._expect(answer.status == 200, "the status")
        message = msgspec.json.decode(answer.messages()[-1])
        self._expect(message["id"] == self._number, "the id")
        return message["result"]

    def _check_result(self, result: Any) -> None:
        wanted = [{"type": "text", "text": payloads.TEXTS[self._tool]}]
        self._expect(result["content"] == wanted and not result.get("isError"), "the result")


class CycleA(Cycle):
    """SEP-1686: the call with task metadata, its stream read to the end, tasks/get, tasks/result."""

    def __init__(self, session: Session, tool: str, pause: float, keep_ms: int = 60_000) -> None:
        super().__init__(session.connection, tool, pause)
        self._head = session.head()
        self._keep_ms = keep_ms
        self._task = ""

    def _create(self) -> None:
        self._task = str(uuid.uuid4())
        meta = {"modelcontextprotocol.io/task": {"taskId": self._task, "keepAlive": self._keep_ms}}
        params = {"name": self._tool, "arguments": {}, "_meta": meta}
        self._send(self._head, "tools/call", params, self._called)

    def _called(self, answer: Answer) -> None:
        self._first = answer.first
        messages = [msgspec.json.decode(message) for message in answer.messages()]
        self._expect(messages[0]["method"] == "notifications/tasks/created", "the first message")
        self._expect_related(messages[0]["params"])
        result = self._last(answer)
        self._check_result(result)
        self._expect_related(result)
        self._then(self._get)

    def _get(self) -> None:
        self._send(self._head, "tasks/get", self._about(), self._got)

    def _got(self, answer: Answer) -> None:
        task = self._last(answer)
        self._expect(task["taskId"] == self._task and task["keepAlive"] is not None, "the task")
        if task["status"] in ("submitted", "working"):
            self._again()
            self._then(self._get, 0.001)
            return
        self._expect(task["status"] == "completed", "the task's status")
        self._then(self._fetch)

    def _fetch(self) -> None:
        self._send(self._head, "tasks/result", self._about(), self._fetched)

    def _fetched(self, answer: Answer) -> None:
        result = self._last(answer)
        self._check_result(result)
        self._expect_related(result)
        self._finish()

    def _about(self) -> dict[str, Any]:
        return {"taskId": self._task, "_meta": {RELATED: {"taskId": self._task}}}

    def _expect_related(self, holder: Any) -> None:
        self._expect(holder["_meta"][RELATED]["taskId"] == self._task, "the related task")


class CycleB(Cycle):
    """2025-11-25: the call with `params.task`, answered at once, then `tasks/result`, which waits."""

    def __init__(self, session: Session, tool: str, pause: float) -> None:
        super().__init__(session.connection, tool, pause)
        self._head = session.head()
        self._task = ""

    def _create(self) -> None:
        params = {"name": self._tool, "arguments": {}, "task": {"ttl": 60_000}}
        self._send(self._head, "tools/call", params, self._called)

    def _called(self, answer: Answer) -> None:
        task = self._last(answer)["task"]
        self._first = self._marks[-1]
        self._expect(task["status"] == "working" and task["ttl"], "the task")
        self._task = task["taskId"]
        self._then(self._fetch)

    def _fetch(self) -> None:
        self._send(self._head, "tasks/result", {"taskId": self._task}, self._fetched)

    def _fetched(self, answer: Answer) -> None:
        result = self._last(answer)
        self._check_result(result)
        self._expect(result["_meta"][B_RELATED]["taskId"] == self._task, "the related task")
        self._finish()


class CycleC(Cycle):
    """SEP-2663: the call, then tasks/get until the task is completed and its result is in it."""

    def __init__(self, target: Target, tool: str, pause: float) -> None:
        super().__init__(Connection(target), tool, pause)
        self._target = target
        self._task = ""
        self._wait = 0.02

    async def open(self) -> None:
        """Connect and discover."""
        await self._connection.open()
        body = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": C_META}}
        answer = await self._connection.ask(
            stateless_head(self._target, "server/discover"), msgspec.json.encode(body)
        )
        if answer.status != 200 or b"io.modelcontextprotocol/tasks" not in answer.body:
            raise WrongAnswer(f"server/discover: {answer}")

    def _create(self) -> None:
        params = {"name": self._tool, "arguments": {}, "_meta": C_META}
        self._wait = 0.02
        self._send(
            stateless_head(self._target, "tools/call", self._tool), "tools/call", params, self._called
        )

    def _called(self, answer: Answer) -> None:
        result = self._last(answer)
        self._first = self._marks[-1]
        self._expect(result["resultType"] == "task", "the result type")
        self._task = result["taskId"]
        self._then(self._get, self._wait)

    def _get(self) -> None:
        params = {"taskId": self._task, "_meta": C_META}
        self._send(stateless_head(self._target, "tasks/get", self._task), "tasks/get", params, self._got)

    def _got(self, answer: Answer) -> None:
        task = self._last(answer)
        self._expect(task["taskId"] == self._task, "the task")
        if task["status"] == "working":
            self._again()
            self._wait *= 2
            self._then(self._get, self._wait)
            return
        self._expect(task["status"] == "completed", "the task's status")
        self._check_result(task["result"])
        self._finish()


class PollC(CycleC):
    """SEP-2663: one task, then `tasks/get` of it again and again, which has its result each time."""

    def _called(self, answer: Answer) -> None:
        self._task = self._last(answer)["taskId"]
        self._then(self._get, self._wait)

    def _finish(self) -> None:
        if self._round is None:
            return
        sent, heard = self._marks[-2:]
        self._marks = []
        if self._round.record(sent, heard, None):
            self._then(self._get)
