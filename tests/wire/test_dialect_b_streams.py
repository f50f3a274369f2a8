"""Dialect B: on which of the streams a task's questions are asked (2025-11-25 transports, "Multiple")."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.scripted_upstream import text
from tests.wire.tasks_b_client import TasksB, always, related_to
from tests.wire.tasks_b_questions import (
    ADA,
    asks,
    question_on,
    questions,
    running,
    waits,
)
from tests.wire.tasks_b_world import Place, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_question_is_asked_on_the_get_stream_where_nobody_waits(
    place: Place, client: TasksB, replica: int
) -> None:
    listener = client.twin(place.url(replica=replica))
    await listener.listen()
    task, call = await running(place, client)
    question = call.ask()
    heard = await client.asked("elicitation/create")
    assert heard.stream == "get"
    assert related_to(heard.message) == task
    await client.answer(heard.message, ADA)
    await question.answered()
    await client.reach(task, "working")
    call.finish()
    await client.reach(task, "completed")
    assert len(questions(client)) == 1


async def test_a_question_waits_for_a_get_stream(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    asked = [call.ask(), call.ask()]
    await client.reach(task, "input_required")
    client.responder = always(ADA)
    await client.listen()
    for question in asked:
        await question.answered()
    call.finish()
    await client.reach(task, "completed")
    assert [one.stream for one in questions(client)] == ["get", "get"]


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_question_that_the_get_stream_took_is_not_asked_again(
    place: Place, client: TasksB, replica: int
) -> None:
    """2025-11-25 transports, "Multiple Connections": a message goes to one of the streams."""
    there = client.twin(place.url(replica=replica))
    await client.listen()
    task, call = await running(place, client)
    question = call.ask()
    heard = await client.asked("elicitation/create")
    assert heard.stream == "get"
    await client.reach(task, "input_required")
    # Whoever sees that status is told to ask for the result, while the user still thinks.
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(there.result(task))
        await there.ask("ping")
        await client.reach(task, "input_required")
        await client.answer(heard.message, ADA)
        await question.answered()
        call.finish(text("once"))
    assert without_meta(waiting.result()["result"]) == text("once")
    assert [one.stream for one in questions(client)] == ["get"]


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_question_is_asked_on_one_of_many_result_streams(
    place: Place, client: TasksB, replica: int
) -> None:
    there = client.twin(place.url(replica=replica))
    task, call = await running(place, client)
    async with (
        await waits(there, task) as one,
        await waits(there, task) as two,
        asyncio.TaskGroup() as group,
    ):
        for waiter in (one, two):
            group.create_task(waiter.response())
        question = call.ask()
        heard = await client.asked("elicitation/create")
        assert heard.stream == "tasks/result"
        await client.answer(heard.message, ADA)
        await question.answered()
        call.finish()
    assert len(questions(client)) == 1


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_question_moves_to_the_get_stream_when_the_result_stream_is_lost(
    place: Place, client: TasksB, replica: int
) -> None:
    there = client.twin(place.url(replica=replica))
    await client.listen()
    task, call = await running(place, client)
    waiter = await waits(there, task)
    there.read(waiter)
    idents: list[str] = []
    # The replica that runs the task hears of a waiter elsewhere a little later.
    while True:
        question = call.ask()
        first = await client.hears(lambda one: asks(one) and one.message["id"] not in idents)
        if first.stream == "tasks/result":
            break
        idents.append(first.message["id"])
        await client.answer(first.message, ADA)
        await question.answered()
    waiter.cut()
    again = await client.hears(
        lambda one: asks(one) and one.stream == "get" and one.message == first.message
    )
    await client.answer(again.message, ADA)
    await question.answered()
    call.finish()
    await client.reach(task, "completed")


async def test_a_question_moves_to_the_result_stream_when_the_get_stream_is_lost(
    place: Place, client: TasksB
) -> None:
    listening = await client.listen()
    task, call = await running(place, client)
    question = call.ask()
    heard = await client.asked("elicitation/create")
    assert heard.stream == "get"
    listening.cut()
    async with await waits(client, task) as waiter:
        asked = await question_on(waiter)
        assert asked["id"] == heard.message["id"]
        await client.answer(asked, ADA)
        await question.answered()
        call.finish()
        await waiter.response()


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_waiter_that_takes_no_stream_leaves_the_question_to_the_get_stream(
    place: Place, client: TasksB, replica: int
) -> None:
    there = client.twin(place.url(replica=replica))
    client.responder = always(ADA)
    await client.listen()
    task, call = await running(place, client)
    only = {"Accept": "application/json"}
    async with asyncio.TaskGroup() as group:
        posting = group.create_task(there.post(there.request("tasks/result", {"taskId": task}), only))
        await client.reach(task, "working")
        for _ in range(3):
            await call.ask().answered()
        call.finish(text("Hello, Ada!"))
    async with posting.result() as answer:
        assert without_meta((await answer.response())["result"]) == text("Hello, Ada!")


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_question_moves_to_who_waits_when_the_get_stream_is_lost(
    place: Place, client: TasksB, replica: int
) -> None:
    there = client.twin(place.url(replica=replica))
    listening = await there.listen()
    task, call = await running(place, client)
    question = call.ask()
    heard = await client.asked("elicitation/create")
    assert heard.stream == "get"
    async with await waits(client, task) as waiter:
        await client.ask("ping")
        listening.cut()
        asked = await question_on(waiter)
        assert asked["id"] == heard.message["id"]
        await client.answer(asked, ADA)
        await question.answered()
        call.finish()
        await waiter.response()


async def test_a_question_moves_to_another_who_waits(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    first = await waits(client, task)
    question = call.ask()
    asked = await question_on(first)
    async with await waits(client, task) as second:
        first.cut()
        again = await question_on(second)
        assert again == asked
        await client.answer(again, ADA)
        await question.answered()
        call.finish()
        await second.response()
