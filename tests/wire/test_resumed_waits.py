"""A wait for a result goes on elsewhere when its stream is cut (2025-11-25 transports, "Resumability")."""

from __future__ import annotations

import asyncio
import base64

import pytest

from tests.wire.answers import Answer
from tests.wire.scripted_upstream import text
from tests.wire.tasks_b_client import TasksB, always
from tests.wire.tasks_b_questions import ADA, question_on, running, waits
from tests.wire.tasks_b_world import Place, credential, refusal, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
INVALID_PARAMS = -32602


async def primed(answer: Answer) -> str:
    """Read up to the event that primes the client and return its id."""
    try:
        async with asyncio.timeout(10):
            while answer.last_id is None:
                try:
                    await answer.next(0.05)
                except TimeoutError:
                    continue
    except TimeoutError:
        raise AssertionError("the stream has no event id") from None
    return answer.last_id


async def cut_off(client: TasksB, task: str) -> str:
    """Wait for a task on a stream that is cut, and return the event id that resumes it."""
    cut = await waits(client, task)
    ident = await primed(cut)
    cut.cut()
    return ident


async def take_up(client: TasksB, ident: str) -> Answer:
    """Resume a stream by its last event id."""
    return await client.send("GET", headers={"Accept": "text/event-stream", "Last-Event-ID": ident})


@pytest.mark.parametrize("replica", [0, 1])
async def test_I6_a_wait_that_is_cut_goes_on_at_any_replica(
    place: Place, client: TasksB, replica: int
) -> None:
    task, call = await running(place, client)
    asked = client.request("tasks/result", {"taskId": task}, "wait 1")
    cut = await client.post(asked)
    ident = await primed(cut)
    cut.cut()
    async with await take_up(client.twin(place.url(replica=replica)), ident) as answer:
        assert answer.is_stream
        call.finish(text("late"))
        response = await answer.response()
    assert response["id"] == "wait 1"
    assert without_meta(response["result"]) == text("late")


async def test_I6_a_wait_that_is_taken_up_after_the_end_is_answered_at_once(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    ident = await cut_off(client, task)
    call.finish(text("done"))
    await client.reach(task, "completed")
    async with await take_up(client.twin(place.url(replica=1)), ident) as answer:
        assert answer.is_stream
        (response,) = await answer.rest()
    assert without_meta(response["result"]) == text("done")


async def test_I6_a_question_is_asked_again_on_the_stream_that_was_taken_up(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    ident = await cut_off(client, task)
    question = call.ask()
    await client.reach(task, "input_required")
    async with await take_up(client.twin(place.url(replica=1)), ident) as answer:
        heard = await question_on(answer)
        await client.answer(heard, ADA)
        await question.answered()
        call.finish()
        await answer.response()


async def test_I7_a_stream_of_another_is_answered_as_one_of_a_task_that_never_was(
    place: Place, client: TasksB
) -> None:
    task, call = await running(place, client)
    ident = await cut_off(client, task)
    nothing = base64.urlsafe_b64encode(
        b'{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"never"}}'
    )
    async with place.client(credential()) as other:
        async with await take_up(other, ident) as answer:
            foreign = await answer.response()
        async with await take_up(other, f"mtg-w.{nothing.decode().rstrip('=')}") as answer:
            never = await answer.response()
    assert refusal(foreign) == refusal(never)
    assert refusal(foreign)[0] == INVALID_PARAMS
    client.responder = always(ADA)
    call.finish()


@pytest.mark.parametrize(
    "ident",
    [
        "mtg-w.",
        "mtg-w.%%%",
        "mtg-w.bm90IGpzb24",
        "mtg-w."
        + base64.urlsafe_b64encode(b'{"jsonrpc":"2.0","id":1,"method":"ping"}').decode().rstrip("="),
        "mtg-w." + "A" * 9000,
    ],
    ids=["empty", "no base64", "no JSON", "no wait", "too long"],
)
async def test_I12_an_event_id_that_only_looks_like_a_wait_is_refused(
    place: Place, client: TasksB, ident: str
) -> None:
    async with await take_up(client, ident) as answer:
        assert answer.status == 400
        body = await answer.next()
    assert body is not None
    assert refusal(body)[1] == "Last-Event-ID is not an event id of this server"
