"""Dialect A: who sees a task (SEP-1686, section 8.1; I7)."""

from __future__ import annotations

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import NOT_FOUND, Json, Seed, new_id, refusal
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ABOUT = ("tasks/get", "tasks/result", "tasks/delete")


async def assert_foreign(client: Seed, task: str) -> None:
    """A task of somebody else is answered exactly like one that never was."""
    for method in ABOUT:
        answers: list[Json] = []
        for wanted in (task, "z" * len(task)):
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": wanted}}
            async with await client.post(message) as exchange:
                answers.append({"status": exchange.status, "body": await exchange.json()})
        assert answers[0] == answers[1], method
        assert refusal(answers[0]["body"])[0] == NOT_FOUND[0]
    assert task not in await client.tasks()


@pytest.mark.parametrize(
    ("owner", "thief"),
    [
        (None, None),
        (None, "Bearer scope-thief"),
        ("Bearer scope-owner", None),
        ("Bearer scope-owner", "Bearer scope-thief"),
        ("Basic b3duZXI6eA==", "Basic dGhpZWY6eA=="),
    ],
)
async def test_I7_a_task_is_foreign_to_everybody_else(
    house: House, owner: str | None, thief: str | None
) -> None:
    async with house.client(owner) as one, house.client(thief, replica=1) as two:
        running, ended = new_id(), new_id()
        stream = await one.begin(running, tool(running), ident=1)
        await one.begin(ended, tool(ended), ident=2)
        (await house.upstream.called(ended)).finish(text("secret"))
        call = await house.upstream.called(running)
        await one.reach(ended, "completed")
        await assert_foreign(two, running)
        await assert_foreign(two, ended)
        await two.cancel(1)
        question = call.ask()
        asked = await stream.asked()
        exchange = await two.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "cancel"}})
        assert exchange.status < 500
        await one.reach(running, "input_required")
        assert not call.is_cancelled
        assert not question.is_answered
        await one.answer(asked, {"action": "decline"})
        await question.answered()
        call.finish()
        await one.reach(running, "completed")
        assert set(await one.tasks()) >= {running, ended}
        await one.delete(running)
        await one.delete(ended)


async def test_a_principal_finds_its_tasks_in_every_session(house: House) -> None:
    async with house.client("Bearer mine") as one:
        task = new_id()
        await one.begin(task, tool(task))
        call = await house.upstream.called(task)
    async with house.client("Bearer mine", replica=1) as two:
        await two.reach(task, "working")
        assert task in await two.tasks()
        call.finish(text("mine"))
        await two.reach(task, "completed")
        assert (await two.fetch(task))["result"]["content"] == text("mine")["content"]
        assert "result" in await two.delete(task)
    async with house.client("Bearer mine") as three:
        assert refusal(await three.get(task)) == NOT_FOUND


@pytest.mark.parametrize("other", [None, "Bearer another"])
async def test_a_session_does_not_carry_its_principal_to_another_credential(
    house: House, other: str | None
) -> None:
    async with house.client("Bearer carried") as one:
        task = new_id()
        await one.begin(task, tool(task))
        (await house.upstream.called(task)).finish(text("secret"))
        await one.reach(task, "completed")
        thief = one.twin()
        thief.authorization = other
        exchange = await thief.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tasks/result", "params": {"taskId": task}}
        )
        body = await exchange.body()
        assert exchange.status < 500
        assert b"error" in body
        assert b"secret" not in body


async def test_a_task_without_principal_is_gone_with_its_session(house: House) -> None:
    async with house.client() as one:
        task = new_id()
        await one.begin(task, tool(task))
        call = await house.upstream.called(task)
        await one.send("DELETE")
    async with house.client() as two:
        await assert_foreign(two, task)
        call.finish()
        await assert_foreign(two, task)


async def test_a_shared_upstream_shows_tasks_to_all(house: House) -> None:
    async with house.client(None, "shared") as one, house.client("Bearer x", "shared", 1) as two:
        task = new_id()
        await one.begin(task, tool(task), ident=1)
        call = await house.upstream.called(task)
        await two.reach(task, "working")
        assert task in await two.tasks()
        call.finish(text("for all"))
        await two.reach(task, "completed")
        assert (await two.fetch(task))["result"]["content"] == text("for all")["content"]
        assert "result" in await two.delete(task)
        assert refusal(await one.get(task)) == NOT_FOUND


async def test_a_task_belongs_to_its_upstream(house: House) -> None:
    async with house.client("Bearer same") as one, house.client("Bearer same", "shared") as two:
        task = new_id()
        await one.begin(task, tool(task))
        (await house.upstream.called(task)).finish()
        await one.reach(task, "completed")
        await assert_foreign(two, task)
