"""Dialect A: cancellation by the id of the original request (SEP-1686, section 4.8)."""

from __future__ import annotations

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import CREATED, Ident, Seed, new_id, refusal, too_early
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("ident", [0, 1, "one", "0", 2**53 - 1, -1])
async def test_a_cancelled_task_stops_upstream_and_stays_cancelled(
    house: House, seed: Seed, ident: Ident
) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=ident)
    call = await house.upstream.called(task)
    await seed.reach(task, "working")
    await seed.cancel(ident)
    await seed.reach(task, "cancelled")
    await call.cancelled()
    assert [m.get("method") for m in await stream.rest() if "result" in m or "method" in m] == [CREATED]
    call.finish()
    got = (await seed.get(task))["result"]
    assert got["status"] == "cancelled"
    assert got["keepAlive"] == 30_000
    assert refusal(await seed.fetch(task)) == too_early("cancelled")


async def test_the_id_1_is_not_the_id_of_text_1(house: House, seed: Seed) -> None:
    number, words = new_id(), new_id()
    await seed.begin(number, tool(number), ident=1)
    await seed.begin(words, tool(words), ident="1")
    calls = [await house.upstream.called(task) for task in (number, words)]
    await seed.cancel("1")
    await seed.reach(words, "cancelled")
    await calls[1].cancelled()
    await seed.reach(number, "working")
    assert not calls[0].is_cancelled
    calls[0].finish()
    await seed.reach(number, "completed")


async def test_a_late_cancel_is_ignored(house: House, seed: Seed) -> None:
    task, failed = new_id(), new_id()
    await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    call.finish(text("kept"))
    await seed.reach(task, "completed")
    await seed.begin(failed, tool(failed), ident=2)
    (await house.upstream.called(failed)).refuse(-1, "no")
    await seed.reach(failed, "failed")
    await seed.cancel(1)
    await seed.cancel(2)
    await seed.cancel(2)
    assert (await seed.get(task))["result"]["status"] == "completed"
    assert (await seed.fetch(task))["result"]["content"] == text("kept")["content"]
    assert (await seed.get(failed))["result"]["status"] == "failed"
    assert not call.is_cancelled


async def test_a_cancel_of_an_unknown_request_is_silent(seed: Seed) -> None:
    for ident in (12345, "nothing", 0, ""):
        await seed.cancel(ident)


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": None}, {"requestId": {}}, {"requestId": 1.5}, []]
)
async def test_a_cancel_that_names_no_request_harms_nothing(
    house: House, seed: Seed, params: object
) -> None:
    task = new_id()
    await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    exchange = await seed.post(message if params is None else {**message, "params": params})
    assert exchange.status < 500
    await seed.reach(task, "working")
    call.finish()
    await seed.reach(task, "completed")


async def test_a_cancel_reaches_a_task_whose_client_came_back(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident="gone")
    call = await house.upstream.called(task)
    stream.cut()
    await seed.twin().cancel("gone")
    await seed.reach(task, "cancelled")
    await call.cancelled()


async def test_a_cancel_sent_to_another_replica_reaches_the_upstream(pair: House) -> None:
    async with pair.client("Bearer cancel-elsewhere") as seed:
        other = seed.twin(pair.url(replica=1))
        for ident in (0, "text"):
            task = new_id()
            stream = await seed.begin(task, tool(task), ident=ident)
            call = await pair.upstream.called(task)
            await other.cancel(ident)
            await seed.reach(task, "cancelled")
            await call.cancelled()
            await stream.rest()
            call.finish()


async def test_requests_of_two_sessions_may_have_the_same_id(house: House) -> None:
    async with house.client("Bearer both") as one, house.client("Bearer both") as two:
        first, second = new_id(), new_id()
        await one.begin(first, tool(first), ident=1)
        await two.begin(second, tool(second), ident=1)
        calls = [await house.upstream.called(task) for task in (first, second)]
        await one.cancel(1)
        await one.reach(first, "cancelled")
        await calls[0].cancelled()
        assert (await two.reach(second, "working"))["taskId"] == second
        assert not calls[1].is_cancelled
        calls[1].finish()
        await two.reach(second, "completed")


async def test_a_request_id_means_nothing_in_another_session(house: House) -> None:
    async with house.client("Bearer other") as one, house.client("Bearer other") as two:
        task = new_id()
        await one.begin(task, tool(task), ident=77)
        call = await house.upstream.called(task)
        await two.cancel(77)
        await one.reach(task, "working")
        assert not call.is_cancelled
        call.finish()
        await one.reach(task, "completed")


async def test_a_cancel_while_input_is_required_drops_the_pending_answer(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=3)
    call = await house.upstream.called(task)
    question = call.ask()
    asked = await stream.asked()
    await seed.reach(task, "input_required")
    await seed.cancel(3)
    await seed.reach(task, "cancelled")
    await call.cancelled()
    async with await seed.post(
        {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
    ) as exchange:
        assert exchange.status < 500
    assert refusal(await seed.fetch(task)) == too_early("cancelled")
    assert not question.is_answered


async def test_a_cancel_right_behind_the_request_ends_in_cancelled(house: House, seed: Seed) -> None:
    for number in range(10):
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=f"quick-{number}")
        await seed.cancel(f"quick-{number}")
        await seed.reach(task, "cancelled")
        for call in house.upstream.calls[task]:
            await call.cancelled()
        await stream.rest()
