"""A client on a pipe: everything in order, nothing without bound (I10, field case 46)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from gateway.app import House
from gateway.config.model import Config
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.session.pipe import Outlet, Pipe
from gateway.upstream.inbox import Loose
from tests.wire.raw_upstream import soon
from tests.wire.seed_client import CREATED, RELATED, WAIT, about, augmented

Json = dict[str, Any]


class ScriptedLink:
    """A `Link` whose two ends a test holds."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.alive = True
        self.tag = "pipe"
        self.lost = False
        self._loose = Loose("pipe", 1_000, 1_000_000)
        self._changed = asyncio.Condition()
        self._answers: dict[bytes, asyncio.Queue[bytes]] = {}

    async def _keep(self, message: bytes) -> None:
        if self.lost:
            raise UpstreamLost("the process has ended")
        async with self._changed:
            self.sent.append(message)
            self._changed.notify_all()

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        ident = json.dumps(json.loads(message)["id"]).encode()
        queue = self._answers.setdefault(ident, asyncio.Queue())
        await self._keep(message)
        while True:
            word = await queue.get()
            yield word
            if b'"method"' not in word:
                return

    async def send(self, message: bytes, headers: Headers) -> None:
        await self._keep(message)

    async def listen(self) -> AsyncGenerator[bytes, None]:
        reader = self._loose.enter()
        while (message := await self._loose.take(reader)) is not None:
            yield message

    async def close(self) -> None:
        self._loose.end()

    def say(self, message: Json) -> None:
        """Say something that belongs to no call of the gateway's own."""
        self._loose.put(json.dumps(message).encode())

    def answer(self, call: Json, result: Json) -> None:
        """Answer a call that the gateway made."""
        message = {"jsonrpc": "2.0", "id": call["id"], "result": result}
        self._answers[json.dumps(call["id"]).encode()].put_nowait(json.dumps(message).encode())

    async def heard(self, number: int) -> Json:
        """Wait for the `number`-th message."""
        async with asyncio.timeout(WAIT), self._changed:
            await self._changed.wait_for(lambda: len(self.sent) >= number)
        return json.loads(self.sent[number - 1])


