"""Replicas whose clocks differ by minutes: the store's decides (design section 6; invariants 5, 6, 8, 10).

One is seven minutes ahead and one seven behind, by libfaketime; what elapses is the same for both.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.tools import ToolMissing
from tests.wire.recovery_world import LEASE, Doomed, killed
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import Json, Seed, new_id
from tests.wire.seed_world import TASKS
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import accept
from tests.wire.tasks_b_client import TasksB
from tests.wire.tasks_b_world import without_meta

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("has replicas with clocks of their own"),
]
SKEWS: Final = ("+7m", "-7m")
BOTH_WAYS: Final = pytest.mark.parametrize(("here", "there"), [(0, 1), (1, 0)], ids=["ahead", "behind"])
_BRIEF: Final[Json] = {"timeout": "100ms", "keep_alive": {"default": "700ms"}}
# What a clock may be off that is not seven minutes off.
_NEAR: Final = 60.0


def faked(skew: str) -> dict[str, str]:
    """Return the environment of a process whose clock is off; what is monotonic stays as it is."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        raise ToolMissing("libfaketime is missing: install the Debian package 'faketime'")
    return {"LD_PRELOAD": str(found[0]), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Skewed(Doomed):
    """Replicas, of which each has a clock of its own."""

    async def begin(self) -> None:
        """Start one ahead and one behind."""
        await self.beside(*SKEWS)

    async def beside(self, *skews: str) -> list[Gateway]:
        """Start more replicas; return when they serve."""
        more = [Gateway(self.config, self._place, faked(skew)) for skew in skews]
        self.gateways += more
        for gateway in more:
            await asyncio.to_thread(gateway.wait)
        return more


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def skewed(
    scripted: Upstream, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Skewed]:
    """Serve by two replicas whose clocks are fourteen minutes apart."""
    place = tmp_path_factory.mktemp("skewed")
    world = Skewed(scripted, redis_url, place, limits={"rates": {"list": "60/minute"}})
    upstream: Json = {"url": scripted.url, "tasks": {**TASKS, "tools": {**TASKS["tools"], "brief": _BRIEF}}}
    world.config["upstreams"] = {
        "main": {**upstream, "answer_within": "1m"},
        "hasty": {**upstream, "answer_within": "400ms"},
    }
    try:
        await world.begin()
        yield world
    finally:
        await world.end()


def told_at(task: Json, *fields: str) -> Iterable[float]:
    """Return times of a task, in seconds since the epoch."""
    return [datetime.fromisoformat(task[field]).timestamp() for field in fields]


def lines_of(gateway: Gateway) -> list[Json]:
    """Return what a gateway has logged."""
    return [json.loads(line) for line in gateway.process.lines if line.startswith("{")]


async def test_the_clocks_of_the_replicas_do_differ(skewed: Skewed) -> None:
    """Without this the other tests would show nothing."""
    offs = [
        datetime.fromisoformat(lines_of(gateway)[-1]["time"]).timestamp() - time.time()
        for gateway in skewed.gateways
    ]
    assert 420 - _NEAR < offs[0] < 420 + _NEAR
    assert -420 - _NEAR < offs[1] < -420 + _NEAR


@BOTH_WAYS
async def test_I6_a_task_of_dialect_a_is_the_same_everywhere(skewed: Skewed, here: int, there: int) -> None:
    async with skewed.client(f"Bearer a{here}", here) as seed:
        other = seed.twin(skewed.url(there))
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        call = await skewed.upstream.called(task)
        shown = [(await one.get(task))["result"] for one in (seed, other)]
        assert shown[0] == shown[1]
        call.finish(text("in time"))
        await other.reach(task, "completed")
        assert (await other.fetch(task))["result"]["content"] == text("in time")["content"]


@BOTH_WAYS
async def test_I6_a_task_of_dialect_b_is_the_same_everywhere(skewed: Skewed, here: int, there: int) -> None:
    async with TasksB(skewed.url(here), authorization=f"Bearer b{here}") as client:
        other = client.twin(skewed.url(there))
        key = new_id()
        made = (await client.call_task("work", {"key": key}))["task"]
        call = await skewed.upstream.called(key)
        shown = [(await one.get(made["taskId"]))["result"] for one in (client, other)]
        assert shown[0] == shown[1]
        assert [shown[0][field] for field in ("createdAt", "ttl")] == [made["createdAt"], made["ttl"]]
        cancelled = (await other.cancel(made["taskId"]))["result"]
        await call.cancelled()
        made_at, moved_at = told_at(cancelled, "createdAt", "lastUpdatedAt")
        assert abs(made_at - time.time()) < _NEAR
        assert 0 <= moved_at - made_at < _NEAR


@BOTH_WAYS
async def test_I6_a_task_of_dialect_c_is_the_same_everywhere(skewed: Skewed, here: int, there: int) -> None:
    async with (
        Stateless(skewed.url(here), authorization=f"Bearer c{here}") as client,
        Stateless(skewed.url(there), authorization=f"Bearer c{here}") as other,
    ):
        key = new_id()
        made = (await client.call("always_task", {"key": key})).result
        call = await skewed.upstream.called(key)
        shown: list[Json] = [(await one.get(made["taskId"])).result for one in (client, other)]
        assert [{name: one[name] for name in ("createdAt", "ttlMs", "status")} for one in shown] == [
            {name: made[name] for name in ("createdAt", "ttlMs", "status")}
        ] * 2
        call.finish(text("in time"))
        ended: Json = await other.reach(made["taskId"], "completed")
        made_at, moved_at = told_at(ended, "createdAt", "lastUpdatedAt")
        assert abs(made_at - time.time()) < _NEAR
        assert 0 <= moved_at - made_at < _NEAR


@BOTH_WAYS
async def test_I8_a_result_is_kept_as_long_as_said_and_no_longer(
    skewed: Skewed, here: int, there: int
) -> None:
    async with TasksB(skewed.url(here), authorization=f"Bearer kept{here}") as client:
        other = client.twin(skewed.url(there))
        key = new_id()
        began = time.monotonic()
        made = (await client.call_task("brief", {"key": key}))["task"]
        created = time.monotonic()
        assert made["ttl"] == 700
        (await skewed.upstream.called(key)).finish(text("brief"))
        async with asyncio.timeout(10):
            while "result" in (answer := await other.result(made["taskId"])):
                assert without_meta(answer["result"]) == text("brief")
                await asyncio.sleep(0.02)
        assert time.monotonic() - began > 0.65, (began, created)
        assert "error" in await client.get(made["taskId"])
        # Operators are told too, not minutes early or late.
        skewed.gateways[here].process.wait_line(f'"expired".*{made["taskId"]}', 5 * LEASE)


@BOTH_WAYS
async def test_I6_a_request_state_is_good_everywhere(skewed: Skewed, here: int, there: int) -> None:
    async with (
        Stateless(skewed.url(here), authorization=f"Bearer state{here}", tasks=False) as client,
        Stateless(skewed.url(there), authorization=f"Bearer state{here}", tasks=False) as other,
    ):
        key = new_id()
        calling = asyncio.create_task(client.call("work", {"key": key}))
        question = (await skewed.upstream.called(key)).ask()
        asked = (await calling).result
        retry = asyncio.create_task(other.call("work", {"key": key}, more=answered(asked)))
        await question.answered()
        (await skewed.upstream.called(key)).finish(text("came back"))
        assert (await retry).result["content"] == text("came back")["content"]


@BOTH_WAYS
async def test_a_request_state_is_good_for_its_time_only(skewed: Skewed, here: int, there: int) -> None:
    async with (
        Stateless(skewed.url(here, "hasty"), authorization=f"Bearer late{here}", tasks=False) as client,
        Stateless(skewed.url(there, "hasty"), authorization=f"Bearer late{here}", tasks=False) as other,
    ):
        key = new_id()
        calling = asyncio.create_task(client.call("work", {"key": key}))
        call = await skewed.upstream.called(key)
        call.ask()
        asked = (await calling).result
        await call.cancelled()
        async with asyncio.timeout(10):
            while True:
                late = await other.call("work", {"key": key}, more=answered(asked))
                assert "error" in late.response, late.response
                if "expired" in late.refusal[2]:
                    break
                await asyncio.sleep(0.02)
        assert len(skewed.upstream.calls[key]) == 1


def answered(asked: Json) -> Json:
    """Return what a retry adds to its request."""
    answers: dict[str, Any] = {name: accept(name="Ada") for name in asked["inputRequests"]}
    return {"inputResponses": answers, "requestState": asked["requestState"]}


async def test_I10_a_rate_is_one_for_all_and_says_when_to_come_back(skewed: Skewed) -> None:
    async with TasksB(skewed.url(0), authorization="Bearer rate") as client:
        both = [client, client.twin(skewed.url(1))]
        answers = [await both[number % 2].ask("tasks/list", {}) for number in range(70)]
        refused = [answer["error"]["data"] for answer in answers if "error" in answer]
        # What a replica has taken of a window at once, a twentieth, may be lost to the other.
        assert 60 - 2 * 3 <= len(answers) - len(refused) <= 60
        assert all(0 < one["retryAfter"] <= 60 for one in refused)


async def test_a_list_is_read_page_by_page_at_any_replica(
    skewed: Skewed, scripted: Upstream, redis_url: str
) -> None:
    async with skewed.client("Bearer pages") as seed:
        other = seed.twin(skewed.url(1))
        names = [new_id() for _ in range(4)]
        for number, name in enumerate(names):
            await (seed, other)[number % 2].begin(name, tool(name), ident=number)
            (await scripted.called(name)).finish()
        # The order of a list is that of creation, whoever created.
        assert [list(await one.tasks()) for one in (seed, other)] == [names, names]


@BOTH_WAYS
async def test_I5_a_dead_replicas_task_is_taken_over_in_time_and_no_living_ones(
    skewed: Skewed, here: int, there: int
) -> None:
    (doomed,) = await skewed.beside(SKEWS[here])
    async with (
        Seed(doomed.url("main"), f"Bearer dead{here}") as seed,
        skewed.client("Bearer alive") as alive,
    ):
        other = seed.twin(skewed.url(there))
        before = {number: skewed.taken(number) for number in (0, 1)}
        dies, lives = new_id(), new_id()
        await seed.begin(dies, tool(dies), ident=1)
        await alive.twin(skewed.url(here)).begin(lives, tool(lives), ident=1)
        calls = [await skewed.upstream.called(name) for name in (dies, lives)]
        for name, call in zip((dies, lives), calls, strict=True):
            call.raw(f"id: {name}.1\ndata:\n\n".encode())
            await skewed.placed(name)
        # So long that each lease has been renewed or lost, whoever's clock had counted.
        until = time.monotonic() + 2.5 * LEASE
        while time.monotonic() < until:
            assert (await other.get(dies))["result"]["status"] == "working"
            await asyncio.sleep(0.1)
        assert {number: skewed.taken(number) for number in (0, 1)} == before
        await killed(doomed)
        died = time.monotonic()
        assert await calls[0].resumes() == f"{dies}.1"
        assert time.monotonic() - died < 4 * LEASE
        for name, call in zip((dies, lives), calls, strict=True):
            call.finish(text(name))
        await other.reach(dies, "completed")
        await alive.reach(lives, "completed")
        assert [len(skewed.upstream.calls[name]) for name in (dies, lives)] == [1, 1]
