"""What the last version has left in Redis, and what its clients hold, is good for this one (I5, I6).

In a deploy both run at once: sessions, tasks, questions and leases of the one meet the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import pytest
import pytest_asyncio

from gateway.store.records import read_command
from tests.wire.answers import Json
from tests.wire.recovery_world import LEASE
from tests.wire.scripted_upstream import Upstream, text
from tests.wire.seed_client import RELATED, Seed, refusal, too_early
from tests.wire.seed_world import House, configuration, started
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import accept, retry
from tests.wire.tasks_b_client import TasksB
from tests.wire.tasks_b_world import without_meta
from tests.wire.thawed import FOLDER, Thawed

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
VERSIONS: Final = [file.stem for file in sorted(FOLDER.glob("*.json"))]
# The id of the request that made the task `a-working`.
REQUESTED: Final = 0
_LONG_MS: Final = 60_000
_MOVED: Final = ("createdAt", "lastUpdatedAt")


class Home(House):
    """A gateway over what an earlier version has left."""

    thawed: Thawed


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=VERSIONS)
async def newer(
    request: pytest.FixtureRequest,
    scripted: Upstream,
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Home]:
    """Serve by this version."""
    config = configuration(scripted, redis_url, lease=f"{LEASE:g}s")
    config["upstreams"]["main"]["answer_within"] = "3650d"
    thawed = Thawed(request.param, redis_url, config["store"]["prefix"])
    assert config["secret"] == thawed.known["secret"]
    home = Home(scripted, [await started(config, tmp_path_factory.mktemp("newer"))], redis_url)
    home.thawed = thawed
    try:
        yield home
    finally:
        await asyncio.to_thread(home.gateways[0].end)
        await thawed.close()


@pytest_asyncio.fixture(loop_scope="session")
async def home(newer: Home) -> Home:
    """Put what the earlier version left under the gateway; its replicas hold their leases."""
    await newer.thawed.put(leases_ms=_LONG_MS)
    return newer


@asynccontextmanager
async def client_a(home: Home) -> AsyncGenerator[tuple[Seed, Json]]:
    """Yield a client of dialect A with the session that it had, and its tasks as it has seen them."""
    known = home.thawed.known["a"]
    async with home.client(known["authorization"]) as seed:
        seed.session, seed.version = known["session"], known["version"]
        yield seed, known["tasks"]


@asynccontextmanager
async def client_b(home: Home) -> AsyncGenerator[tuple[TasksB, Json]]:
    """Yield a client of dialect B, the same way."""
    known = home.thawed.known["b"]
    async with TasksB(home.url(), authorization=known["authorization"]) as client:
        client.session, client.version = known["session"], known["version"]
        yield client, known["tasks"]


@asynccontextmanager
async def client_c(home: Home) -> AsyncGenerator[tuple[Stateless, Json]]:
    """Yield a client of dialect C, the same way."""
    known = home.thawed.known["c"]
    async with Stateless(home.url(), authorization=known["authorization"]) as client:
        yield client, known["tasks"]


def asked_before(home: Home, task: str) -> Json:
    """Return the question of a task, as its client has heard it from the earlier version."""
    for key in home.thawed.known["keys"].values():
        if key["kind"] == "hash" and task in key["value"].get("made", ""):
            (ident,) = (name.removeprefix("p:") for name in key["value"] if name.startswith("p:"))
            return {"id": ident, "params": {"_meta": {RELATED: {"taskId": task}}}}
    raise AssertionError(task)


def moved(home: Home, task: Json) -> Json:
    """Return a task as it is to be shown now: its times have been moved."""
    return {
        name: _ms(told) + home.thawed.moved_ms if name in _MOVED else told for name, told in task.items()
    }


def shown(task: Json) -> Json:
    """Return a task as it is shown, times in milliseconds."""
    return {name: _ms(told) if name in _MOVED else told for name, told in task.items()}


def _ms(told: str) -> int:
    return round(datetime.fromisoformat(told).timestamp() * 1000)


async def test_I6_a_session_and_tasks_of_dialect_a_go_on(home: Home) -> None:
    async with client_a(home) as (seed, tasks):
        for name, task in tasks.items():
            assert shown((await seed.get(name))["result"]) == moved(home, task)
        assert set(await seed.tasks()) == set(tasks)
        assert (await seed.fetch("a-completed"))["result"]["content"] == text("frozen a")["content"]
        assert refusal(await seed.fetch("a-working")) == too_early("working")
        reading = await seed.listen(home.thawed.known["a"]["after"])
        *told, last = await reading.rest()
        assert last["result"]["content"] == text("frozen a")["content"]
        assert "before the end" in [m["params"].get("data") for m in told if "params" in m]


async def test_a_task_of_dialect_a_that_another_version_runs_is_answered_cancelled_and_deleted(
    home: Home,
) -> None:
    async with client_a(home) as (seed, tasks):
        await seed.answer(asked_before(home, "a-input"), accept(name="Ada"))
        await seed.reach("a-input", "working")
        await seed.cancel(REQUESTED)
        await seed.reach("a-working", "cancelled")
        for name in ("a-completed", "a-queued"):
            assert "result" in await seed.delete(name)
        assert set(await seed.tasks()) == set(tasks) - {"a-completed", "a-queued"}


async def test_I6_a_session_and_tasks_of_dialect_b_go_on(home: Home) -> None:
    async with client_b(home) as (client, tasks):
        for task in tasks.values():
            assert shown(without_meta((await client.get(task["taskId"]))["result"])) == moved(home, task)
        assert set(await client.list()) == {task["taskId"] for task in tasks.values()}
        done = await client.result(tasks["b-completed"]["taskId"])
        assert without_meta(done["result"]) == text("frozen b")
        assert "broken" in (await client.result(tasks["b-failed"]["taskId"]))["error"]["message"]
        waiting = client.request("tasks/result", {"taskId": tasks["b-input"]["taskId"]})
        async with await client.post(waiting) as waiter:
            question = await waiter.until(lambda m: "method" in m)
            await client.answer(question, accept(name="Ada"))
            await client.reach(tasks["b-input"]["taskId"], "working")
        await client.cancel(tasks["b-working"]["taskId"])


async def test_I6_tasks_of_dialect_c_go_on(home: Home) -> None:
    async with client_c(home) as (client, tasks):
        for task in tasks.values():
            assert shown((await client.get(task["taskId"])).result) == moved(home, task)
        asking = tasks["c-input"]
        await client.update(
            asking["taskId"], {name: accept(name="Ada") for name in asking["inputRequests"]}
        )
        await client.reach(asking["taskId"], "working")
        for name in ("c-working", "c-answered"):
            await client.cancel(tasks[name]["taskId"])
            await client.reach(tasks[name]["taskId"], "cancelled")


async def test_I5_what_its_replicas_ran_is_lost_with_words_when_they_are_gone(home: Home) -> None:
    held = home.thawed.known["held"]
    more = retry(held["asked"], {"elicitation/create": accept(name="Ada")})
    async with (
        client_a(home) as (seed, _),
        client_b(home) as (client, tasks_b),
        client_c(home) as (stateless, tasks_c),
        Stateless(home.url(), authorization=held["authorization"], tasks=False) as caller,
    ):
        retried = asyncio.create_task(caller.call(**_named(held["params"]), more=more))
        await home.thawed.put(leases_ms=0)
        for name in ("a-working", "a-input", "a-queued"):
            assert "utcome unknown" in (await seed.reach(name, "failed"))["error"]
        for name in ("b-working", "b-input"):
            failed = await client.reach(tasks_b[name]["taskId"], "failed")
            assert "utcome unknown" in failed["statusMessage"]
        for name in ("c-working", "c-input", "c-answered"):
            failed = await stateless.reach(tasks_c[name]["taskId"], "failed")
            assert "utcome unknown" in failed["error"]["message"]
        # The state was understood: the call behind it is what was lost.
        assert "utcome unknown" in (await retried).refusal[2]
        # What had ended stays as it was, and nothing is called again.
        assert (await seed.get("a-completed"))["result"]["status"] == "completed"
        for names in home.thawed.known["a"]["tasks"], tasks_b, tasks_c:
            assert not any(home.upstream.calls.get(name) for name in names)


def _named(params: Json) -> dict[str, Any]:
    return {"tool": params["name"], "arguments": params["arguments"]}


async def test_the_words_of_its_replicas_to_others_are_understood(newer: Home) -> None:
    heard = [read_command(words.encode("latin-1")) for _, words in newer.thawed.known["commands"]]
    kinds = {command.kind for command in heard if command is not None}
    assert None not in heard
    assert {"cancel", "answer", "offer", "unwait"} <= kinds


async def test_what_the_next_version_has_made_is_shown_as_far_as_it_is_understood(home: Home) -> None:
    """The same records with another number, members that are not known, and a status that is not."""
    async with client_a(home) as (seed, tasks), client_b(home) as (client, tasks_b):
        for field, content in (("version", b"2"), ("next", b"\x00\xff"), ("next:list", b"[1]")):
            await home.thawed.change("", field, content)
        await home.thawed.change("a-working", "status", b"paused")
        assert (await seed.get("a-working"))["result"]["status"] == "working"
        assert (await seed.get("a-input"))["result"] == tasks["a-input"]
        assert set(await seed.tasks()) == set(tasks)
        assert set(await client.list()) == {task["taskId"] for task in tasks_b.values()}
        assert refusal(await seed.fetch("a-working"))[1].startswith("Cannot retrieve result")
        await seed.answer(asked_before(home, "a-input"), accept(name="Ada"))
        await seed.reach("a-input", "working")
        assert (await seed.fetch("a-completed"))["result"]["content"] == text("frozen a")["content"]
