"""A gateway under more than it should have to bear: memory, descriptors, odd bodies (I8, I10, I12)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.gateways import Gateway, StartGateway
from tests.wire.raw_upstream import (
    EVENTS,
    RawUpstream,
    Request,
    configured,
    http_request,
    nothing,
    raw_upstream,
    soon,
)
from tests.wire.seed_client import TASK, WAIT, Json, Seed, new_id
from tests.wire.seed_world import started

pytestmark = pytest.mark.asyncio(loop_scope="session")

MEGABYTE: Final = 1024 * 1024
TASKS: Final[Json] = {"keep_alive": {"default": "1s"}, "timeout": "1m"}
LIMITS: Final[Json] = {"rates": {"create": "off", "get": "off"}, "stored_tasks_per_scope": 10_000}
WORDS: Final[list[Any]] = [
    *(None, True, 0, -1, 1.5, 1e308, 10**40, "", "a", "\ud800", "\x00", "x" * 3_000, [], {}, [[]]),
    *({"taskId": "t"}, {TASK: {"taskId": "t"}}, {TASK: 5}, "2026-07-28"),
]
NAMES: Final = [
    "taskId",
    "cursor",
    "_meta",
    "name",
    "arguments",
    "requestId",
    "progressToken",
    TASK,
    "keepAlive",
]
METHODS: Final[list[Any]] = [
    *("tools/call", "tasks/get", "tasks/result", "tasks/list", "tasks/delete", "ping", "tools/list"),
    *("notifications/cancelled", "notifications/progress", "resources/read", "", None, 5),
]


async def behave(request: Request) -> bool:
    """Answer with a large result, or keep a stream open."""
    if request.verb == "GET":
        request.write(EVENTS)
        await request.gone()
    if request.tool == "large":
        request.result({"content": [{"type": "text", "text": "x" * MEGABYTE}]})
        return True
    return False


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RawUpstream, Gateway]]:
    """Serve the upstream on the embedded store."""
    async with raw_upstream(behave) as upstream:
        config = configured(upstream.url, TASKS, limits=LIMITS)
        gateway = await started(config, tmp_path_factory.mktemp("bounds"))
        yield upstream, gateway
        await asyncio.to_thread(gateway.end)


def resident(gateway: Gateway) -> int:
    """Return the memory of a gateway in bytes."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def descriptors(gateway: Gateway) -> int:
    """Return how many descriptors a gateway has open."""
    return len(os.listdir(f"/proc/{gateway.process.pid}/fd"))  # noqa: PTH208 - a count, no paths


@pytest.mark.one_replica("looks at the gateway's process")
async def test_I8_the_embedded_store_gives_the_room_of_expired_results_back(
    served: tuple[RawUpstream, Gateway],
) -> None:
    _, gateway = served
    async with Seed(gateway.url()) as seed:
        before = resident(gateway)
        for number in range(60):
            async with await seed.begin(
                new_id(), {"name": "large", "arguments": {}}, ident=number
            ) as stream:
                await stream.response(number)
        assert resident(gateway) > before + 30 * MEGABYTE
        await soon(lambda: resident(gateway) <= before + 30 * MEGABYTE)


@pytest.mark.one_replica("looks at the gateway's process")
async def test_I10_streams_and_sessions_that_are_gone_leave_no_descriptor(
    served: tuple[RawUpstream, Gateway],
) -> None:
    upstream, gateway = served
    await upstream.until(lambda server: server.open == 0)
    before = descriptors(gateway)
    clients = [Seed(gateway.url()) for _ in range(60)]
    for client in clients:
        await client.initialize()
        await client.listen()
    assert descriptors(gateway) >= before + 120
    for client in clients:
        client.vanish()
    await soon(lambda: descriptors(gateway) <= before + 5)


async def test_I12_no_body_makes_the_gateway_fail(served: tuple[RawUpstream, Gateway]) -> None:
    chance = random.Random(20251125)

    def value(depth: int = 0) -> Any:
        if depth < 2 and chance.random() < 0.4:
            return {chance.choice(NAMES): value(depth + 1) for _ in range(chance.randint(0, 3))}
        return chance.choice(WORDS)

    def body() -> bytes:
        message: Json = {"jsonrpc": chance.choice(["2.0", "2.0", "2.0", "1.0", 2])}
        idents: list[Any] = [1, "a", 0, 1.5, None, "mtg-ask.x.1", "mtg-ask.\ud800.1", True, [], 10**30]
        for name, share, choices in (("id", 0.8, idents), ("method", 0.9, METHODS)):
            if chance.random() < share:
                message[name] = chance.choice(choices)
        for name, share in (("params", 0.8), ("result", 0.15), ("error", 0.1)):
            if chance.random() < share:
                message[name] = value()
        data = bytearray(json.dumps(message).encode())
        for _ in range(chance.choice([0, 0, 0, 0, 1, 4])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randrange(len(data))] if chance.random() < 0.05 else data)

    async with Seed(served[1].url()) as seed:
        reader, writer = await asyncio.open_connection("127.0.0.1", served[1].port)
        for _ in range(800):
            headers = {
                "Accept": "application/json",
                "Mcp-Session-Id": seed.session or "",
                "Authorization": "x",
            }
            sent = body()
            writer.write(http_request("POST", "/mcp", headers, sent))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT)
            length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
            answer = await reader.readexactly(int(length[1])) if length else b""
            assert b"Internal error" not in answer, (sent, answer)
            assert int(head.split(b" ")[1]) < 500, (sent, head)
        writer.transport.abort()
        await asyncio.sleep(0)


@pytest.mark.one_replica("looks at the gateway's process")
async def test_I10_a_gateway_without_free_descriptors_works_again_when_there_are(
    gateway: StartGateway,
) -> None:
    async with raw_upstream(nothing) as upstream:
        one = await asyncio.to_thread(gateway, configured(upstream.url, TASKS))
        room = descriptors(one) + 20
        resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, (room, room))
        lines = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(40)]
        await soon(lambda: descriptors(one) >= room)
        for _, writer in lines:
            writer.transport.abort()
        await soon(lambda: descriptors(one) <= room - 15)
        async with Seed(one.url()) as seed:
            assert "result" in await seed.ask("ping")
