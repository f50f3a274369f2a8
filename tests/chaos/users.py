"""What a user of the chaos run does: calls, one after the other, with dice of its own.

A user is one client of one scope at one upstream; dialects fill in the wire. It behaves as real ones do: it
polls, hangs up, comes back, asks twice, changes its mind, reads slowly, forgets things, and now and then
asks for what is another's.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tests.chaos.history import Asked, Op, Terms
from tests.chaos.stories import TERMINAL
from tests.chaos.wire import Reply, Subject, Wire, payload
from tests.chaos.work import UNASKED
from tests.wire.answers import Json

Headers: TypeAlias = dict[str, str]
# Tools by how often they are called, and the milliseconds that a call takes.
TOOLS: Final = {"work": 10, "retry_work": 3, "ask_work": 3, "fail_work": 2, "plain_work": 4, "plain_ask": 1}
TRIES: Final = 8
PAUSE: Final = 0.2


@dataclass
class Shared:
    """What all users of a run share: the tickets that are left, and the ids that were announced."""

    tickets: int
    terms: Terms
    keep: float
    work_ms: tuple[int, int]
    announced: list[Subject] = field(default_factory=list[Subject])
    broken: bool = True
    """Whether faults are still to come."""

    def take(self) -> bool:
        """Take a ticket for one more call; there are some as long as there are faults."""
        self.tickets -= 1
        return self.tickets >= 0 or self.broken


@dataclass
class Call(Subject):
    """A call of this user, and what the user knows of it."""

    arguments: Json = field(default_factory=dict[str, Any])
    made: float = field(default_factory=time.time)
    request: int = 0
    """The id of the request that made it a task."""
    questions: set[str] = field(default_factory=set[str])
    """What it has been asked so far."""
    status: str = ""
    found: bool = False
    over: bool = False
    followed: bool = False
    """Whether a stream of the call itself is read."""

    @property
    def word(self) -> str:
        """The answer to its question."""
        return f"word-{self.nonce}"


class User(ABC):
    """A client of one dialect."""

    dialect = ""

    def __init__(self, name: str, scope: str, upstream: str, shared: Shared, wire: Wire, seed: int) -> None:
        self.name = name
        self.scope = scope
        self.upstream = upstream
        self.shared = shared
        self.wire = wire
        self.dice = random.Random(f"user {seed} {name}")
        self.mine: list[Call] = []
        self._count = 0
        self._group = asyncio.TaskGroup()
        self._behind: set[asyncio.Task[None]] = set()

    async def live(self) -> None:
        """Make calls until there are no tickets."""
        async with self._group:
            while self.shared.take():
                call = self._new_call()
                if call.tool.startswith("plain_"):
                    await self.plain(call)
                else:
                    await self._task(call)
                if self.dice.random() < 0.05:
                    await self._pry()
                if self.dice.random() < 0.05:
                    await self.list()
            await asyncio.wait_for(self._settled(), 30)

    async def look_again(self, bases: list[str]) -> None:
        """Ask each replica itself for the last tasks, which are still kept."""
        for call in self.mine[-10:]:
            kept = time.time() < call.made + self.shared.keep - 5
            if call.found and not call.over and kept:
                for number, base in enumerate(bases):
                    await self.get(call, base=base, replica=f"replica{number}")

    @abstractmethod
    async def create(self, call: Call) -> None:
        """Make a task of a call, as often as a client of the dialect may try; sets `found` and `over`."""

    @abstractmethod
    async def message(self, method: str, params: Json, base: str = "") -> Reply:
        """Send a request of this dialect."""

    @abstractmethod
    async def plain(self, call: Call) -> None:
        """Call a tool without a task, once."""

    @abstractmethod
    def told(self, call: Call, result: Json) -> None:
        """Take what else a dialect says in the answer to `tasks/get`."""

    async def fetch(self, call: Call) -> None:
        """Fetch the result of a task that has ended."""
        sent = time.time()
        reply = await self.message("tasks/result", {"taskId": call.task_id})
        if reply.result is not None:
            self.got(call, "result", sent, reply.result, http=reply.http)
        else:
            self.wire.failed(call, "result", sent, reply, **self._expected(call))

    async def forget(self, call: Call) -> None:
        """Delete the task, in the dialects that can; in others let it be."""
        call.over = call.over or self.dialect == "a"

    async def list(self) -> None:
        """List the tasks, in the dialects and places that can."""
        return

    async def get(self, call: Call, base: str = "", replica: str = "") -> Asked:
        """Ask for the status, here or at one replica."""
        sent = time.time()
        reply = await self.message("tasks/get", {"taskId": call.task_id}, base)
        result = reply.result
        if result is None or "status" not in result:
            return self.wire.failed(call, "get", sent, reply, replica=replica)
        call.status, call.found = str(result["status"]), True
        words = str(result.get("statusMessage") or result.get("error") or "")[:200]
        kept = self._kept(result)
        one = self.wire.record(
            call,
            "get",
            sent,
            "status",
            status=call.status,
            http=reply.http,
            words=words,
            replica=replica,
            **kept,
        )
        self.told(call, result)
        return one

    async def cancel(self, call: Call) -> None:
        """Cancel the task."""
        sent = time.time()
        reply = await self.message("tasks/cancel", {"taskId": call.task_id})
        if reply.result is not None:
            self.wire.record(call, "cancel", sent, "ok", http=reply.http)
        else:
            self.wire.failed(call, "cancel", sent, reply)

    def got(self, call: Call, op: Op, sent: float, result: Json, **more: Any) -> None:
        """Record a payload."""
        nonce, scope, word = payload(result)
        if "ask" in call.tool and word not in (call.word, UNASKED) and nonce == call.nonce:
            nonce = f"the word {word}"
        words = word if word == UNASKED else ""
        got = {"got_nonce": nonce or "nothing", "got_scope": scope, "words": words}
        self.wire.record(call, op, sent, "result", **got, **more)

    def behind(self, work: Any) -> None:
        """Let something go on behind the calls."""
        task = self._group.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def _settled(self) -> None:
        behind = list(self._behind)
        for task in behind:
            task.cancel()
        await asyncio.gather(*behind, return_exceptions=True)

    async def _task(self, call: Call) -> None:
        self.mine.append(call)
        await self.create(call)
        if call.over or not call.task_id:
            return
        self.shared.announced.append(call)
        mood = self.dice.random()
        if mood < 0.08:
            await asyncio.sleep(self.dice.uniform(0, 0.3))
            await self.cancel(call)
        await self._poll(call)
        if call.over:
            return
        if call.status == "completed" or (call.status == "failed" and self.dialect == "b"):
            await self.fetch(call)
            if mood > 0.9:
                await self.fetch(call)
        if mood > 0.75:
            await self.forget(call)

    async def _poll(self, call: Call) -> None:
        terms = self.shared.terms
        end = time.monotonic() + 2 * (terms.timeout + terms.lease + terms.slack)
        pause = self.dice.uniform(0.15, 0.4)
        while time.monotonic() < end:
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.5)
            one = await self.get(call)
            if one.status in TERMINAL or one.status == "not_found":
                call.over = one.status == "not_found"
                return

    async def _pry(self) -> None:
        """Ask for a task of another scope."""
        others = [
            one
            for one in self.shared.announced[-50:]
            if one.scope != self.scope and one.upstream == self.upstream and one.dialect == self.dialect
        ]
        if others:
            other = self.dice.choice(others)
            method = self.dice.choice(("tasks/get", "tasks/get", "tasks/result", "tasks/cancel"))
            if self.dialect != "b" and method != "tasks/get":
                method = "tasks/get"
            probe = Subject(
                self.name,
                self.scope,
                self.dialect,
                self.upstream,
                "",
                f"{self.name}-pries-{self._count}",
                other.task_id,
            )
            sent = time.time()
            reply = await self.message(method, {"taskId": other.task_id})
            if reply.result is not None:
                self.wire.record(probe, "foreign", sent, "status", http=reply.http)
            else:
                self.wire.failed(probe, "foreign", sent, reply)

    def _new_call(self) -> Call:
        self._count += 1
        tools = dict(TOOLS)
        if self.upstream == "child":
            # A question of a stdio server does not say which call it belongs to.
            del tools["ask_work"], tools["plain_ask"]
        elif self.dialect != "c":
            # Only there a plain call that asks goes on in another request, on any replica.
            del tools["plain_ask"]
        tool = self.dice.choices(list(tools), list(tools.values()))[0]
        nonce = f"{self.name}-{self._count}"
        arguments: Json = {
            "nonce": nonce,
            "scope": self.scope,
            "ms": self.dice.randint(*self.shared.work_ms),
        }
        if self.dice.random() < 0.03:
            arguments["bytes"] = 200_000
        if self.dice.random() < 0.03:
            # Longer than a lease.
            arguments["ms"] = int(self.shared.terms.timeout * 300)
        return Call(self.name, self.scope, self.dialect, self.upstream, tool, nonce, arguments=arguments)

    def _expected(self, call: Call) -> dict[str, str]:
        return {"status": "failed"} if call.status == "failed" else {}

    def _kept(self, task: Json) -> dict[str, Any]:
        """Return the retention that a task's fields announce."""
        for name in ("keepAlive", "ttl", "ttlMs"):
            if isinstance(task.get(name), int):
                return {"kept": task[name] / 1000, "kept_from_end": name == "keepAlive"}
        return {}
