"""Dialect B: replicas, stores, sessions and upstreams that are lost (I5, I9, I11; design section 5)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests import redis_servers
from tests.balancers import CHOICE
from tests.gateways import Gateway
from tests.redis_servers import RedisServer
from tests.wire.answers import Answer
from tests.wire.scripted_upstream import Call, Upstream, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import INVALID_PARAMS, PAUSE, Json, TasksB, accept
from tests.wire.tasks_b_world import Place, configuration, credential, refusal, served, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
INTERNAL_ERROR = -32603
LEASE_SECONDS = 1.0
PATIENCE = 10.0


async def running(place: Place, client: TasksB) -> tuple[str, Call]:
    """Return a task that runs, and its call."""
    key = new_id()
    task = await client.start("work", {"key": key})
    return task, await place.upstream.called(key)


async def waits(client: TasksB, task: str) -> Answer:
    """Open a `tasks/result` that waits, and return it when its stream is open.

    After an outage each connection to the store comes back by itself: until then it is refused.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await client.post(client.request("tasks/result", {"taskId": task}))
            if answer.is_stream:
                return answer
            async with answer:
                assert refusal(await answer.response())[0] == INTERNAL_ERROR
            await asyncio.sleep(PAUSE)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def survivor(
    works: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Gateway, Json, Path]]:
    """Serve by a replica that stays; return it, its configuration and its folder."""
    folder = tmp_path_factory.mktemp("survivor")
    config = configuration(works, redis_url, lease=f"{LEASE_SECONDS:g}s")
    async with served(config, folder) as gateways:
        yield gateways[0], config, folder


@asynccontextmanager
async def doomed(
    works: Upstream, survivor: tuple[Gateway, Json, Path], **more: Any
) -> AsyncGenerator[Place]:
    """Serve by two replicas, of which the test may end the first."""
    stays, config, folder = survivor
    async with served({**config, **more}, folder) as gateways:
        yield Place(works, [gateways[0], stays])


async def killed(gateway: Gateway) -> None:
    """Kill a gateway without a word."""
    gateway.process.send(signal.SIGKILL)
    await asyncio.to_thread(gateway.process.wait_end)


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_I5_what_a_dead_replica_ran_fails_and_its_waiters_hear(
    works: Upstream, survivor: tuple[Gateway, Json, Path]
) -> None:
    async with doomed(works, survivor) as place, place.client(credential()) as client:
        there = client.twin(place.url(replica=1))
        task, call = await running(place, client)
        asking, other = await running(place, client)
        kept, done = await running(place, client)
        done.finish(text("kept"))
        await client.reach(kept, "completed")
        other.ask()
        await client.reach(asking, "input_required")
        async with await waits(there, task) as first, await waits(there, asking) as second:
            await killed(place.gateways[0])
            for waiter in (first, second):
                _, words = refusal(await waiter.response(PATIENCE))
                assert "utcome unknown" in words
        for one in (task, asking):
            got = (await there.get(one))["result"]
            assert got["status"] == "failed"
            assert "utcome unknown" in got["statusMessage"]
            assert refusal(await there.cancel(one))[0] == INVALID_PARAMS
        # The session is as good as before on the replica that is left.
        assert without_meta((await there.result(kept))["result"]) == text("kept")
        assert set(await there.list()) == {task, asking, kept}
        for one in (call, other):
            assert len(place.upstream.calls[one.message["params"]["arguments"]["key"]]) == 1
            one.end()


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_a_waiter_whose_replica_dies_waits_on_at_another(
    works: Upstream, survivor: tuple[Gateway, Json, Path]
) -> None:
    async with doomed(works, survivor) as place, place.client(credential(), replica=1) as client:
        there = client.twin(place.url(replica=0))
        task, call = await running(place, client)
        async with await waits(there, task) as waiter:
            await killed(place.gateways[0])
            assert not await ended_by_itself(waiter)
        async with await waits(client, task) as again:
            question = call.ask()
            asked = await again.until(lambda message: "method" in message)
            await client.answer(asked, accept(name="Ada"))
            await question.answered()
            call.finish(text("as if nothing had been"))
            assert without_meta((await again.response())["result"]) == text("as if nothing had been")