class World:
    """A pipe of a house, with what it wrote."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.link = ScriptedLink()
        self.gate = asyncio.Event()
        self.gate.set()
        self.written: list[Json] = []
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self.pipe = Pipe(
            house.router,
            house.served["main"],
            self.link,
            house.principals,
            Outlet(self._write, lambda _method, _outcome: None),
        )

    def start(self) -> None:
        """Let what comes from the upstream and from tasks through."""
        self._tasks = [
            asyncio.create_task(self.pipe.forward_upstream()),
            asyncio.create_task(self.pipe.forward_asks(self.house.service)),
        ]

    async def close(self) -> None:
        self.gate.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.pipe.close()

    async def say(self, message: Json) -> None:
        """Send a line as the client."""
        await self.pipe.take(json.dumps(message).encode())

    async def wrote(self, number: int) -> list[Json]:
        """Wait until so many messages were written."""
        async with asyncio.timeout(WAIT), self._changed:
            await self._changed.wait_for(lambda: len(self.written) >= number)
        return self.written

    async def _write(self, message: bytes) -> None:
        await self.gate.wait()
        async with self._changed:
            self.written.append(json.loads(message))
            self._changed.notify_all()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    config = Config.model_validate({"upstreams": {"main": {"command": ["true"]}}, "admin": False})
    house = House(config)
    await house.start()
    one = World(house)
    one.start()
    yield one
    await one.close()
    await house.stop()


def call(ident: int, task: str | None = None) -> Json:
    """Return a call, as a task where it has an id."""
    params: Json = {"name": "work", "arguments": {}}
    if task is not None:
        return augmented(task, params, "tools/call", ident)
    return {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}


def look(ident: int, method: str = "tasks/get", task: str = "t") -> Json:
    """Return a request about a task."""
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": about(task)}


async def test_plain_messages_go_both_ways_as_they_came_and_in_order(world: World) -> None:
    for number in range(20):
        await world.say(call(number))
        world.link.say({"jsonrpc": "2.0", "id": number, "result": {"n": number}})
    assert [json.loads(sent)["id"] for sent in world.link.sent] == list(range(20))
    assert [message["id"] for message in await world.wrote(20)] == list(range(20))


async def test_initialize_gains_the_capability_and_nothing_else_does(world: World) -> None:
    await world.say({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {}})
    result: Json = {"protocolVersion": "2025-06-18", "capabilities": {}}
    for ident in ("other", "i", "i"):
        world.link.say({"jsonrpc": "2.0", "id": ident, "result": result})
    first, second, third = await world.wrote(3)
    assert "tasks" not in first["result"]["capabilities"]
    assert second["result"]["capabilities"]["tasks"] == {"tools": {"call": True}}
    assert "tasks" not in third["result"]["capabilities"]


async def test_a_task_on_a_pipe_from_its_creation_to_its_result(world: World) -> None:
    await world.say(call(1, "t"))
    sent = await world.link.heard(1)
    world.link.answer(sent, {"content": []})
    created, final = await world.wrote(2)
    assert created["method"] == CREATED
    assert final == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [], "_meta": {RELATED: {"taskId": "t"}}},
    }
    await world.say(look(2, "tasks/result"))
    assert (await world.wrote(3))[2]["result"]["content"] == []


async def test_46_a_cancel_passes_calls_and_look_ups_that_wait(world: World) -> None:
    await world.say(call(1, "t"))
    sent = await world.link.heard(1)
    await world.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    told = await world.link.heard(2)
    assert told["params"]["requestId"] == sent["id"]
    await world.say(look(2))
    assert (await world.wrote(2))[1]["result"]["status"] == "cancelled"


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b"5",
        b"\xff",
        b'{"jsonrpc":"1.0","id":1}',
    ],
)
async def test_I12_a_line_that_is_no_message_is_answered_and_the_next_is_taken(
    world: World, line: bytes
) -> None:
    await world.pipe.take(line)
    assert (await world.wrote(1))[0]["error"]["code"] in (-32700, -32600)
    await world.say(call(1))
    assert json.loads(world.link.sent[0])["id"] == 1


async def test_a_server_that_has_gone_is_told_to_requests_only(world: World) -> None:
    world.link.lost = True
    await world.say(call(1))
    assert "the process has ended" in (await world.wrote(1))[0]["error"]["message"]
    await world.say({"jsonrpc": "2.0", "method": "notifications/x"})
    await world.say({"jsonrpc": "2.0", "id": 5, "result": {}})
    await world.say(call(2, "t"))
    last = (await world.wrote(3))[-1]
    assert (last["id"], last["error"]["code"]) == (2, -32603)


async def test_I10_look_ups_of_a_client_that_does_not_read_are_bounded(world: World) -> None:
    world.gate.clear()
    taken = 0

    async def flood() -> None:
        nonlocal taken
        for number in range(10_000):
            await world.say(look(number))
            taken += 1

    flooding = asyncio.create_task(flood())
    for _ in range(2_000):
        await asyncio.sleep(0)
    assert taken < 1_000
    world.gate.set()
    await soon(lambda: taken >= 2_000)
    flooding.cancel()
    await asyncio.wait([flooding])


async def test_a_question_of_a_task_and_its_answer(world: World) -> None:
    await world.say(call(1, "t"))
    sent = await world.link.heard(1)
    ident = json.dumps(sent["id"]).encode()
    question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "?"}}
    world.link._answers[ident].put_nowait(json.dumps(question).encode())  # pyright: ignore[reportPrivateUsage] - the test's own link
    asked = (await world.wrote(2))[1]
    assert asked["params"]["_meta"] == {RELATED: {"taskId": "t"}}
    await world.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})
    assert (await world.link.heard(2))["id"] == "q"
    world.link.answer(sent, {"content": []})
    assert (await world.wrote(3))[2]["id"] == 1
