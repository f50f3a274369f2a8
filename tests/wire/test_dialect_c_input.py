"""Dialect C: a task that asks its client (ext-tasks "Task Update Requests")."""

from __future__ import annotations

import pytest

from tests.wire.era_upstream import FORM
from tests.wire.era_world import Eras, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import accept, sampled

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ELICIT = {"message": "What is your name?", "requestedSchema": FORM}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}
ROOTS = {"roots": [{"uri": "file:///home", "name": "home"}]}


async def begun(eras: Eras, caller: Stateless, name: str = "work") -> tuple[str, Call]:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, name))
    return reply.task_id, await eras.upstream.called(key)


async def asks(caller: Stateless, task: str, number: int = 1) -> dict[str, dict[str, object]]:
    """Return what a task asks for once it has so many open questions."""
    while True:
        found = (await caller.reach(task, "input_required"))["inputRequests"]
        if len(found) >= number:
            return found


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("elicitation/create", ELICIT, accept(name="Ada")),
        ("elicitation/create", ELICIT, {"action": "decline"}),
        ("elicitation/create", ELICIT, {"action": "cancel"}),
        ("sampling/createMessage", SAMPLE, sampled("Hello")),
        ("roots/list", {}, ROOTS),
    ],
)
async def test_a_question_is_shown_and_its_answer_reaches_the_upstream(
    eras: Eras, caller: Stateless, method: str, params: dict[str, object], result: dict[str, object]
) -> None:
    task, call = await begun(eras, caller)
    question = call.ask(method, params)
    (key, shown), *rest = (await asks(caller, task)).items()
    assert not rest
    assert shown["method"] == method
    assert shown.get("params", {}) == params
    reply = await caller.update(task, {key: result})
    assert set(reply.result) - {"_meta"} == {"resultType"}
    assert (await question.answered())["result"] == result
    await caller.reach(task, "working")
    call.finish(text("thanks"))
    assert (await caller.reach(task, "completed"))["result"]["content"] == text("thanks")["content"]


async def test_an_answer_at_another_replica_reaches_the_upstream(era_replicas: Eras) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        task, call = await begun(era_replicas, here)
        question = call.ask()
        (key,) = await asks(there, task)
        await there.update(task, {key: accept(name="Ada")})
        assert (await question.answered())["result"] == accept(name="Ada")
        call.finish()
        await there.reach(task, "completed")


async def test_the_same_question_keeps_its_key_until_it_is_answered(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    call.ask()
    first = await asks(caller, task)
    assert await asks(caller, task) == first
    await caller.cancel(task)


async def test_partial_answers_leave_the_rest_open(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    questions = [call.ask("elicitation/create", {**ELICIT, "message": f"{n}?"}) for n in range(3)]
    shown = await asks(caller, task, 3)
    keys = {request["params"]["message"]: key for key, request in shown.items()}  # type: ignore[index]
    await caller.update(task, {keys["1?"]: accept(name="one")})
    assert (await questions[1].answered())["result"] == accept(name="one")
    left = await asks(caller, task, 2)
    assert left == {key: shown[key] for key in (keys["0?"], keys["2?"])}
    await caller.update(task, {keys["0?"]: accept(name="nil"), keys["2?"]: accept(name="two")})
    assert (await questions[0].answered())["result"] == accept(name="nil")
    assert (await questions[2].answered())["result"] == accept(name="two")
    await caller.reach(task, "working")
    call.finish()


async def test_keys_are_never_used_again(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    seen: set[str] = set()
    for number in range(4):
        question = call.ask("elicitation/create", {**ELICIT, "message": f"{number}?"})
        (key,) = await asks(caller, task)
        assert key not in seen
        seen.add(key)
        await caller.update(task, {key: accept(name=str(number))})
        await question.answered()
    call.finish()
    await caller.reach(task, "completed")


async def test_answers_to_unknown_and_answered_keys_are_ignored(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    one = call.ask()
    (key,) = await asks(caller, task)
    await caller.update(task, {"never-issued": accept(name="x"), "": {"action": "cancel"}})
    assert not one.is_answered
    assert list(await asks(caller, task)) == [key]
    await caller.update(task, {key: accept(name="first"), "never-issued": accept(name="x")})
    assert (await one.answered())["result"] == accept(name="first")
    two = call.ask()
    (other,) = await asks(caller, task)
    reply = await caller.update(task, {key: accept(name="again")})
    assert set(reply.result) - {"_meta"} == {"resultType"}
    assert not two.is_answered
    await caller.update(task, {other: accept(name="second")})
    assert (await two.answered())["result"] == accept(name="second")
    answers = [m for _, m in eras.upstream.heard if m.get("id") in (one.ident, two.ident)]
    assert len(answers) == 2
    call.finish()


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "maybe"},
        {},
        sampled("not a form"),
        ROOTS,
        "accept",
        None,
        [],
        True,
        {"action": "accept", "content": "Ada"},
    ],
)
async def test_an_answer_of_the_wrong_kind_is_refused_and_the_question_stays(
    eras: Eras, caller: Stateless, answer: object
) -> None:
    task, call = await begun(eras, caller)
    question = call.ask()
    (key,) = await asks(caller, task)
    reply = await caller.update(task, {key: answer}, wrong=True)
    assert reply.refusal[:2] == (200, -32602)
    assert list(await asks(caller, task)) == [key]
    assert not question.is_answered
    await caller.update(task, {key: accept(name="Ada")})
    await question.answered()
    call.finish()
    await caller.reach(task, "completed")


@pytest.mark.parametrize("responses", [None, [], "x", 1])
async def test_responses_that_are_no_map_are_refused(
    eras: Eras, caller: Stateless, responses: object
) -> None:
    task, call = await begun(eras, caller)
    params = {"taskId": task, "inputResponses": responses}
    assert (await caller.ask("tasks/update", params, wrong=True)).refusal[:2] == (200, -32602)
    assert (await caller.ask("tasks/update", {"taskId": task}, wrong=True)).refusal[:2] == (200, -32602)
    call.finish()


async def test_I5_a_question_that_nobody_answers_ends_with_the_time_limit(
    eras: Eras, caller: Stateless
) -> None:
    task, call = await begun(eras, caller, "short")
    call.ask()
    await call.cancelled()
    await caller.reach(task, "failed")


async def test_a_task_that_waits_for_input_can_be_cancelled(eras: Eras, caller: Stateless) -> None:
    task, call = await begun(eras, caller)
    question = call.ask()
    (key,) = await asks(caller, task)
    await caller.cancel(task)
    await call.cancelled()
    await caller.reach(task, "cancelled")
    await caller.update(task, {key: accept(name="late")})
    assert not question.is_answered


@pytest.mark.parametrize("capability", ["elicitation", "sampling", "roots"])
async def test_a_client_is_not_asked_for_what_it_did_not_declare(eras: Eras, capability: str) -> None:
    method = {
        "elicitation": "elicitation/create",
        "sampling": "sampling/createMessage",
        "roots": "roots/list",
    }[capability]
    others: dict[str, object] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
    del others[capability]
    async with eras.client(capabilities=others) as caller:
        task, call = await begun(eras, caller)
        initialized = eras.upstream.opening(call.session).message["params"]
        assert capability not in initialized["capabilities"]
        question = call.ask(method, ELICIT if capability == "elicitation" else SAMPLE)
        assert "error" in await question.answered()
        assert (await caller.get(task)).result["status"] == "working"
        call.finish()
        await caller.reach(task, "completed")
