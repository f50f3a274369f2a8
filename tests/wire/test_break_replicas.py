"""Two replicas that must not contradict each other (I4, I6)."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.scripted_upstream import Upstream, tool
from tests.wire.seed_client import CREATED, PAUSE, WAIT, Seed, new_id
from tests.wire.seed_world import House, configuration, started

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def couple(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Serve by two replicas of the test's own, which may be frozen, with short leases."""
    place = tmp_path_factory.mktemp("couple")
    config = configuration(scripted, redis_url, lease="1s")
    house = House(scripted, [await started(config, place) for _ in range(2)], redis_url)
    yield house
    for gateway in house.gateways:
        gateway.process.send(signal.SIGCONT)
        await asyncio.to_thread(gateway.end)


def running_now(gateway: Gateway) -> float:
    """Return how many tasks a gateway says it runs."""
    found = re.findall(r"^mcp_gateway_tasks\{.*\} (\S+)$", gateway.admin("/metrics")[1], re.MULTILINE)
    return sum(float(number) for number in found)


async def until_idle(gateway: Gateway) -> None:
    """Wait until a gateway says that it runs nothing."""
    async with asyncio.timeout(WAIT):
        while True:
            if not await asyncio.to_thread(running_now, gateway):
                return
            await asyncio.sleep(PAUSE)


async def test_I6_a_question_that_was_answered_elsewhere_is_not_asked_again(pair: House) -> None:
    async with pair.client("Bearer twice") as seed:
        other = seed.twin(pair.url(replica=1))
        task = new_id()
        stream = await seed.begin(task, tool(task))
        call = await pair.upstream.called(task)
        await stream.notification(CREATED)
        stream.cut()
        elsewhere = await other.listen()
        first = call.ask()
        await other.answer(await elsewhere.asked(), {"action": "accept", "content": {"name": "one"}})
        await first.answered()
        here = await seed.listen()
        second = call.ask()
        # Were the first one still on offer, it would come before the second.
        asked = await here.asked()
        await seed.answer(asked, {"action": "accept", "content": {"name": "two"}})
        assert (await second.answered())["result"]["content"] == {"name": "two"}
        call.finish()
        await seed.reach(task, "completed")


async def test_I10_questions_answered_elsewhere_do_not_fill_the_bound(pair: House) -> None:
    async with pair.client("Bearer many") as seed:
        other = seed.twin(pair.url(replica=1))
        task = new_id()
        stream = await seed.begin(task, tool(task))
        call = await pair.upstream.called(task)
        for number in range(70):
            question = call.ask()
            await other.answer(await stream.asked(), {"action": "accept", "content": {"name": str(number)}})
            assert "result" in await question.answered()
        call.finish()
        await seed.reach(task, "completed")


async def test_I6_a_session_deleted_elsewhere_keeps_the_upstreams_session_for_its_running_task(
    pair: House,
) -> None:
    async with pair.client("Bearer farewell") as seed:
        other = seed.twin(pair.url(replica=1))
        task = new_id()
        await seed.begin(task, tool(task))
        call = await pair.upstream.called(task)
        async with await other.send("DELETE") as exchange:
            assert exchange.status < 300
        again = Seed(pair.url(), "Bearer farewell")
        await again.initialize()
        assert (await again.get(task))["result"]["status"] == "working"
        assert call.session not in pair.upstream.deleted
        assert not call.is_cancelled
        call.finish()
        await again.reach(task, "completed")
        await pair.upstream.ends(call.session)
        again.vanish()


async def test_tasks_that_end_through_another_replica_leave_the_gauge(pair: House) -> None:
    async with pair.client("Bearer gauge") as seed:
        other = seed.twin(pair.url(replica=1))
        for end in (other.cancel, None):
            task, ident = new_id(), seed.ident()
            await seed.begin(task, tool(task), ident=ident)
            call = await pair.upstream.called(task)
            await (other.delete(task) if end is None else end(ident))
            await call.cancelled()
    await until_idle(pair.gateways[0])


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_I4_a_replica_that_was_frozen_past_its_lease_tells_what_the_other_one_stored(
    couple: House,
) -> None:
    async with couple.client("Bearer frozen") as seed:
        other = seed.twin(couple.url(replica=1))
        tasks = [new_id(), new_id()]
        streams = [await seed.begin(task, tool(task), ident=n) for n, task in enumerate(tasks)]
        calls = [await couple.upstream.called(task) for task in tasks]
        for stream in streams:
            await stream.notification(CREATED)
        couple.gateways[0].process.send(signal.SIGSTOP)
        ended = [await other.reach(task, "failed") for task in tasks]
        calls[0].finish()
        couple.gateways[0].process.send(signal.SIGCONT)
        for number, stream in enumerate(streams):
            assert (await stream.response(number))["error"]["message"] == ended[number]["error"]
        await calls[1].cancelled()
        for task, record in zip(tasks, ended, strict=True):
            assert (await seed.get(task))["result"] == record
    await until_idle(couple.gateways[0])
