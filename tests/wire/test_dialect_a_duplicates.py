"""Dialect A: the client's id makes creation idempotent (SEP-1686, sections 4.2 and 7.1; I3)."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.scripted_upstream import tool
from tests.wire.seed_client import CREATED, INVALID_PARAMS, Seed, new_id, refusal
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


def taken(task: str) -> tuple[int, str]:
    return INVALID_PARAMS, f"Task ID already exists: {task}"


async def try_begin(seed: Seed, task: str, ident: int | str) -> str:
    """Create a task and tell what came first."""
    stream = await seed.begin(task, tool(task), ident=ident)
    first = await stream.next() or {}
    if first.get("method") == CREATED:
        return "created"
    assert first["id"] == ident
    assert refusal(first) == taken(task)
    return "taken"


async def test_I3_a_duplicate_is_refused_while_the_task_runs_and_after(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    for ident in (2, 1):
        assert await try_begin(seed, task, ident) == "taken"
    await seed.reach(task, "working")
    call.finish()
    await stream.response(1)
    await seed.reach(task, "completed")
    assert await try_begin(seed, task, 3) == "taken"
    assert len(house.upstream.calls[task]) == 1
    assert "result" in await seed.fetch(task)


async def test_a_duplicate_takes_nothing_over(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    assert await try_begin(seed, task, 2) == "taken"
    await seed.cancel(2)
    await seed.reach(task, "working")
    assert not call.is_cancelled
    assert await try_begin(seed, task, 1) == "taken"
    await seed.cancel(1)
    await seed.reach(task, "cancelled")
    await call.cancelled()
    assert await try_begin(seed, task, 4) == "taken"


async def test_I3_of_many_creations_at_once_one_wins(house: House, seed: Seed) -> None:
    for _ in range(5):
        task = new_id()
        clients = [seed.twin(house.url(replica=number % 2)) for number in range(8)]
        said = await asyncio.gather(
            *(try_begin(client, task, f"{task}-{number}") for number, client in enumerate(clients))
        )
        assert sorted(said) == ["created"] + ["taken"] * 7
        (await house.upstream.called(task)).finish()
        await seed.reach(task, "completed")
        assert len(house.upstream.calls[task]) == 1


async def test_I3_sessions_of_one_principal_share_ids_on_both_replicas(house: House) -> None:
    async with house.client("Bearer dup") as one, house.client("Bearer dup", replica=1) as two:
        task = new_id()
        said = await asyncio.gather(try_begin(one, task, 1), try_begin(two, task, 1))
        assert sorted(said) == ["created", "taken"]
        (await house.upstream.called(task)).finish()
        await two.reach(task, "completed")
        assert len(house.upstream.calls[task]) == 1


async def test_other_scopes_may_use_the_same_id(house: House) -> None:
    async with house.client() as one, house.client() as two:
        task, first, second = "the-same", new_id(), new_id()
        await one.begin(task, tool(first))
        await two.begin(task, tool(second))
        (await house.upstream.called(first)).finish()
        call = await house.upstream.called(second)
        await one.reach(task, "completed")
        await two.reach(task, "working")
        call.finish()
        await two.reach(task, "completed")


async def test_the_id_of_a_deleted_task_is_free(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, tool(task))
    (await house.upstream.called(task)).finish()
    await seed.reach(task, "completed")
    await seed.delete(task)
    assert await try_begin(seed, task, 2) == "created"
    (await house.upstream.called(task, 2)).finish()
    await seed.reach(task, "completed")


async def test_the_same_id_on_another_method_is_a_duplicate_too(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, tool(task))
    await house.upstream.called(task)
    stream = await seed.begin(task, {"uri": f"test://x?key=r{task}"}, method="resources/read", ident=2)
    assert refusal(await stream.response(2)) == taken(task)
    assert not house.upstream.calls[f"r{task}"]