async def ended_by_itself(answer: Answer) -> bool:
    """Tell whether a stream ends with a response."""
    try:
        return any("method" not in message for message in await answer.rest())
    except OSError:
        return False
    except Exception as fault:  # noqa: BLE001 aiohttp has a tree of its own for a cut connection
        assert "ayload" in str(fault) or "onnection" in str(fault), fault
        return False


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_a_planned_stop_lets_tasks_end_and_waiters_hear(
    works: Upstream, survivor: tuple[Gateway, Json, Path]
) -> None:
    stopping = doomed(works, survivor, drain="5s")
    async with stopping as place, place.client(credential()) as client:
        there = client.twin(place.url(replica=1))
        task, call = await running(place, client)
        async with await waits(there, task) as waiter:
            place.gateways[0].process.send(signal.SIGTERM)
            assert (await there.get(task))["result"]["status"] == "working"
            call.finish(text("drained"))
            assert without_meta((await waiter.response())["result"]) == text("drained")
        assert await asyncio.to_thread(place.gateways[0].process.wait_end) == 0


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_I5_a_stop_that_cannot_wait_says_what_became_of_the_task(
    works: Upstream, survivor: tuple[Gateway, Json, Path]
) -> None:
    stopping = doomed(works, survivor, drain="200ms")
    async with stopping as place, place.client(credential()) as client:
        there = client.twin(place.url(replica=1))
        task, call = await running(place, client)
        async with await waits(there, task) as waiter:
            place.gateways[0].process.send(signal.SIGTERM)
            assert len(refusal(await waiter.response(PATIENCE))[1]) > 10
        assert (await there.get(task))["result"]["status"] == "failed"
        assert await asyncio.to_thread(place.gateways[0].process.wait_end) == 0
        call.end()


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_a_stopping_gateway_takes_no_task(
    works: Upstream, survivor: tuple[Gateway, Json, Path]
) -> None:
    stopping = doomed(works, survivor, drain="5s")
    async with stopping as place, place.client(credential()) as client:
        _, call = await running(place, client)
        place.gateways[0].process.send(signal.SIGTERM)
        await asyncio.to_thread(stops_being_ready, place.gateways[0])
        key = new_id()
        wish: Json = {"name": "work", "arguments": {"key": key}, "task": {}}
        async with await client.post(client.request("tools/call", wish)) as answer:
            assert "stopping" in refusal(await answer.response())[1]
        assert not place.upstream.calls[key]
        call.finish()
        assert await asyncio.to_thread(place.gateways[0].process.wait_end) == 0


def stops_being_ready(gateway: Gateway) -> None:
    """Wait until a gateway says that it stops."""
    while gateway.admin("/readyz")[0] == 200:
        pass


@pytest.mark.parametrize("replica", [0, 1])
async def test_I11_a_session_that_its_client_ends_does_not_end_its_tasks(
    place: Place, replica: int
) -> None:
    name = credential("ends")
    async with place.client(name) as client:
        task, call = await running(place, client)
        there = client.twin(place.url(replica=replica))
        async with await there.send("DELETE") as answer:
            assert answer.status in (200, 202, 204)
        async with await client.post(client.request("tasks/get", {"taskId": task})) as answer:
            assert answer.status == 404
        async with place.client(name, replica=1) as again:
            assert (await again.get(task))["result"]["status"] == "working"
            assert not call.is_cancelled
            assert call.session not in place.upstream.deleted
            call.finish(text("kept"))
            assert without_meta((await again.result(task))["result"]) == text("kept")
            # The upstream's own session ends with its last task.
            await place.upstream.ends(call.session)


@pytest.mark.parametrize("how", ["end", "cut", "html", "half"])
async def test_an_upstream_that_is_lost_in_mid_call_fails_the_task_in_words(
    place: Place, client: TasksB, how: str
) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        if how == "html":
            call.reply(500, "text/html", b"<h1>oh no</h1>")
        elif how == "half":
            call.reply(200, "application/json", b'{"jsonrpc": "2.0"', 500)
        else:
            call.tell("notifications/message", {"level": "info", "data": "so far"})
            call.cut() if how == "cut" else call.end()
        words = refusal(await waiter.response())[1]
        assert words
        assert "Traceback" not in words
    got = await client.reach(task, "failed")
    assert got["statusMessage"]
    assert len(place.upstream.calls[call.message["params"]["arguments"]["key"]]) == 1


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shaky(
    works: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Place, RedisServer]]:
    """Serve by two replicas with a Redis of the test's own, which keeps what it has over a restart."""
    found = redis_servers.find_servers()
    if not found:
        pytest.skip("no Redis server here")
    binary = found.get("valkey") or list(found.values())[-1]
    redis = redis_servers.start(binary, "--appendonly", "yes", "--appendfsync", "always")
    config = configuration(works, redis.url)
    config["store"]["timeout"] = "300ms"
    config["lease"] = "30s"
    try:
        async with served(config, tmp_path_factory.mktemp("shaky"), 2) as gateways:
            yield Place(works, gateways), redis
    finally:
        redis.close()


