"""Dialect B: who sees a task (2025-11-25 tasks, "Task Isolation and Access Control"; I7)."""

from __future__ import annotations

import pytest

from tests.wire.scripted_upstream import Call, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import INVALID_PARAMS, Json, TasksB, accept
from tests.wire.tasks_b_world import Place, credential, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ABOUT = ("tasks/get", "tasks/result", "tasks/cancel")


async def running(place: Place, client: TasksB) -> tuple[str, Call]:
    """Return a task that runs, and its call."""
    key = new_id()
    task = await client.start("work", {"key": key})
    return task, await place.upstream.called(key)


async def assert_foreign(client: TasksB, task: str) -> None:
    """A task of somebody else is answered exactly like one that never was."""
    never = "".join(
        "0123456789abcdef"[(int(c, 16) + 1) % 16] if c in "0123456789abcdef" else c for c in task
    )
    for method in ABOUT:
        answers: list[Json] = []
        for wanted in (task, never):
            async with await client.post(client.request(method, {"taskId": wanted}, "same")) as answer:
                answers.append({"status": answer.status, "body": await answer.response()})
        assert answers[0] == answers[1], method
        assert refusal(answers[0]["body"])[0] == INVALID_PARAMS
    assert task not in str(await client.ask("tasks/list"))


@pytest.mark.parametrize("thief", [None, "Bearer b-thief"])
async def test_I7_a_task_is_foreign_to_everybody_else(place: Place, thief: str | None) -> None:
    async with place.client(credential("owner")) as one, place.client(thief, replica=1) as two:
        ended, call = await running(place, one)
        call.finish(text("secret"))
        await one.reach(ended, "completed")
        task, call = await running(place, one)
        await assert_foreign(two, ended)
        await assert_foreign(two, task)
        await one.listen()
        question = call.ask()
        asked = (await one.asked("elicitation/create")).message
        await two.answer(asked, {"action": "cancel"})
        assert (await one.get(task))["result"]["status"] == "input_required"
        assert not question.is_answered
        assert not call.is_cancelled
        await one.answer(asked, accept(name="Ada"))
        assert (await question.answered())["result"]["action"] == "accept"
        call.finish(text("secret"))
        assert without_meta((await one.result(task))["result"]) == text("secret")


async def test_I7_a_task_of_nobody_is_foreign_to_somebody_known(place: Place) -> None:
    async with place.client() as one, place.client(credential()) as two:
        task, call = await running(place, one)
        await assert_foreign(two, task)
        call.finish()
        await one.reach(task, "completed")
        await assert_foreign(two, task)


@pytest.mark.parametrize("replica", [0, 1])
async def test_without_credentials_a_task_belongs_to_whoever_knows_its_id(
    place: Place, replica: int
) -> None:
    async with place.client() as one, place.client(replica=replica) as two:
        task, call = await running(place, one)
        assert (await two.get(task))["result"]["status"] == "working"
        call.finish(text("for who knows"))
        assert without_meta((await two.result(task))["result"]) == text("for who knows")
        gone, call = await running(place, one)
        assert (await two.cancel(gone))["result"]["status"] == "cancelled"
        await call.cancelled()


async def test_without_credentials_the_half_of_an_id_is_nothing(place: Place) -> None:
    async with place.client() as one:
        task, call = await running(place, one)
        for wrong in (task[:-1], task[1:], task.upper(), f"{task} ", f"0{task}", "0" * 32 + task[32:]):
            if wrong != task:
                answer = await one.ask("tasks/get", {"taskId": wrong})
                assert refusal(answer)[0] == INVALID_PARAMS
        call.finish()


async def test_a_task_outlives_the_session_of_a_known_asker(place: Place) -> None:
    name = credential("mine")
    async with place.client(name) as one:
        task, call = await running(place, one)
    async with place.client(name, replica=1) as two:
        assert (await two.get(task))["result"]["status"] == "working"
        call.finish(text("mine"))
        assert without_meta((await two.result(task))["result"]) == text("mine")


@pytest.mark.parametrize("other", [None, "Bearer b-another"])
async def test_I7_a_session_does_not_carry_its_principal_to_another_credential(
    place: Place, other: str | None
) -> None:
    async with place.client(credential("carried")) as one:
        task, call = await running(place, one)
        call.finish(text("secret"))
        await one.reach(task, "completed")
        one.authorization = other
        for method in ABOUT:
            assert refusal(await one.ask(method, {"taskId": task}))[0] == INVALID_PARAMS


async def test_a_shared_upstream_shows_tasks_to_all(place: Place) -> None:
    async with place.client(None, "shared") as one, place.client(credential(), "shared", 1) as two:
        task, call = await running(place, one)
        assert task in await two.list()
        call.finish(text("for all"))
        assert without_meta((await two.result(task))["result"]) == text("for all")


async def test_a_task_belongs_to_its_upstream(place: Place) -> None:
    name = credential()
    async with place.client(name) as one, place.client(name, "lenient") as two:
        task, call = await running(place, one)
        await assert_foreign(two, task)
        call.finish()
