"""A replica that is stopped: first not ready, then without new tasks, then closed (design section 5)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.answers import Json
from tests.wire.scripted_upstream import Upstream, text
from tests.wire.seed_client import new_id
from tests.wire.stateless_client import Stateless
from tests.wire.tasks_b_client import TasksB
from tests.wire.tasks_b_questions import waits
from tests.wire.tasks_b_world import configuration, credential, refusal, served, without_meta
from tests.wire.test_resumed_waits import primed, take_up

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

DELAY = 1.5


@pytest.fixture
def config(works: Upstream, redis_url: str) -> Json:
    return {**configuration(works, redis_url), "drain": "10s", "drain_delay": f"{int(DELAY * 1000)}ms"}


@pytest_asyncio.fixture(loop_scope="session")
async def pair(config: Json, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Gateway]]:
    """Serve by two replicas, of which a test stops the first."""
    async with served(config, tmp_path_factory.mktemp("leaving"), 2) as gateways:
        yield gateways


def client_of(gateway: Gateway) -> TasksB:
    return TasksB(gateway.url("main"), authorization=credential())


async def not_ready(gateway: Gateway) -> None:
    """Wait until readiness says that the replica leaves."""
    async with asyncio.timeout(5):
        while True:
            if (await asyncio.to_thread(gateway.admin, "/readyz"))[0] != 200:
                break
            await asyncio.sleep(0.01)
    status, body = await asyncio.to_thread(gateway.admin, "/readyz")
    assert status == 503
    assert json.loads(body)["draining"] is True


async def closed(gateway: Gateway) -> None:
    """Wait until nobody listens any more."""
    async with asyncio.timeout(5):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.01)


async def test_a_leaving_replica_goes_on_until_balancers_have_noticed(
    pair: list[Gateway], works: Upstream
) -> None:
    """Whoever still comes is served like before, tasks among it, but on connections that end."""
    leaving, other = pair
    async with client_of(leaving) as client:
        leaving.process.send(signal.SIGTERM)
        await not_ready(leaving)
        answer = await client.post(client.request("ping"))
        assert answer.status == 200
        assert answer.headers["Connection"] == "close"
        await answer.response()
        key = new_id()
        task = await client.start("work", {"key": key})
        call = await works.called(key)
        await closed(leaving)
        call.finish(text("late"))
        assert await asyncio.to_thread(leaving.process.wait_end) == 0
        there = client.twin(other.url("main"))
        assert without_meta((await there.result(task))["result"]) == text("late")


async def test_I1_a_plain_call_that_is_on_its_way_is_answered(pair: list[Gateway], works: Upstream) -> None:
    leaving = pair[0]
    async with client_of(leaving) as client:
        key = new_id()
        answering = asyncio.ensure_future(
            client.ask("tools/call", {"name": "never_task", "arguments": {"key": key}})
        )
        call = await works.called(key)
        leaving.process.send(signal.SIGTERM)
        await closed(leaving)
        call.finish(text("plain"))
        assert (await answering)["result"] == text("plain")
        assert await asyncio.to_thread(leaving.process.wait_end) == 0


async def test_I6_streams_end_cleanly_and_go_on_at_another_replica(
    pair: list[Gateway], works: Upstream
) -> None:
    leaving, other = pair
    async with client_of(leaving) as client:
        there = client.twin(other.url("main"))
        key = new_id()
        task = await there.start("work", {"key": key})
        call = await works.called(key)
        listener = await client.send("GET", headers={"Accept": "text/event-stream"})
        waiter = await waits(client, task)
        ident = await primed(waiter)
        leaving.process.send(signal.SIGTERM)
        # Both end as HTTP asks: a cut connection would raise here.
        assert await listener.rest() == []
        assert await waiter.rest() == []
        async with await take_up(there, ident) as again:
            call.finish(text("elsewhere"))
            assert without_meta((await again.response())["result"]) == text("elsewhere")
        assert await asyncio.to_thread(leaving.process.wait_end) == 0


async def test_an_interrupt_does_not_wait_for_balancers(pair: list[Gateway]) -> None:
    leaving = pair[0]
    leaving.process.send(signal.SIGINT)
    assert await asyncio.to_thread(leaving.process.wait_end, DELAY) == 0
    assert "leaving" not in leaving.process.text


async def test_an_open_subscription_does_not_keep_a_replica_from_ending(pair: list[Gateway]) -> None:
    leaving = pair[0]
    async with (
        Stateless(leaving.url("main"), authorization=credential()) as client,
        client.listen({"toolsListChanged": True}) as subscription,
    ):
        leaving.process.send(signal.SIGINT)
        assert await asyncio.to_thread(leaving.process.wait_end, 5) == 0
        assert await subscription.next() is None
    assert "cut off" not in leaving.process.text


async def test_a_second_signal_ends_each_wait(pair: list[Gateway], works: Upstream) -> None:
    leaving = pair[0]
    async with client_of(leaving) as client:
        key = new_id()
        await client.start("work", {"key": key})
        await works.called(key)
        leaving.process.send(signal.SIGTERM)
        await asyncio.to_thread(leaving.process.wait_line, "leaving: load balancers")
        leaving.process.send(signal.SIGTERM)
        await asyncio.to_thread(leaving.process.wait_line, "draining: 1 tasks run")
        leaving.process.send(signal.SIGTERM)
        assert await asyncio.to_thread(leaving.process.wait_end, DELAY * 3) == 0


async def test_I12_a_task_that_comes_after_all_is_refused_with_words(
    pair: list[Gateway], works: Upstream
) -> None:
    """On a connection that was busy when the doors closed: 503, a balancer may send it elsewhere."""
    leaving = pair[0]
    async with client_of(leaving) as client:
        key = new_id()
        slow = asyncio.ensure_future(
            client.ask("tools/call", {"name": "never_task", "arguments": {"key": key}})
        )
        call = await works.called(key)
        body = json.dumps(
            client.request("tools/call", {"name": "work", "arguments": {}, "task": {}})
        ).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", leaving.port)
        head = (
            f"POST /main/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMcp-Session-Id: {client.session}\r\n"
            f"MCP-Protocol-Version: 2025-11-25\r\nAuthorization: {client.authorization}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        # The head is in before the doors close, the body comes after.
        writer.write(head.encode())
        await writer.drain()
        listener = await client.send("GET", headers={"Accept": "text/event-stream"})
        leaving.process.send(signal.SIGTERM)
        # Streams end when nothing new is taken any more.
        await listener.rest()
        writer.write(body)
        await writer.drain()
        async with asyncio.timeout(5):
            raw = await reader.read()
        writer.close()
        assert b" 503 " in raw.split(b"\r\n", 1)[0]
        assert "stopping" in refusal(json.loads(raw.partition(b"\r\n\r\n")[2]))[1]
        call.finish()
        await slow
