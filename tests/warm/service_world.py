"""Task services as replicas on one store, in front of an upstream whose every word a test decides."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from gateway.hooks.port import TaskEnded
from gateway.observe.logs import TaskLog
from gateway.observe.metrics import Metrics
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.service.feed import Feed, News
from gateway.service.leases import Leases
from gateway.service.order import Order, ServiceLimits
from gateway.service.running import Running
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.store.bus import RedisBus
from gateway.store.clock import StoreClock
from gateway.store.port import Bounds
from gateway.store.redis import open_store
from gateway.tasks.model import NewTask, Scope, Task, TaskKey
from gateway.tasks.policy import Policy

Json = dict[str, Any]

WAIT: Final = 10.0
ALICE: Final = Scope("reports", "p-alice")
BOB: Final = Scope("reports", "p-bob")
ROOMY: Final = Bounds(1_000, 1_000)


class HandClock:
    """A clock that stands still until it is moved; the wall clock is the store's, and real."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self._changed = asyncio.Event()

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    async def sleep(self, seconds: float) -> None:
        bell = asyncio.Event()
        self._sleepers.append((self.seconds + seconds, bell))
        self._changed.set()
        await bell.wait()

    def move(self, seconds: float) -> None:
        """Let time pass; who has slept long enough wakes."""
        self.seconds += seconds
        due = [pair for pair in self._sleepers if pair[0] <= self.seconds]
        self._sleepers = [pair for pair in self._sleepers if pair[0] > self.seconds]
        for _, bell in due:
            bell.set()

    async def slept_on(self) -> None:
        """Wait until somebody sleeps."""
        async with asyncio.timeout(WAIT):
            while not self._sleepers:
                self._changed.clear()
                await self._changed.wait()


