"""Dialect A: a task whose upstream asks (SEP-1686, section 4.4)."""

from __future__ import annotations

import pytest

from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import Json, Seed, new_id, related_to
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ADA: Json = {"action": "accept", "content": {"name": "Ada"}}
SAMPLE: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 5}


async def test_one_question_makes_the_task_wait_until_it_is_answered(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    question = call.ask()
    asked = await stream.asked()
    assert asked["method"] == "elicitation/create"
    assert related_to(asked) == task
    got = await seed.reach(task, "input_required")
    assert got["pollFrequency"] == 250
    await seed.answer(asked, ADA)
    answer = await question.answered()
    assert answer["result"]["action"] == "accept"
    assert answer["result"]["content"] == {"name": "Ada"}
    await seed.reach(task, "working")
    call.finish()
    await stream.response(1)


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "elicitation/create"])
async def test_any_request_of_the_server_is_asked(house: House, seed: Seed, method: str) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    params: Json = SAMPLE if method == "sampling/createMessage" else {"example": 1}
    question = call.ask(method, params)
    asked = await stream.asked()
    assert asked["method"] == method
    assert {name: asked["params"][name] for name in params} == params
    assert related_to(asked) == task
    await seed.reach(task, "input_required")
    await seed.answer(asked, {"anything": [1.0]})
    assert (await question.answered())["result"]["anything"] == [1.0]
    call.finish()
    await stream.response(1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
async def test_several_questions_keep_it_waiting_until_all_are_answered(
    house: House, seed: Seed, order: tuple[int, ...]
) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    questions = [call.ask() for _ in range(3)]
    asked = [await stream.asked() for _ in questions]
    assert len({str(question["id"]) for question in asked}) == 3
    assert [related_to(question) for question in asked] == [task] * 3
    for number, place in enumerate(order):
        assert (await seed.reach(task, "input_required"))["status"] == "input_required"
        result: Json = {"action": "accept", "content": {"name": str(number)}}
        await seed.answer(asked[place], result)
        assert (await questions[place].answered())["result"]["content"] == result["content"]
    await seed.reach(task, "working")
    call.finish()
    await stream.response(1)


async def test_an_error_answers_a_question_too(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    question = call.ask()
    asked = await stream.asked()
    error = {"code": -1, "message": "User rejected", "data": {"why": 1.0}}
    exchange = await seed.post({"jsonrpc": "2.0", "id": asked["id"], "error": error})
    assert exchange.status == 202
    assert (await question.answered())["error"] == error
    await seed.reach(task, "working")
    call.finish()
    await stream.response(1)


async def test_a_second_answer_is_disregarded(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    question = call.ask()
    asked = await stream.asked()
    await seed.answer(asked, ADA)
    await question.answered()
    async with await seed.post(
        {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}
    ) as exchange:
        assert exchange.status < 500
    call.finish()
    await stream.response(1)
    answers = [m for _, m in house.upstream.heard if m.get("id") == question.ident]
    assert [answer["result"]["action"] for answer in answers] == ["accept"]


async def test_a_task_may_ask_again(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    for _ in range(3):
        question = call.ask()
        asked = await stream.asked()
        await seed.reach(task, "input_required")
        await seed.answer(asked, ADA)
        await question.answered()
        await seed.reach(task, "working")
    call.finish()
    await stream.response(1)


async def test_a_question_that_the_upstream_withdraws_no_longer_holds_the_task(
    house: House, seed: Seed
) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    question = call.ask()
    asked = await stream.asked()
    await seed.reach(task, "input_required")
    call.tell("notifications/cancelled", {"requestId": question.ident, "reason": "found it"})
    told = await stream.notification("notifications/cancelled")
    assert told["params"]["requestId"] == asked["id"]
    assert related_to(told) == task
    await seed.reach(task, "working")
    call.finish()
    await stream.response(1)


async def test_a_task_that_ends_while_it_asks_is_completed(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    call.ask()
    await stream.asked()
    await seed.reach(task, "input_required")
    call.finish(text("did without"))
    await stream.response(1)
    await seed.reach(task, "completed")


async def test_a_question_reaches_a_client_that_came_back(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    stream.cut()
    back = await seed.listen()
    question = call.ask()
    asked = await back.asked()
    assert related_to(asked) == task
    await seed.reach(task, "input_required")
    await seed.answer(asked, ADA)
    await question.answered()
    call.finish()
    await seed.reach(task, "completed")


async def test_a_question_waits_for_the_client_to_come_back(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    stream.cut()
    questions = [call.ask(), call.ask()]
    await seed.reach(task, "input_required")
    back = await seed.listen()
    asked = [await back.asked() for _ in questions]
    for question in reversed(asked):
        await seed.answer(question, ADA)
    for question in questions:
        await question.answered()
    call.finish()
    await seed.reach(task, "completed")


async def test_a_question_that_was_lost_with_its_stream_is_asked_again(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    question = call.ask()
    await stream.asked()
    stream.cut()
    back = await seed.listen()
    await seed.answer(await back.asked(), ADA)
    await question.answered()
    call.finish()
    await seed.reach(task, "completed")


async def test_a_question_is_asked_on_one_stream_only(house: House, seed: Seed) -> None:
    task = new_id()
    side = await seed.listen()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    question = call.ask()
    await seed.answer(await stream.asked(), ADA)
    await question.answered()
    call.finish()
    await stream.response(1)
    with pytest.raises(TimeoutError):
        await side.next(0.3)


async def test_I6_questions_and_answers_cross_replicas(pair: House) -> None:
    async with pair.client("Bearer asked-elsewhere") as seed:
        other = seed.twin(pair.url(replica=1))
        task = new_id()
        stream = await seed.begin(task, tool(task))
        call = await pair.upstream.called(task)
        first = call.ask()
        await other.answer(await stream.asked(), ADA)
        await first.answered()
        await other.reach(task, "working")
        stream.cut()
        second = call.ask()
        await other.reach(task, "input_required")
        back = await other.listen()
        await seed.answer(await back.asked(), ADA)
        await second.answered()
        call.finish()
        await other.reach(task, "completed")
