"""Handshake sessions over a stateless upstream, on two replicas: what a session is about holds on both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.wire.bridge_world import Bridge, new_key, words
from tests.wire.modern_words import Json
from tests.wire.tasks_b_client import TasksB

pytest_plugins = ["tests.wire.bridge_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("says which replica does what"),
]
Couple = tuple[TasksB, TasksB]


@pytest.fixture(scope="module", params=["modern", "pipe"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def couple(replicas: Bridge, name: str) -> AsyncGenerator[Couple]:
    """Open a session at the first replica; the second client holds it at the second."""
    async with replicas.client_b(name) as here:
        # What one hears the other hears.
        yield here, here.twin(replicas.url(name, 1))


@pytest_asyncio.fixture(loop_scope="session")
async def both(replicas: Bridge, name: str) -> AsyncIterator[Couple]:
    async with couple(replicas, name) as found:
        yield found


async def call(client: TasksB, tool: str, **arguments: Any) -> Json:
    return await client.ask("tools/call", {"name": tool, "arguments": arguments})


def logged(client: TasksB) -> list[Any]:
    return [
        one.message["params"]["data"]
        for one in client.heard
        if one.message.get("method") == "notifications/message"
    ]


def updates(uri: str) -> Callable[[Any], bool]:
    """Tell what an update of a resource is; while streams are changed one may come twice."""
    return lambda one: "updated" in str(one.message.get("method")) and one.message["params"] == {"uri": uri}


async def test_I6_a_log_level_set_at_one_replica_holds_at_the_other(both: Couple) -> None:
    here, there = both
    assert (await here.ask("logging/setLevel", {"level": "warning"}))["result"] == {}
    # For the first time here, then as a session that is known.
    await call(there, "chat")
    assert logged(there) == ["a warning"]
    assert (await here.ask("logging/setLevel", {"level": "debug"}))["result"] == {}
    await call(there, "chat")
    assert logged(there) == ["a warning", "a debug", "a warning"]
    assert (await there.ask("logging/setLevel", {"level": "error"}))["result"] == {}
    await call(here, "chat")
    assert logged(here) == ["a warning", "a debug", "a warning"]


async def test_I6_what_was_subscribed_to_at_one_replica_comes_on_the_stream_at_the_other(
    both: Couple,
) -> None:
    here, there = both
    first, second = f"test://{new_key()}", f"test://{new_key()}"
    assert (await here.ask("resources/subscribe", {"uri": first}))["result"] == {}
    await there.listen()
    await call(here, "touch", uri=first)
    assert (await there.hears(updates(first))).stream == "get"
    # While the other one listens.
    assert (await here.ask("resources/subscribe", {"uri": second}))["result"] == {}
    await call(here, "touch", uri=second)
    assert (await there.hears(updates(second))).stream == "get"
    assert (await here.ask("resources/unsubscribe", {"uri": second}))["result"] == {}
    there.heard.clear()
    await call(here, "touch", uri=second)
    await call(there, "touch", uri=first)
    await there.hears(updates(first))
    assert not [one for one in there.heard if updates(second)(one)]


async def test_I6_what_changes_before_the_client_listens_elsewhere_is_kept_for_it(both: Couple) -> None:
    here, there = both
    uri = f"test://{new_key()}"
    assert (await here.ask("resources/subscribe", {"uri": uri}))["result"] == {}
    await call(here, "touch", uri=uri)
    await there.listen()
    await there.hears(updates(uri))


async def test_I6_a_question_in_a_call_at_one_replica_is_answered_at_the_other(
    replicas: Bridge, name: str
) -> None:
    async with couple(replicas, name) as (here, there):
        exchange = await there.post(there.request("tools/call", {"name": "ask_name", "arguments": {}}, 77))
        there.read(exchange)
        asked = await there.asked("elicitation/create")
        await here.answer(asked.message, {"action": "accept", "content": {"name": "Ada"}})
        done = await there.hears(lambda one: one.message.get("id") == 77 and "result" in one.message)
        assert "Ada" in words(done.message["result"])


async def test_I6_sessions_over_a_child_share_it_on_all_replicas(replicas: Bridge) -> None:
    async with couple(replicas, "pipe") as (here, there):
        pids = {words((await call(one, "pid"))["result"]) for one in (here, there, here)}
        assert len(pids) == 1
        async with await there.send("DELETE") as answer:
            assert answer.status in (200, 204)
        async with await here.post(here.request("tools/list")) as answer:
            assert answer.status == 404
