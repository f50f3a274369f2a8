"""Answers that come to nothing: the upstream has forgotten the session in which it asked."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import accept, answers, retry

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
NAME: Final = {"elicitation/create": accept(name="Ada")}
ROUNDS: Final = 15


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_I5_a_task_whose_upstream_cannot_take_the_answer_fails(
    era_replicas: Eras, *, elsewhere: bool
) -> None:
    key = new_key()
    async with era_replicas.client() as caller, era_replicas.twin(caller) as twin:
        task = (await caller.ask("tools/call", tool(key))).task_id
        call = await era_replicas.upstream.called(key)
        call.ask()
        found = await caller.reach(task, "input_required")
        await era_replicas.upstream.forget(call.session)
        await (twin if elsewhere else caller).update(task, answers(found["inputRequests"], NAME))
        failed = await caller.reach(task, "failed")
    assert "answer" in failed["error"]["message"]


async def test_I5_a_held_call_whose_upstream_cannot_take_the_answer_ends(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    params = tool(key, "plain")
    async with meanwhile(caller.ask("tools/call", params)) as asking:
        call = await eras.upstream.called(key)
        call.ask()
        asked = (await asking).result
    await eras.upstream.forget(call.session)
    reply = await caller.ask("tools/call", {**params, **retry(asked, NAME)})
    assert reply.refusal[1] == -32603
    assert "answer" in reply.refusal[2]


async def test_I6_an_answer_that_comes_to_both_replicas_at_once_reaches_the_upstream_once(
    era_replicas: Eras,
) -> None:
    async with era_replicas.client() as caller, era_replicas.twin(caller) as twin:
        for _ in range(ROUNDS):
            key = new_key()
            task = (await caller.ask("tools/call", tool(key))).task_id
            call = await era_replicas.upstream.called(key)
            question = call.ask()
            found = answers((await caller.reach(task, "input_required"))["inputRequests"], NAME)
            await asyncio.gather(*(one.update(task, found) for one in [caller, twin] * 5))
            await question.answered()
            call.finish()
            await caller.reach(task, "completed")
            heard = [
                message
                for session, message in era_replicas.upstream.heard
                if session == call.session and message.get("id") == question.ident
            ]
            assert len(heard) == 1