class ScriptedChannel:
    """A `Channel`: it says what the test says, and keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[Json] = []
        self.closed = asyncio.Event()
        self.request: Json = {}
        self.left = asyncio.Event()
        self.next: ScriptedChannel | None = None
        self.calls = 0
        self._words: asyncio.Queue[bytes | UpstreamLost] = asyncio.Queue()
        self._changed = asyncio.Condition()

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        async with self._changed:
            self.calls += 1
            self.request = json.loads(message)
            self._changed.notify_all()
        try:
            while True:
                word = await self._words.get()
                if isinstance(word, UpstreamLost):
                    raise word
                yield word
        finally:
            self.left.set()

    async def send(self, message: bytes, headers: Headers) -> None:
        async with self._changed:
            self.sent.append(json.loads(message))
            self._changed.notify_all()

    async def close(self) -> None:
        self.closed.set()

    async def reach(self) -> ScriptedChannel:
        """Return the channel of a second attempt."""
        return self.next or self

    def say(self, message: Json) -> None:
        """Send a message to the gateway."""
        self._words.put_nowait(json.dumps(message).encode())

    def ask(self, ident: str = "q") -> None:
        """Send a request of the server."""
        self.say(
            {"jsonrpc": "2.0", "id": ident, "method": "elicitation/create", "params": {"message": "?"}}
        )

    def log(self, data: str) -> None:
        """Send a log message."""
        self.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": data}})

    def finish(self, result: Json | None = None) -> None:
        """Answer the request."""
        self.say({"jsonrpc": "2.0", "id": self.request["id"], "result": result or {"content": []}})

    def lose(self, words: str = "the line is dead") -> None:
        """End the call as a lost connection does."""
        self._words.put_nowait(UpstreamLost(words))

    async def called(self, times: int = 1) -> None:
        """Wait until the request has come."""
        async with asyncio.timeout(WAIT), self._changed:
            await self._changed.wait_for(lambda: self.calls >= times)

    async def heard(self, number: int = 1) -> Json:
        """Wait for a message that was sent beside the call."""
        async with asyncio.timeout(WAIT), self._changed:
            await self._changed.wait_for(lambda: len(self.sent) >= number)
        return self.sent[number - 1]


class Replica:
    """One task service with a store link, a bus and leases of its own."""

    def __init__(self, url: str, name: str, **limits: Any) -> None:
        lease_ms = limits.pop("lease_ms", 30_000)
        timeout = limits.pop("timeout", 5.0)
        self.url = url
        self.name = name
        self.clock = HandClock()
        self.operations: list[str] = []
        self.store = open_store(url, timeout=timeout, observe=self._note)
        self.bus = RedisBus(self.store.link, name)
        self.metrics = Metrics("0", ["reports"], [], [])
        self.ended: list[TaskEnded] = []
        self.witness = Witness(self.metrics, TaskLog(), self.ended.append)
        given: Json = {
            "bounds": ROOMY,
            "result_bytes": 100_000,
            "stream_queue_bytes": 10_000,
            "pending_requests": 4,
            "lease_ms": lease_ms,
        } | limits
        self.service = TaskService(
            name, self.store, self.bus, self.witness, self.clock, ServiceLimits(**given)
        )
        self.leases = Leases(
            self.service, self.store, self.witness, StoreClock(self.store.link, self.clock), lease_ms
        )
        self._obeying: asyncio.Task[None] | None = None

    def _note(self, operation: str, seconds: float, answered: bool) -> None:
        del seconds, answered
        self.operations.append(operation)

    async def open(self) -> None:
        """Begin to listen to other replicas; return when they are heard."""
        self._obeying = asyncio.create_task(self.service.obey())
        async with asyncio.timeout(WAIT), self.bus.watch(TaskKey(ALICE, "nothing")) as bell:
            await bell.wait()

    async def die(self) -> None:
        """Vanish as a killed process does: nothing is stored, nothing is told."""
        name = "calls: "
        works = [task for task in asyncio.all_tasks() if task.get_name().startswith(name)]
        own = {f"{name}{running.task.key.digest}" for running in self.service.running}
        for work in works:
            if work.get_name() in own:
                work.cancel()
        await asyncio.wait([work for work in works if work.get_name() in own])
        await self.close()

    async def look_after(self) -> None:
        """Look after leases once, half a second after the last time."""
        self.clock.move(0.5)
        await self.leases.tick()

    async def close(self) -> None:
        """Stop as the app does; time passes quickly meanwhile."""
        hurrying = asyncio.create_task(self._hurry())
        await self.service.close()
        hurrying.cancel()
        await asyncio.wait([hurrying])
        if self._obeying is not None:
            self._obeying.cancel()
            await asyncio.wait([self._obeying])
        await self.bus.close()
        await self.store.close()

    async def _hurry(self) -> None:
        while True:
            self.clock.move(20)
            await asyncio.sleep(0.01)

    async def begin(
        self,
        task_id: str,
        channel: ScriptedChannel,
        *,
        scope: Scope = ALICE,
        session: str = "s1",
        request_id: bytes = b"1",
        policy: Policy | None = None,
        only_final: bool = False,
    ) -> Running:
        """Begin a task that must be taken."""
        begun = await self.service.begin(
            order(task_id, channel, scope, session, request_id, policy or Policy()), only_final=only_final
        )
        assert isinstance(begun, Running), begun
        return begun

    async def record(self, task_id: str, scope: Scope = ALICE) -> Task:
        """Return the stored record of a task that must be there."""
        found = await self.store.get(TaskKey(scope, task_id))
        assert found is not None, task_id
        return found

    async def reach(self, task_id: str, *statuses: str) -> Task:
        """Wait until a task has one of the statuses."""
        key = TaskKey(ALICE, task_id)
        async with asyncio.timeout(WAIT), self.bus.watch(key) as bell:
            while (found := await self.record(task_id)).status not in statuses:
                await bell.wait()
        return found

    def gauge(self) -> dict[str, float]:
        """Return how many tasks the gauge says there are, by status, without zeros."""
        found: dict[str, float] = {}
        for family in self.metrics.registry.collect():
            for sample in family.samples:
                if sample.name == "mcp_gateway_tasks" and sample.value:
                    found[sample.labels["status"]] = sample.value
        return found


def order(
    task_id: str, channel: ScriptedChannel, scope: Scope, session: str, request_id: bytes, policy: Policy
) -> Order:
    """Return what the session room hands over for a task."""
    new = NewTask(
        key=TaskKey(scope, task_id),
        dialect="a",
        method="tools/call",
        tool="work",
        pattern=policy.pattern,
        session=session,
        request_id=request_id,
        keep_alive=policy.keep_alive_default,
        poll_interval=policy.poll_interval,
        timeout=policy.timeout,
        first_status="submitted",
    )
    message = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"work"}}' % request_id
    return Order(new=new, policy=policy, message=message, channel=channel, reach=channel.reach, headers=[])


def memory() -> str:
    """Return the URL of an embedded store that nobody else has."""
    return f"memory://{uuid.uuid4().hex}"


async def read(feed: Feed) -> list[News]:
    """Read a stream to its end."""
    found: list[News] = []
    async with asyncio.timeout(WAIT):
        while (item := await feed.get()) is not None:
            assert isinstance(item, News)
            found.append(item)
    return found


async def next_news(feed: Feed) -> News:
    """Return the next news of a stream that must come."""
    async with asyncio.timeout(WAIT):
        item = await feed.get()
    assert isinstance(item, News), item
    return item


async def question_on(feed: Feed) -> Json:
    """Read up to a request of the server and return it."""
    while True:
        news = await next_news(feed)
        if news.kind == "message" and "id" in (message := json.loads(news.message)):
            return message


async def followed(replica: Replica, task_id: str, after: str | None = None) -> list[News]:
    """Follow a task to its end and return its news."""
    async with (
        asyncio.timeout(WAIT),
        aclosing(replica.service.readers.follow(TaskKey(ALICE, task_id), after)) as news,
    ):
        return [item async for item in news if item is not None]
