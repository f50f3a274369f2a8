"""Waits for one result at several replicas: a question goes to one of the streams alone (I6).

2025-11-25 transports, "Multiple Connections".
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.wire.answers import Answer
from tests.wire.raw_upstream import soon
from tests.wire.scripted_upstream import Upstream, text
from tests.wire.tasks_b_client import Json, TasksB
from tests.wire.tasks_b_questions import ADA, questions, running, waits
from tests.wire.tasks_b_world import Place, configuration, credential, served

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("says which replica does what"),
]
REPLICAS: Final = 3
LEASE: Final = 2.0
# On a machine that is busy.
SLACK: Final = 8.0


@asynccontextmanager
async def three(works: Upstream, redis_url: str, folder: Path) -> AsyncGenerator[Place]:
    async with served(configuration(works, redis_url), folder, REPLICAS) as gateways:
        yield Place(works, gateways)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(
    works: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    async with three(works, redis_url, tmp_path_factory.mktemp("three")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def client(place: Place) -> AsyncIterator[TasksB]:
    async with place.client(credential()) as one:
        yield one


def asked_on(waiter: Answer) -> list[Json]:
    """Return the questions that came on a stream."""
    return [one for one in waiter.seen if "method" in one and "id" in one]


class Waiters:
    """Waits for the result of one task; `there` is the client at each replica."""

    def __init__(self, place: Place, client: TasksB, task: str) -> None:
        self.there = [client.twin(place.url(replica=number)) for number in range(REPLICAS)]
        self.task = task
        self.open: list[Answer] = []
        self.stack = AsyncExitStack()
        self._reading: list[asyncio.Task[object]] = []

    async def add(self, *at: int) -> None:
        """Wait at replicas."""
        for number in at:
            self.read(await self.stack.enter_async_context(await waits(self.there[number], self.task)))

    def read(self, waiter: Answer) -> None:
        """Read a stream to its end, which comes as it may."""
        self.open.append(waiter)
        self._reading.append(asyncio.create_task(self._read(waiter)))

    async def _read(self, waiter: Answer) -> None:
        await asyncio.gather(waiter.response(60), return_exceptions=True)

    async def asking(self, relay: object, seconds: float = SLACK) -> Answer:
        """Return the stream on which the question of an id comes."""
        async with asyncio.timeout(seconds):
            while True:
                for waiter in self.open:
                    if any(one["id"] == relay for one in asked_on(waiter)):
                        return waiter
                await asyncio.sleep(0.01)

    def leave(self, waiter: Answer) -> None:
        """Cut one of the streams."""
        self.open.remove(waiter)
        waiter.cut()

    async def ended(self) -> None:
        """Return when every stream has had its response."""
        async with asyncio.timeout(SLACK):
            await asyncio.gather(*self._reading)
        assert all("result" in waiter.seen[-1] for waiter in self.open)


@asynccontextmanager
async def waiting(place: Place, client: TasksB, task: str, *at: int) -> AsyncGenerator[Waiters]:
    waiters = Waiters(place, client, task)
    async with waiters.stack:
        await waiters.add(*at)
        yield waiters


async def killed(place: Place, number: int) -> None:
    """Kill a replica without a word."""
    place.gateways[number].process.send(signal.SIGKILL)
    await asyncio.to_thread(place.gateways[number].process.wait_end)


@pytest.mark.parametrize("at", [(0, 1), (1, 2), (2, 1, 0), (0, 0, 1, 1, 2, 2)])
async def test_I6_of_those_who_wait_at_many_replicas_one_is_asked(
    place: Place, client: TasksB, at: tuple[int, ...]
) -> None:
    task, call = await running(place, client)
    async with waiting(place, client, task, *at) as waiters:
        for number in range(3):
            asking = [call.ask(), call.ask()]
            for step in (1, 2):
                await client.hears(lambda _, many=2 * number + step: len(questions(client)) >= many)
                await client.answer(questions(client)[2 * number + step - 1].message, ADA)
            for question in asking:
                await question.answered()
        call.finish(text("once"))
        await waiters.ended()
    asked = [one.message["id"] for one in questions(client)]
    assert len(asked) == len(set(asked)) == 6
    assert {one.stream for one in questions(client)} == {"tasks/result"}


async def test_I6_a_question_that_waits_is_asked_of_one_of_those_who_come(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    question = call.ask()
    await client.reach(task, "input_required")
    async with waiting(place, client, task) as waiters:
        async with asyncio.TaskGroup() as group:
            for number in range(REPLICAS):
                group.create_task(waiters.add(number))
        heard = await client.asked("elicitation/create")
        await client.answer(heard.message, ADA)
        await question.answered()
        call.finish(text("once"))
        await waiters.ended()
    assert len(questions(client)) == 1


async def test_I6_a_question_goes_to_another_replica_when_its_stream_is_cut(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    async with waiting(place, client, task, 1, 2, 1) as waiters:
        question = call.ask()
        relay = (await client.asked("elicitation/create")).message["id"]
        first = await waiters.asking(relay)
        # Sooner than by its lease.
        for _ in range(2):
            waiters.leave(first)
            first = await waiters.asking(relay)
        await client.answer(questions(client)[-1].message, ADA)
        await question.answered()
        call.finish(text("once"))
        await waiters.ended()
    assert len(questions(client)) == 3


async def test_I6_a_question_goes_along_with_a_stream_that_is_taken_up_elsewhere(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    async with waiting(place, client, task, 1) as waiters:
        question = call.ask()
        relay = (await client.asked("elicitation/create")).message["id"]
        first = await waiters.asking(relay)
        # The gateway does not see that its client has left the older one.
        for number in (2, 0, 0):
            more = {"Accept": "text/event-stream", "Last-Event-ID": first.last_id}
            newer = await waiters.there[number].send("GET", headers=more)
            waiters.open.remove(first)
            waiters.read(await waiters.stack.enter_async_context(newer))
            first = await waiters.asking(relay, LEASE - 0.5)
        await client.answer(questions(client)[-1].message, ADA)
        await question.answered()
        call.finish(text("once"))
        await soon(lambda: "result" in first.seen[-1])
    assert len(questions(client)) == 4


async def test_I6_what_the_get_stream_has_is_asked_of_one_who_waits_when_that_is_cut(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    listening = await client.twin(place.url(replica=2)).listen()
    question = call.ask()
    assert (await client.asked("elicitation/create")).stream == "get"
    async with waiting(place, client, task, 0, 1) as waiters:
        for one in waiters.there:
            await one.get(task)
        assert len(questions(client)) == 1
        listening.cut()
        await client.hears(lambda one: one in questions(client) and one.stream == "tasks/result")
        await client.answer(questions(client)[-1].message, ADA)
        await question.answered()
        call.finish(text("once"))
        await waiters.ended()
    assert [one.stream for one in questions(client)] == ["get", "tasks/result"]


@pytest.mark.parametrize("stream", ["get", "tasks/result"])
async def test_I6_a_question_at_a_replica_that_dies_is_asked_at_another(
    works: Upstream, redis_url: str, tmp_path: Path, stream: str
) -> None:
    async with three(works, redis_url, tmp_path) as place, place.client(credential()) as client:
        task, call = await running(place, client)
        async with waiting(place, client, task) as waiters:
            if stream == "get":
                events = {"Accept": "text/event-stream"}
                listening = await waiters.there[2].send("GET", headers=events)
                waiters.read(await waiters.stack.enter_async_context(listening))
            else:
                await waiters.add(2)
            question = call.ask()
            heard = await client.asked("elicitation/create")
            assert heard.stream == stream
            waiters.open.clear()
            await waiters.add(0, 1)
            await killed(place, 2)
            await waiters.asking(heard.message["id"], 3 * LEASE + SLACK)
            await client.answer(heard.message, ADA)
            await question.answered()
            call.finish(text("once"))
            await soon(lambda: all("result" in (one.seen or [{}])[-1] for one in waiters.open))
        assert len(questions(client)) == 2
