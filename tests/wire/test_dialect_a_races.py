"""Dialect A: many things at once, and the invariants that must survive them (I3, I4, I5)."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import CREATED, TERMINAL, Exchange, Json, Seed, new_id, related_to
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def settle(seed: Seed, task: str) -> str:
    """Wait for a terminal status and see that it stays."""
    status = (await seed.reach(task, *TERMINAL))["status"]
    for _ in range(3):
        assert (await seed.get(task))["result"]["status"] == status
    return status


async def test_I4_a_cancel_that_races_the_answer_leaves_one_outcome(house: House, seed: Seed) -> None:
    for number in range(80):
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=number)
        call = await house.upstream.called(task)
        other = seed.twin(house.url(replica=number % 2))
        call.finish(text("in time"))
        await other.cancel(number)
        status = await settle(seed, task)
        assert status in ("completed", "cancelled")
        answers = [m for m in await stream.rest() if m.get("id") == number and "result" in m]
        fetched = await other.fetch(task)
        assert ("result" in fetched) == (status == "completed")
        if status == "completed":
            assert len(answers) == 1
        else:
            assert not answers


async def test_I4_a_delete_that_races_the_answer_leaves_nothing(house: House, seed: Seed) -> None:
    for number in range(20):
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=number)
        call = await house.upstream.called(task)
        other = seed.twin(house.url(replica=number % 2))
        call.finish()
        assert "result" in await other.delete(task)
        assert "error" in await seed.get(task)
        await stream.rest()
        assert "error" in await other.get(task)
        assert task not in await other.tasks()


async def test_I4_an_answer_that_races_a_cancel_does_not_revive_the_task(house: House, seed: Seed) -> None:
    for number in range(15):
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=number)
        call = await house.upstream.called(task)
        call.ask()
        asked = await stream.asked()
        answer: Json = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}
        exchange, _ = await asyncio.gather(seed.post(answer), seed.cancel(number))
        assert exchange.status < 500
        assert await settle(seed, task) == "cancelled"
        await stream.rest()


async def test_created_comes_first_even_where_the_upstream_answers_at_once(
    house: House, seed: Seed
) -> None:
    async def one(number: int) -> Exchange:
        task = new_id()
        async with await seed.begin(task, {"name": "echo", "arguments": {}}, ident=number) as stream:
            messages = await stream.rest()
            assert [m.get("method", m.get("id")) for m in messages] == [CREATED, number]
            assert [related_to(m) for m in messages] == [task, task]
            assert (await seed.get(task))["result"]["status"] == "completed"
            return stream

    for start in range(0, 60, 20):
        await asyncio.gather(*(one(number) for number in range(start, start + 20)))


async def test_many_clients_that_come_and_go_at_random_lose_nothing(house: House) -> None:
    dice = random.Random(1686)

    async def one(number: int) -> None:
        async with house.client(f"Bearer random-{number % 4}", replica=number % 2) as seed:
            task, ident = new_id(), dice.choice([number, f"{number}", 0])
            stream = await seed.begin(task, tool(task), ident=ident)
            call = await house.upstream.called(task)
            client = seed
            wanted = dice.choice(["completed", "failed", "cancelled"])
            for step in range(dice.randrange(4)):
                match dice.randrange(4):
                    case 0:
                        stream.cut()
                    case 1:
                        call.tell("notifications/message", {"level": "info", "data": step})
                    case 2:
                        client = seed.twin(house.url(replica=dice.randrange(2)))
                    case _:
                        await client.reach(task, "submitted", "working")
            if wanted == "completed":
                call.finish(text(task))
            elif wanted == "failed":
                call.refuse(-1, task)
            else:
                await client.cancel(ident)
            assert (await client.reach(task, *TERMINAL))["status"] == wanted
            answer = await client.fetch(task)
            if wanted == "completed":
                assert answer["result"]["content"] == text(task)["content"]
            assert len(house.upstream.calls[task]) == 1
            assert "result" in await client.delete(task)

    for start in range(0, 60, 15):
        await asyncio.gather(*(one(number) for number in range(start, start + 15)))


async def test_a_newer_side_stream_takes_over_from_the_older(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    stream.cut()
    old = await seed.listen()
    new = await seed.listen()
    question = call.ask()
    asked = await new.asked()
    await seed.answer(asked, {"action": "decline"})
    await question.answered()
    call.finish()
    await seed.reach(task, "completed")
    old.cut()
