"""Dialect A: what becomes of a task when something else fails (I5, I8; design section 5)."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.balancers import CHOICE
from tests.wire.scripted_upstream import Call, Upstream, text, tool
from tests.wire.seed_client import CREATED, NOT_FOUND, PAUSE, Seed, new_id, refusal, too_early
from tests.wire.seed_world import TASKS, House, configuration, started

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


def half_json(call: Call) -> None:
    call.reply(200, "application/json", b'{"jsonrpc":"2.0","id":', length=500)


def short_json(call: Call) -> None:
    call.reply(200, "application/json", b'{"jsonrpc":"2.0","id":')


def html(call: Call) -> None:
    call.reply(200, "text/html", b"<html>It works!</html>")


def error_500(call: Call) -> None:
    call.reply(500, "text/plain", b"Internal Server Error")


def error_503(call: Call) -> None:
    call.reply(503, "application/json", b'{"error": "busy"}')


def empty(call: Call) -> None:
    call.reply(200, "application/json", b"")


def accepted(call: Call) -> None:
    call.reply(202, "application/json", b"")


def wrong_id(call: Call) -> None:
    call.say({"jsonrpc": "2.0", "id": "somebody else", "result": text("wrong")})
    call.end()


def wrong_id_json(call: Call) -> None:
    call.reply(200, "application/json", b'{"jsonrpc":"2.0","id":"somebody else","result":{}}')


def cut(call: Call) -> None:
    call.tell("notifications/message", {"level": "info", "data": 1})
    call.cut()


def cut_at_once(call: Call) -> None:
    call.cut()


def ends_without_answer(call: Call) -> None:
    call.tell("notifications/message", {"level": "info", "data": 1})
    call.end()


def noise(call: Call) -> None:
    call.raw(b"data: {not json}\n\n")
    call.end()


@pytest.mark.parametrize(
    "fault",
    [
        half_json,
        short_json,
        html,
        error_500,
        error_503,
        empty,
        accepted,
        wrong_id,
        wrong_id_json,
        cut,
        cut_at_once,
        ends_without_answer,
        noise,
    ],
)
async def test_I5_a_fault_of_the_upstream_fails_the_task_in_words(
    house: House, seed: Seed, fault: object
) -> None:
    assert callable(fault)
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    await stream.notification(CREATED)
    fault(await house.upstream.called(task))
    answer = await stream.response(1)
    assert answer["error"]["message"]
    got = await seed.reach(task, "failed")
    assert len(got["error"]) > 10
    assert "Traceback" not in got["error"]
    assert "Errno" not in got["error"]
    assert refusal(await seed.fetch(task)) == too_early("failed")
    assert len(house.upstream.calls[task]) == 1


async def test_the_first_of_two_answers_counts(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    call.say({"jsonrpc": "2.0", "id": call.ident, "result": text("first")})
    call.finish(text("second"))
    answers = [m for m in await stream.rest() if m.get("id") == 1]
    assert [answer["result"]["content"] for answer in answers] == [text("first")["content"]]
    assert (await seed.fetch(task))["result"]["content"] == text("first")["content"]


async def test_an_answer_as_json_is_as_good_as_a_stream(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    ident = f'"{call.ident}"' if isinstance(call.ident, str) else str(call.ident)
    call.reply(200, "application/json", f'{{"result":{{"n":1.0}},"id":{ident},"jsonrpc":"2.0"}}'.encode())
    assert (await stream.response(1))["result"]["n"] == 1.0
    await seed.reach(task, "completed")


async def test_a_session_that_the_upstream_forgot_fails_the_task_with_the_reason(
    house: House, seed: Seed
) -> None:
    task, later = new_id(), new_id()
    await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    call.finish()
    await seed.reach(task, "completed")
    house.upstream.deleted.add(call.session)
    await seed.begin(later, tool(later), ident=2)
    got = await seed.reach(later, "failed")
    assert "session" in got["error"].lower()


async def test_whoever_goes_on_in_a_session_that_the_upstream_forgot_is_told_to_initialize_anew(
    house: House, seed: Seed
) -> None:
    task, later, last = new_id(), new_id(), new_id()
    await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    call.finish()
    await seed.reach(task, "completed")
    house.upstream.deleted.add(call.session)
    await seed.begin(later, tool(later), ident=2)
    await seed.reach(later, "failed")
    # Each replica finds it out for itself.
    statuses: list[int] = []
    for number in range(CHOICE.doors):
        again = new_id()
        statuses.append((await seed.begin(again, tool(again), ident=10 + number)).status)
        if statuses[-1] == 404:
            break
        await seed.reach(again, "failed")
    assert statuses[-1] == 404
    # What the session's tasks were is still told.
    assert (await seed.fetch(task))["result"]["content"]
    await seed.initialize()
    await seed.begin(last, tool(last), ident=4)
    (await house.upstream.called(last)).finish()
    await seed.reach(last, "completed")


async def test_I5_a_call_that_takes_too_long_fails_and_the_upstream_hears(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task, "short"), ident=1)
    call = await house.upstream.called(task)
    await call.cancelled()
    got = await seed.reach(task, "failed")
    assert "300" in got["error"] or "0.3" in got["error"]
    assert "error" in await stream.response(1)
    call.finish()
    assert (await seed.get(task))["result"]["status"] == "failed"


async def test_I5_a_question_that_nobody_answers_ends_with_the_time_limit(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, tool(task, "short"), ident=1)
    call = await house.upstream.called(task)
    call.ask()
    await call.cancelled()
    await seed.reach(task, "failed")


async def test_an_upstream_that_is_down_is_said_to_be(
    scripted: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with socket.socket() as silent:
        # Bound, so that nobody else takes the port, but nobody listens.
        silent.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        config = configuration(scripted, "memory://", upstreams={"main": {"url": down, "tasks": TASKS}})
        gateway = await started(config, tmp_path_factory.mktemp("down"))
        seed = Seed(gateway.url("main"))
        try:
            params = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            }
            async with await seed.post(
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            ) as exchange:
                assert exchange.status in (200, 502, 503)
                answer = await exchange.json()
            assert answer["id"] == 1
            assert "pstream" in refusal(answer)[1]
        finally:
            seed.vanish()
            await asyncio.to_thread(gateway.end)


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
async def test_I8_a_task_is_kept_as_long_as_announced_and_no_longer(
    house: House, seed: Seed, how: str
) -> None:
    task = new_id()
    await seed.begin(task, tool(task), ident="end", task={"keepAlive": 400})
    call = await house.upstream.called(task)
    begin = asyncio.get_running_loop().time()
    if how == "completed":
        call.finish()
    elif how == "failed":
        call.refuse(-1, "no")
    else:
        await seed.cancel("end")
    got = await seed.reach(task, how)
    assert got["keepAlive"] == 400
    answer = await seed.get(task)
    async with asyncio.timeout(5):
        while "result" in answer:
            await asyncio.sleep(PAUSE)
            answer = await seed.get(task)
    assert asyncio.get_running_loop().time() - begin >= 0.4
    assert refusal(answer) in (NOT_FOUND, (NOT_FOUND[0], "Failed to retrieve task: Task has expired"))
    assert task not in await seed.tasks()
    assert refusal(await seed.fetch(task))[0] == NOT_FOUND[0]


async def test_a_stream_that_numbers_its_events_is_taken_up_again(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    for number in range(2):
        params = {"level": "info", "data": number}
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
        call.say(message, f"{task}.{number}")
    await stream.until(lambda m: m["params"].get("data") == 1)
    call.cut()
    assert await call.resumes() == f"{task}.1"
    await seed.reach(task, "working")
    call.finish(text("taken up"))
    assert (await stream.response(1))["result"]["content"] == text("taken up")["content"]
    assert len(house.upstream.calls[task]) == 1


async def test_a_connection_that_is_lost_before_the_request_left_fails_or_runs_once(
    house: House, seed: Seed
) -> None:
    for _ in range(5):
        warm, task = new_id(), new_id()
        await seed.begin(warm, tool(warm))
        (await house.upstream.called(warm)).cut()
        await seed.reach(warm, "failed")
        await seed.begin(task, tool(task))
        (await house.upstream.called(task)).finish()
        await seed.reach(task, "completed")
        assert len(house.upstream.calls[task]) == 1
