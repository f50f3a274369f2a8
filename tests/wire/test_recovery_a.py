"""Dialect A: tasks whose replica is lost go on at another one (I3, I5, I6; design section 5)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.wire.recovery_world import LEASE, Doomed, killed
from tests.wire.scripted_upstream import Upstream, text, tool
from tests.wire.seed_client import CREATED, Seed, new_id

pytest_plugins = ["tests.wire.seed_fixtures", "tests.wire.recovery_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("ends or freezes the gateways that it speaks to"),
]


async def test_I5_a_call_whose_events_are_numbered_is_resumed_by_another_replica(doomed: Doomed) -> None:
    async with doomed.client("Bearer resumed") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        call.raw(f"id: {task}.1\ndata:\n\n".encode())
        await stream.notification(CREATED)
        await doomed.placed(task)
        await killed(doomed.gateways[0])
        await call.gone.wait()
        assert await call.resumes() == f"{task}.1"
        call.finish(text("after all"))
        await other.reach(task, "completed", seconds=10 * LEASE)
        assert (await other.fetch(task))["result"]["content"] == text("after all")["content"]
        assert len(doomed.upstream.calls[task]) == 1
        assert doomed.taken(1) == {"resumed": 1}


async def test_I5_a_task_whose_upstream_numbers_nothing_is_lost_with_words(doomed: Doomed) -> None:
    async with doomed.client("Bearer lost") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        await seed.reach(task, "working")
        await killed(doomed.gateways[0])
        got = await other.reach(task, "failed", seconds=10 * LEASE)
        assert "utcome unknown" in got["error"]
        # Nobody waits for it any more, and the upstream hears so.
        await call.cancelled()
        assert len(doomed.upstream.calls[task]) == 1
        assert doomed.taken(1) == {"lost": 1}


async def test_I3_what_may_be_repeated_runs_once_more_and_under_another_id(doomed: Doomed) -> None:
    async with doomed.client("Bearer again") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        await seed.begin(task, tool(task, "repeatable"), ident=1)
        first = await doomed.upstream.called(task)
        first.ask()
        await seed.reach(task, "input_required")
        await killed(doomed.gateways[0])
        second = await doomed.upstream.called(task, 2)
        assert first.ident != second.ident
        assert first.message["params"]["arguments"] == second.message["params"]["arguments"]
        second.finish(text("second"))
        await other.reach(task, "completed", seconds=10 * LEASE)
        assert (await other.fetch(task))["result"]["content"] == text("second")["content"]
        await first.cancelled()
        assert len(doomed.upstream.calls[task]) == 2
        assert doomed.taken(1) == {"retried": 1}


async def test_I6_questions_from_before_and_answers_on_their_way_survive_the_replica(
    doomed: Doomed,
) -> None:
    async with doomed.client("Bearer questions") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        call.tell("notifications/message", {"level": "info", "data": "before"})
        questions = [call.numbered_ask(f"{task}.{number}") for number in (1, 2)]
        asked = [await stream.asked() for _ in questions]
        await doomed.placed(f"{task}.2")
        await killed(doomed.gateways[0])
        # Nobody runs the task now: the answer waits in the store for who takes it up.
        await other.answer(asked[0], {"action": "accept", "content": {"name": "early"}})
        assert (await questions[0].answered())["result"]["content"] == {"name": "early"}
        assert await call.resumes() == f"{task}.2"
        await other.answer(asked[1], {"action": "accept", "content": {"name": "late"}})
        assert (await questions[1].answered())["result"]["content"] == {"name": "late"}
        third = call.numbered_ask(f"{task}.3")
        listening = await other.listen()
        again = await listening.asked()
        assert again["id"] not in {one["id"] for one in asked}
        await other.answer(again, {"action": "decline"})
        assert (await third.answered())["result"]["action"] == "decline"
        call.finish()
        await other.reach(task, "completed")
        assert len(doomed.upstream.answers(call)) == 3


async def test_I6_the_stream_of_a_task_goes_on_at_another_replica_without_a_gap(doomed: Doomed) -> None:
    async with doomed.client("Bearer stream") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        call.numbered_log(f"{task}.1", "one")
        await stream.notification("notifications/message")
        await killed(doomed.gateways[0])
        reading = await other.listen(stream.last_id)
        call.numbered_log(f"{task}.2", "two")
        call.finish()
        said = [
            m["params"]["data"] for m in await reading.rest() if m.get("method") == "notifications/message"
        ]
        assert said == ["two"]
        assert "result" in reading.seen[-1]


async def test_I4_a_replica_that_was_frozen_past_its_lease_says_nothing_to_anybody(doomed: Doomed) -> None:
    async with doomed.client("Bearer frozen") as seed:
        other = seed.twin(doomed.url(1))
        task, asking = new_id(), new_id()
        streams = [
            await seed.begin(name, tool(name), ident=number) for number, name in enumerate((task, asking))
        ]
        calls = [await doomed.upstream.called(name) for name in (task, asking)]
        for name, call, stream in zip((task, asking), calls, streams, strict=True):
            call.raw(f"id: {name}.1\ndata:\n\n".encode())
            await stream.notification(CREATED)
            await doomed.placed(name)
        doomed.gateways[0].process.send(signal.SIGSTOP)
        for call, name in zip(calls, (task, asking), strict=True):
            assert await call.resumes() == f"{name}.1"
        # On the connection that the frozen one still has: it must not deal with this.
        await calls[0].say_on_first({"jsonrpc": "2.0", "id": "from-the-past", "method": "ping"})
        await calls[0].say_on_first({"jsonrpc": "2.0", "id": calls[0].ident, "result": text("wrong")})
        calls[0].finish(text("right"))
        await other.reach(task, "completed", seconds=10 * LEASE)
        before = len(doomed.upstream.heard)
        doomed.gateways[0].process.send(signal.SIGCONT)
        # What the store says may be told, and nothing else.
        told = [m for m in await streams[0].rest() if "result" in m or "error" in m]
        assert [m["result"]["content"] for m in told] in ([], [text("right")["content"]])
        assert not any("result" in m or "error" in m for m in await streams[1].rest())
        assert (await other.fetch(task))["result"]["content"] == text("right")["content"]
        assert (await other.get(asking))["result"]["status"] == "working"
        calls[1].finish()
        await other.reach(asking, "completed")
        assert len(doomed.upstream.heard) == before
        assert [len(doomed.upstream.calls[name]) for name in (task, asking)] == [1, 1]


async def test_I3_a_call_that_waits_for_its_turn_is_made_by_the_replica_that_is_left(
    doomed: Doomed,
) -> None:
    async with doomed.client("Bearer queue") as seed:
        other = seed.twin(doomed.url(1))
        first, second = new_id(), new_id()
        await seed.begin(first, tool(first, "one_by_one"), ident=1)
        call = await doomed.upstream.called(first)
        await seed.begin(second, tool(second, "one_by_one"), ident=2)
        await seed.reach(second, "submitted")
        await killed(doomed.gateways[0])
        await other.reach(first, "failed", seconds=10 * LEASE)
        (await doomed.upstream.called(second)).finish(text("its turn"))
        await other.reach(second, "completed")
        assert [len(doomed.upstream.calls[name]) for name in (first, second)] == [1, 1]
        assert doomed.taken(1) == {"lost": 1, "begun": 1}
        call.end()


async def test_a_planned_stop_hands_over_what_goes_on_and_ends_what_does_not(doomed: Doomed) -> None:
    hasty = [await doomed.start(drain="100ms"), doomed.gateways[1]]
    async with Seed(hasty[0].url("main"), "Bearer stop") as seed:
        other = seed.twin(hasty[1].url("main"))
        goes_on, ends = new_id(), new_id()
        streams = [
            await seed.begin(name, tool(name), ident=number) for number, name in enumerate((goes_on, ends))
        ]
        calls = [await doomed.upstream.called(name) for name in (goes_on, ends)]
        calls[0].raw(f"id: {goes_on}.1\ndata:\n\n".encode())
        await doomed.placed(goes_on)
        hasty[0].process.send(signal.SIGTERM)
        assert "error" in await streams[1].response(1)
        assert not any("result" in m or "error" in m for m in await streams[0].rest())
        assert await asyncio.to_thread(hasty[0].process.wait_end) == 0
        assert await calls[0].resumes() == f"{goes_on}.1"
        calls[0].finish(text("handed over"))
        await other.reach(goes_on, "completed")
        assert "the gateway stopped" in (await other.reach(ends, "failed"))["error"]
        assert not calls[0].is_cancelled
        assert len(doomed.upstream.calls[goes_on]) == 1


async def test_I6_a_cancel_after_the_replica_was_lost_reaches_the_upstream(doomed: Doomed) -> None:
    async with doomed.client("Bearer cancel") as seed:
        other = seed.twin(doomed.url(1))
        task = new_id()
        await seed.begin(task, tool(task), ident=1)
        call = await doomed.upstream.called(task)
        call.raw(f"id: {task}.1\ndata:\n\n".encode())
        await doomed.placed(task)
        await killed(doomed.gateways[0])
        await call.resumes()
        await other.cancel(1)
        await other.reach(task, "cancelled")
        await call.cancelled()


async def test_without_a_secret_of_the_operator_only_calls_without_credentials_are_taken_up(
    scripted: Upstream, redis_url: str, tmp_path: Path
) -> None:
    world = Doomed(scripted, redis_url, tmp_path)
    del world.config["secret"]
    try:
        await world.start()
        await world.start()
        async with world.client("Bearer secret-of-a-client") as known, Seed(world.url()) as nobody:
            tasks = [new_id(), new_id()]
            for client, task in zip((known, nobody), tasks, strict=True):
                await client.begin(task, tool(task), ident=1)
                (await scripted.called(task)).raw(f"id: {task}.1\ndata:\n\n".encode())
                await world.placed(task)
            assert not await world.holds(b"secret-of-a-client")
            there = [client.twin(world.url(1)) for client in (known, nobody)]
            await killed(world.gateways[0])
            call = await scripted.called(tasks[1])
            await call.resumes()
            call.finish()
            await there[1].reach(tasks[1], "completed")
            got = await there[0].reach(tasks[0], "failed", seconds=10 * LEASE)
            assert "credentials are not kept" in got["error"]
    finally:
        await world.end()
