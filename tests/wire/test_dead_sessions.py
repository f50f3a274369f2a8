"""An upstream that forgot a session: its client is told to begin anew (2025-11-25 "Session Management")."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.tasks_b_client import INVALID_PARAMS, TasksB
from tests.wire.tasks_b_questions import running
from tests.wire.tasks_b_world import Place, refusal

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_client_that_only_makes_tasks_hears_that_its_session_is_dead(
    place: Place, client: TasksB, replica: int
) -> None:
    """The call of a task finds it out; the next request that would go upstream is answered 404."""
    task, call = await running(place, client)
    place.upstream.deleted.add(call.session)
    lost = await client.start("work", {"key": "nobody"})
    ended = await client.reach(lost, "failed")
    assert "no longer knows the session" in ended["statusMessage"]
    there = client.twin(place.url(replica=replica))
    async with asyncio.timeout(5):
        while True:
            answer = await there.post(
                there.request("tools/call", {"name": "work", "arguments": {}, "task": {}})
            )
            async with answer:
                if answer.status == 404:
                    assert (await answer.next() or {})["error"]["code"] == -32001
                    break
                # The other replica may not have heard of it yet: its task fails too.
                await there.reach((await answer.response())["result"]["task"]["taskId"], "failed")
    # What is about tasks is answered in the dead session yet.
    assert (await there.get(task))["result"]["status"] == "working"
    assert refusal(await there.get("never"))[0] == INVALID_PARAMS
    call.finish()
    await client.initialize()
    again, call = await running(place, client)
    call.finish()
    await client.reach(again, "completed")
