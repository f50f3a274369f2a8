"""Dialect A: the client goes and comes back; the task runs on (I11)."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.seed_client import CREATED, NOT_FOUND, Json, Seed, augmented, new_id, refusal, related_to
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


def log(call: Call, number: int) -> None:
    call.tell("notifications/message", {"level": "info", "data": number})


def logged(messages: list[Json]) -> list[int]:
    return [m["params"]["data"] for m in messages if m.get("method") == "notifications/message"]


async def test_a_task_outlives_its_connection(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task))
    await stream.notification(CREATED)
    call = await house.upstream.called(task)
    stream.cut()
    await seed.reach(task, "working")
    log(call, 1)
    call.finish(text("still here"))
    await seed.reach(task, "completed")
    assert (await seed.fetch(task))["result"]["content"] == text("still here")["content"]
    assert not call.is_cancelled
    assert not call.gone.is_set()


async def test_a_client_that_goes_before_the_head_loses_nothing(house: House, seed: Seed) -> None:
    for _ in range(10):
        task = new_id()
        body = json.dumps(augmented(task, tool(task), "tools/call", seed.ident())).encode()
        host, port = seed.url.split("/")[2].split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /main/mcp HTTP/1.1\r\nHost: {host}\r\nAccept: application/json, text/event-stream\r\n"
        head += f"Content-Type: application/json\r\nMcp-Session-Id: {seed.session}\r\n"
        head += f"Authorization: {seed.authorization}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        # Whether the first one was taken or not: the retry settles it, and it runs once.
        async with await seed.begin(task, tool(task)):
            call = await house.upstream.called(task)
            call.finish()
            await seed.reach(task, "completed")
        assert len(house.upstream.calls[task]) == 1
        assert not call.is_cancelled


async def test_half_a_request_makes_no_task(house: House, seed: Seed) -> None:
    task = new_id()
    body = json.dumps(augmented(task, tool(task), "tools/call", 1)).encode()
    host, port = seed.url.split("/")[2].split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /main/mcp HTTP/1.1\r\nHost: {host}\r\nMcp-Session-Id: {seed.session}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body[:-10])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert "error" in await seed.get(task)
    assert not house.upstream.calls[task]


async def test_a_client_that_goes_while_a_plain_call_runs_does_not_cancel_it(
    house: House, seed: Seed
) -> None:
    key = new_id()
    async with asyncio.TaskGroup() as group:
        posting = group.create_task(
            seed.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool(key)})
        )
        call = await house.upstream.called(key)
        call.tell("notifications/message", {"level": "info", "data": 1})
    await (await posting).next()
    (await posting).cut()
    await seed.ask("ping")
    assert not call.is_cancelled
    assert not call.gone.is_set()
    call.finish()


async def test_the_stream_of_a_task_can_be_resumed(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident="resume")
    call = await house.upstream.called(task)
    for number in range(3):
        log(call, number)
    await stream.until(lambda m: logged([m]) == [1])
    assert stream.last_id is not None
    stream.cut()
    for number in range(3, 6):
        log(call, number)
    back = await seed.listen(stream.last_id)
    await back.until(lambda m: logged([m]) == [4])
    back.cut()
    again = await seed.listen(back.last_id)
    call.finish(text("resumed"))
    answer = await again.response("resume")
    assert answer["result"]["content"] == text("resumed")["content"]
    assert logged(stream.seen + back.seen + again.seen) == [0, 1, 2, 3, 4, 5]
    assert {related_to(m) for m in back.seen + again.seen} == {task}
    assert await again.next() is None


async def test_the_stream_of_a_task_that_has_ended_can_be_resumed(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    await stream.notification(CREATED)
    call = await house.upstream.called(task)
    stream.cut()
    log(call, 0)
    call.finish()
    await seed.reach(task, "completed")
    for _ in range(2):
        back = await seed.listen(stream.last_id)
        assert [m.get("id", "told") for m in await back.rest()] == ["told", 1]


async def test_I6_the_stream_of_a_task_is_resumed_on_another_replica(pair: House) -> None:
    async with pair.client("Bearer resumed-elsewhere") as seed:
        other = seed.twin(pair.url(replica=1))
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        call = await pair.upstream.called(task)
        log(call, 0)
        await stream.until(lambda m: logged([m]) == [0])
        stream.cut()
        log(call, 1)
        back = await other.listen(stream.last_id)
        await back.until(lambda m: logged([m]) == [1])
        log(call, 2)
        call.finish()
        await back.response(1)
        assert logged(back.seen) == [1, 2]


async def test_I7_a_foreign_session_resumes_nothing(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    await stream.notification(CREATED)
    (await house.upstream.called(task)).finish(text("secret"))
    await seed.reach(task, "completed")
    async with house.client("Bearer thief") as thief:
        exchange = await thief.send("GET", headers={"Last-Event-ID": stream.last_id})
        if exchange.status == 200:
            with contextlib.suppress(TimeoutError):
                await exchange.next(0.3)
            assert exchange.seen == []
        else:
            assert b"secret" not in await exchange.body()


@pytest.mark.parametrize("ident", ["junk", "0", "mtg-", "x" * 3000, "%00"])
async def test_a_strange_event_id_is_no_failure_of_the_gateway(seed: Seed, ident: str) -> None:
    exchange = await seed.send("GET", headers={"Last-Event-ID": ident})
    assert exchange.status < 500


async def test_a_client_may_go_while_its_task_asks(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    question = call.ask()
    asked = await stream.asked()
    seed.vanish()
    await seed.reach(task, "input_required")
    await seed.answer(asked, {"action": "decline"})
    await question.answered()
    call.finish()
    await seed.reach(task, "completed")
    assert not call.is_cancelled


async def test_the_end_of_a_session_is_not_the_end_of_its_task(house: House) -> None:
    async with house.client("Bearer ends") as seed:
        task = new_id()
        stream = await seed.begin(task, tool(task), ident=1)
        await stream.notification(CREATED)
        call = await house.upstream.called(task)
        assert (await seed.send("DELETE")).status in (200, 202, 204)
        gone = await seed.post({"jsonrpc": "2.0", "id": 5, "method": "tasks/list"})
        assert gone.status == 404
        assert (await gone.json())["id"] == 5
        async with house.client("Bearer ends") as again:
            await again.reach(task, "working")
            assert call.session not in house.upstream.deleted
            assert not call.is_cancelled
            call.finish(text("after all"))
            await again.reach(task, "completed")
            assert (await again.fetch(task))["result"]["content"] == text("after all")["content"]
            await house.upstream.ends(call.session)


async def test_the_upstream_session_of_a_client_without_name_ends_after_its_task(house: House) -> None:
    async with house.client() as seed:
        task = new_id()
        await seed.begin(task, tool(task))
        call = await house.upstream.called(task)
        assert (await seed.send("DELETE")).status in (200, 202, 204)
        await seed.ask("ping")
        assert not call.is_cancelled
        assert call.session not in house.upstream.deleted
        call.finish()
        await house.upstream.ends(call.session)


async def test_the_upstream_session_ends_at_once_where_nothing_runs(house: House, seed: Seed) -> None:
    task = new_id()
    await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    call.finish()
    await seed.reach(task, "completed")
    assert (await seed.send("DELETE")).status in (200, 202, 204)
    await house.upstream.ends(call.session)


async def test_a_session_deleted_at_another_replica_is_gone_everywhere(pair: House) -> None:
    async with pair.client("Bearer gone-everywhere") as seed:
        other = seed.twin(pair.url(replica=1))
        assert (await other.send("DELETE")).status in (200, 202, 204)
        assert (await seed.post({"jsonrpc": "2.0", "id": 1, "method": "tasks/list"})).status == 404


async def test_a_session_is_served_by_a_replica_that_never_saw_it(pair: House) -> None:
    async with pair.client("Bearer never-seen") as seed:
        other = seed.twin(pair.url(replica=1))
        task = new_id()
        await other.begin(task, tool(task))
        (await pair.upstream.called(task)).finish(text("here"))
        await seed.reach(task, "completed")
        assert (await seed.fetch(task))["result"]["content"] == text("here")["content"]
        assert set(await other.tasks()) == {task}


async def test_the_stream_is_not_lost_when_a_reader_is_slow(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    for number in range(200):
        call.tell("notifications/message", {"level": "info", "data": number, "pad": "x" * 1000})
    call.finish()
    await seed.reach(task, "completed")
    await stream.response(1)
    assert logged(stream.seen) == list(range(200))


async def test_a_deleted_task_cannot_be_resumed(house: House, seed: Seed) -> None:
    task = new_id()
    stream = await seed.begin(task, tool(task), ident=1)
    await stream.notification(CREATED)
    (await house.upstream.called(task)).finish(text("secret"))
    await seed.reach(task, "completed")
    assert "result" in await seed.delete(task)
    assert refusal(await seed.get(task)) == NOT_FOUND
    exchange = await seed.send("GET", headers={"Last-Event-ID": stream.last_id})
    assert exchange.status < 500
    if exchange.status == 200:
        with contextlib.suppress(TimeoutError):
            await exchange.next(0.3)
        assert exchange.seen == []