async def back(client: TasksB) -> None:
    """Wait until the gateway has its store again, and each replica that may be behind its port."""
    async with asyncio.timeout(PATIENCE):
        good = 0
        while good < CHOICE.doors:
            good = 0 if refusal(await client.get("nothing"))[0] == INTERNAL_ERROR else good + 1
            await asyncio.sleep(0 if good else PAUSE)


async def fetched(client: TasksB, task: str) -> Json:
    """Ask for a result until the store answers: each of its connections comes back by itself."""
    async with asyncio.timeout(PATIENCE):
        answer = await client.result(task)
        while answer.get("error", {}).get("code") == INTERNAL_ERROR:
            await asyncio.sleep(PAUSE)
            answer = await client.result(task)
    return answer


async def test_I9_without_the_store_no_task_is_made_and_plain_calls_work(
    shaky: tuple[Place, RedisServer],
) -> None:
    place, redis = shaky
    async with place.client(credential()) as client:
        task, call = await running(place, client)
        redis.hang()
        assert "result" in await client.ask("ping")
        keys = [new_id() for _ in range(2)]
        # A client that asked for a task takes nothing else for an answer.
        wish: Json = {"name": "work", "arguments": {"key": keys[0]}, "task": {}}
        answer = await client.ask("tools/call", wish)
        assert "store unavailable" in refusal(answer)[1]
        assert answer["error"]["data"]["retryAfter"] > 0
        async with asyncio.TaskGroup() as group:
            plain: Json = {"name": "work", "arguments": {"key": keys[1]}}
            asking = group.create_task(client.ask("tools/call", plain))
            (await place.upstream.called(keys[1])).finish(text("plain"))
        assert asking.result()["result"] == text("plain")
        for method in ("tasks/get", "tasks/result"):
            code, words = refusal(await client.ask(method, {"taskId": task}))
            assert code == INTERNAL_ERROR
            assert "store unavailable" in words
        call.finish(text("meanwhile"))
        redis.wake()
        await back(client)
        assert without_meta((await fetched(client, task))["result"]) == text("meanwhile")
        assert not place.upstream.calls[keys[0]]


async def test_I9_who_waits_goes_on_waiting_while_redis_starts_again(
    shaky: tuple[Place, RedisServer],
) -> None:
    place, redis = shaky
    async with place.client(credential()) as client:
        there = client.twin(place.url(replica=1))
        task, call = await running(place, client)
        async with await waits(client, task) as here, await waits(there, task) as elsewhere:
            await asyncio.to_thread(redis.stop)
            assert "error" in await client.get(task)
            await asyncio.to_thread(redis.start)
            await back(client)
            await back(there)
            assert (await there.get(task))["result"]["status"] == "working"
            call.finish(text("after all"))
            for waiter in (here, elsewhere):
                assert without_meta((await waiter.response(PATIENCE))["result"]) == text("after all")


async def test_I9_an_end_while_redis_is_away_reaches_who_waits(shaky: tuple[Place, RedisServer]) -> None:
    place, redis = shaky
    async with place.client(credential()) as client:
        there = client.twin(place.url(replica=1))
        task, call = await running(place, client)
        async with await waits(client, task) as here, await waits(there, task) as elsewhere:
            await asyncio.to_thread(redis.stop)
            call.finish(text("meanwhile"))
            await asyncio.to_thread(redis.start)
            for waiter in (here, elsewhere):
                assert without_meta((await waiter.response(PATIENCE))["result"]) == text("meanwhile")


async def test_who_waits_for_what_redis_forgot_hears_that_it_is_gone(
    works: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = redis_servers.find_servers()
    if not found:
        pytest.skip("no Redis server here")
    redis = redis_servers.start(found.get("valkey") or list(found.values())[-1])
    try:
        config = configuration(works, redis.url)
        config["store"]["timeout"] = "300ms"
        async with served(config, tmp_path_factory.mktemp("forgets")) as gateways:
            place = Place(works, gateways)
            async with place.client(credential()) as client:
                task, call = await running(place, client)
                async with await waits(client, task) as waiter:
                    await asyncio.to_thread(redis.stop)
                    await asyncio.to_thread(redis.start)
                    await back(client)
                    assert refusal(await waiter.response(PATIENCE))[0] == INVALID_PARAMS
                assert refusal(await client.get(task))[0] == INVALID_PARAMS
                await call.cancelled()
    finally:
        redis.close()
