"""A task made in one dialect and read in another by the same credential, after its client's upgrade."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.wire.bridge_world import Bridge, credential, new_key, words
from tests.wire.modern_words import Json
from tests.wire.seed_client import CREATED, Exchange, Seed, new_id
from tests.wire.seed_client import RELATED as RELATED_A
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import INVALID_PARAMS, accept
from tests.wire.tasks_b_client import RELATED, TasksB, check_task

pytest_plugins = ["tests.wire.bridge_fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]

NOT_FOUND = "Task not found"


class Trio:
    """One user with a client of each dialect."""

    def __init__(self, bridge: Bridge) -> None:
        self.own = credential()
        self.a = Seed(bridge.url("modern"), self.own)
        self.b: TasksB = bridge.client_b("modern", self.own)
        self.c: Stateless = bridge.client_c("modern", self.own)

    async def make(self, dialect: str, tool: str, key: str) -> tuple[str, Exchange | None]:
        """Make a task; return its id, and the stream that is open for it."""
        params: Json = {"name": tool, "arguments": {"key": key}}
        if dialect == "a":
            task_id = new_id()
            exchange = await self.a.begin(task_id, params, task={"keepAlive": 30_000})
            await exchange.notification(CREATED)
            return task_id, exchange
        if dialect == "b":
            return await self.b.start(tool, {"key": key}, ttl=30_000), None
        return (await self.c.call(tool, {"key": key})).task_id, None

    async def release(self, key: str) -> None:
        await self.c.call("release", {"key": key}, tasks=False)


@pytest_asyncio.fixture(loop_scope="session")
async def trio(bridge: Bridge) -> AsyncIterator[Trio]:
    made = Trio(bridge)
    async with made.a, made.b, made.c:
        yield made


@pytest.mark.parametrize("dialect", ["a", "b", "c"])
async def test_a_task_is_read_in_every_dialect(trio: Trio, dialect: str) -> None:
    key = new_key()
    task_id, _ = await trio.make(dialect, "hold", key)
    in_a = (await trio.a.get(task_id))["result"]
    in_b = (await trio.b.ask("tasks/get", {"taskId": task_id}))["result"]
    check_task(in_b)
    in_c = (await trio.c.get(task_id)).result
    assert {one["taskId"] for one in (in_a, in_b, in_c)} == {task_id}
    assert in_c["status"] == "working"
    assert isinstance(in_c["ttlMs"], int)
    # Within the handshake era a task is shown in the dialect that it was made in, to others in theirs too.
    assert "keepAlive" in in_a
    assert ("keepAlive" in in_b) == (dialect == "a")
    assert in_b["status"] == "working"
    await trio.release(key)
    done = await trio.c.reach(task_id, "completed")
    assert words(done["result"]) == f"held {key}"
    assert done["result"]["resultType"] == "complete"
    for answer in (await trio.a.fetch(task_id), await trio.b.ask("tasks/result", {"taskId": task_id})):
        result = answer["result"]
        assert words(result) == f"held {key}"
        assert "resultType" not in result
        assert {RELATED, RELATED_A} & set(result["_meta"])


@pytest.mark.parametrize("dialect", ["a", "b", "c"])
async def test_a_task_is_cancelled_in_the_newer_dialects(bridge: Bridge, trio: Trio, dialect: str) -> None:
    seen = bridge.seen("modern")
    for cancels in "bc":
        key = new_key()
        task_id, _ = await trio.make(dialect, "never", key)
        await seen.until(lambda key=key: seen.asked("tools/call", key=key))
        if cancels == "b":
            answer = await trio.b.ask("tasks/cancel", {"taskId": task_id})
            assert answer["result"]["status"] == "cancelled"
        else:
            assert set((await trio.c.cancel(task_id)).result) <= {"resultType", "_meta"}
        await seen.until(lambda key=key: seen.cancelled(key=key))
        assert (await trio.c.get(task_id)).result["status"] == "cancelled"


@pytest.mark.parametrize("dialect", ["a", "b", "c"])
async def test_a_task_that_wants_input_is_answered_in_the_newest_dialect(trio: Trio, dialect: str) -> None:
    task_id, exchange = await trio.make(dialect, "ask_name", new_key())
    task = await trio.c.reach(task_id, "input_required")
    (key,) = task["inputRequests"]
    await trio.c.update(task_id, {key: accept(name="Ada")})
    done = await trio.c.reach(task_id, "completed")
    assert '"Ada"' in words(done["result"])
    if exchange is not None:
        assert '"Ada"' in words((await exchange.until(lambda one: "result" in one))["result"])


async def test_a_task_of_the_newest_dialect_asks_on_the_result_stream_of_an_older_client(
    trio: Trio,
) -> None:
    task_id, _ = await trio.make("c", "ask_name", new_key())

    def answer(asked: Json) -> Json:
        return accept(name="Ada")

    trio.b.responder = answer
    assert '"Ada"' in words((await trio.b.ask("tasks/result", {"taskId": task_id}))["result"])


async def test_tasks_of_all_dialects_are_listed_together(trio: Trio) -> None:
    made = {(await trio.make(dialect, "echo", new_key()))[0] for dialect in "abc"}
    assert set(await trio.a.tasks()) == made
    page = (await trio.b.ask("tasks/list", {}))["result"]
    assert {task["taskId"] for task in page["tasks"]} == made


@pytest.mark.parametrize("dialect", ["a", "b", "c"])
async def test_I7_another_credential_reads_it_in_no_dialect(
    bridge: Bridge, trio: Trio, dialect: str
) -> None:
    key = new_key()
    task_id, _ = await trio.make(dialect, "hold", key)
    other = Trio(bridge)
    async with other.a, other.b, other.c:
        found = [
            (await other.a.get(task_id))["error"],
            (await other.b.ask("tasks/get", {"taskId": task_id}))["error"],
            (await other.c.get(task_id)).response["error"],
        ]
        assert all(one["code"] == INVALID_PARAMS and NOT_FOUND in one["message"] for one in found)
        nowhere = (await other.b.ask("tasks/get", {"taskId": new_id()}))["error"]
        assert nowhere == found[1]
    await trio.release(key)
