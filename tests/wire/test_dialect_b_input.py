"""Dialect B: a task whose upstream asks (2025-11-25 tasks, "Input Required Status")."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.scripted_upstream import text
from tests.wire.tasks_b_client import RELATED, Json, TasksB, accept, always, related_to
from tests.wire.tasks_b_questions import (
    ADA,
    ROOTS,
    SAID,
    SAMPLE,
    question_on,
    questions,
    running,
    waits,
)
from tests.wire.tasks_b_world import POLL_MS, Place, credential, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_question_is_asked_on_the_result_stream(place: Place, client: TasksB, replica: int) -> None:
    there = client.twin(place.url(replica=replica))
    task, call = await running(place, client)
    async with await waits(there, task) as waiter:
        question = call.ask()
        asked = await question_on(waiter)
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "What is your name?"
        assert related_to(asked) == task
        got = await client.reach(task, "input_required")
        assert got["pollInterval"] == POLL_MS
        await client.answer(asked, ADA)
        answer = await question.answered()
        assert without_meta(answer["result"]) == ADA
        await client.reach(task, "working")
        call.finish(text("Hello, Ada!"))
        assert without_meta((await waiter.response())["result"]) == text("Hello, Ada!")
    assert len(questions(client)) == 1


async def test_a_question_that_came_first_is_asked_when_the_result_is_asked_for(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    question = call.ask()
    await client.reach(task, "input_required")
    async with await waits(client, task) as waiter:
        await client.answer(await question_on(waiter), ADA)
        await question.answered()
        call.finish()
        assert "result" in await waiter.response()


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("sampling/createMessage", SAMPLE, SAID),
        ("roots/list", {}, ROOTS),
        (
            "elicitation/create",
            {"mode": "url", "message": "Sign in.", "url": "http://127.0.0.1/x", "elicitationId": "e"},
            {"action": "accept"},
        ),
    ],
)
async def test_any_request_of_the_server_is_asked(
    place: Place, client: TasksB, method: str, params: Json, result: Json
) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        question = call.ask(method, params)
        asked = await question_on(waiter)
        assert asked["method"] == method
        assert without_meta(asked["params"]) == params
        assert asked["params"]["_meta"] == {RELATED: {"taskId": task}}
        await client.answer(asked, result)
        assert without_meta((await question.answered())["result"]) == result
        call.finish()
        await waiter.response()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
async def test_several_questions_keep_it_waiting_until_all_are_answered(
    place: Place, client: TasksB, order: tuple[int, ...]
) -> None:
    task, call = await running(place, client)
    there = client.twin(place.url(replica=1))
    async with await waits(client, task) as waiter:
        questions = [call.ask() for _ in range(3)]
        asked = [await question_on(waiter) for _ in questions]
        assert len({str(question["id"]) for question in asked}) == 3
        for number, which in enumerate(order):
            assert (await client.reach(task, "input_required"))["status"] == "input_required"
            # Answers are taken on any replica (I6).
            await (there if number % 2 else client).answer(asked[which], accept(name=str(number)))
            answer = await questions[which].answered()
            assert answer["result"]["content"] == {"name": str(number)}
        await client.reach(task, "working")
        call.finish()
        await waiter.response()


async def test_an_error_answers_a_question_too(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        question = call.ask()
        await client.refuse(await question_on(waiter), -1, "User rejected")
        assert (await question.answered())["error"] == {"code": -1, "message": "User rejected"}
        await client.reach(task, "working")
        call.finish()
        await waiter.response()


async def test_a_second_answer_is_disregarded(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        question = call.ask()
        asked = await question_on(waiter)
        await client.answer(asked, ADA)
        await client.answer(asked, {"action": "decline"})
        await question.answered()
        call.finish()
        await waiter.response()
    answers = [m for _, m in place.upstream.heard if m.get("id") == question.ident]
    assert [answer["result"]["action"] for answer in answers] == ["accept"]


async def test_a_task_may_ask_again(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        idents: set[str] = set()
        for _ in range(3):
            question = call.ask()
            asked = await question_on(waiter)
            idents.add(str(asked["id"]))
            await client.reach(task, "input_required")
            await client.answer(asked, ADA)
            await question.answered()
            await client.reach(task, "working")
        assert len(idents) == 3
        call.finish()
        await waiter.response()


async def test_a_question_that_the_upstream_withdraws_no_longer_holds_the_task(
    place: Place, client: TasksB
) -> None:
    await client.listen()
    task, call = await running(place, client)
    question = call.ask()
    heard = await client.asked("elicitation/create")
    await client.reach(task, "input_required")
    call.tell("notifications/cancelled", {"requestId": question.ident, "reason": "found it"})
    told = await client.hears(lambda one: one.message.get("method") == "notifications/cancelled")
    assert told.message["params"]["requestId"] == heard.message["id"]
    assert related_to(told.message) == task
    await client.reach(task, "working")
    call.finish()
    await client.reach(task, "completed")


async def test_a_task_that_ends_while_it_asks_is_completed(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        call.ask()
        await question_on(waiter)
        call.finish(text("did without"))
        assert without_meta((await waiter.response())["result"]) == text("did without")
    await client.reach(task, "completed")


async def test_a_cancelled_task_takes_no_answer(place: Place, client: TasksB) -> None:
    task, call = await running(place, client)
    async with await waits(client, task) as waiter:
        question = call.ask()
        asked = await question_on(waiter)
        assert (await client.cancel(task))["result"]["status"] == "cancelled"
        await call.cancelled()
        await client.answer(asked, ADA)
        assert "error" in await waiter.response()
    assert not question.is_answered
    assert (await client.get(task))["result"]["status"] == "cancelled"


async def test_I6_questions_and_answers_cross_replicas(two: Place) -> None:
    async with two.client(credential()) as client:
        other = client.twin(two.url(replica=1))
        task, call = await running(two, client)
        async with await waits(other, task) as waiter:
            for _ in range(3):
                question = call.ask()
                await other.answer(await question_on(waiter), ADA)
                await question.answered()
                await client.reach(task, "working")
            call.finish()
            await waiter.response()


async def test_a_question_of_a_task_without_a_known_asker_is_answered_too(place: Place) -> None:
    async with place.client(responder=always(ADA)) as client:
        task, call = await running(place, client)
        there = client.twin(place.url(replica=1))
        async with await waits(there, task) as waiter, asyncio.TaskGroup() as group:
            group.create_task(waiter.response())
            await call.ask().answered()
            call.finish()
