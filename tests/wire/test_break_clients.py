"""Clients that come and go at the worst moment, or are not who they should be (I7, I11, I12)."""

from __future__ import annotations

import asyncio
import json
import random
from urllib.parse import urlsplit

import pytest

from tests.wire.raw_upstream import http_request
from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import BOTH, CREATED, WAIT, Json, Seed, augmented, new_id
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


def fields(seed: Seed) -> dict[str, str]:
    """Return the headers of a client's session."""
    assert seed.session is not None
    return {"Mcp-Session-Id": seed.session, "Authorization": seed.authorization or "", "Accept": BOTH}


async def send_and_leave(seed: Seed, verb: str, message: Json | None, seconds: float) -> None:
    """Send a request, and drop the connection so many seconds later without reading."""
    place = urlsplit(seed.url)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    body = b"" if message is None else json.dumps(message).encode()
    writer.write(http_request(verb, place.path, fields(seed), body))
    await writer.drain()
    await asyncio.sleep(seconds)
    writer.transport.abort()
    await asyncio.sleep(0)


async def test_I7_without_sessions_a_request_id_cancels_only_ones_own_task(house: House) -> None:
    alice = house.client("Bearer alice", "stateless")
    mallory = house.client("Bearer mallory", "stateless")
    task = new_id()
    stream = await alice.begin(task, tool(task), ident=1)
    call = await house.upstream.called(task)
    await mallory.cancel(1)
    await mallory.notify("notifications/cancelled", {"requestId": "1"})
    call.finish(text("untouched"))
    assert (await stream.response(1))["result"]["content"] == text("untouched")["content"]
    assert (await alice.get(task))["result"]["status"] == "completed"
    alice.vanish()
    mallory.vanish()


@pytest.mark.parametrize("spread", [0.0, 0.003, 0.02])
async def test_I11_a_client_that_left_during_creation_hears_questions_on_its_own_stream(
    house: House, seed: Seed, spread: float
) -> None:
    chance = random.Random(7)
    listening = await seed.listen()
    for _ in range(8):
        task = new_id()
        message = augmented(task, tool(task), "tools/call", seed.ident())
        await send_and_leave(seed, "POST", message, 0.0005 + chance.random() * spread)
        call = await house.upstream.called(task)
        question = call.ask()
        asked = await listening.asked()
        await seed.answer(asked, {"action": "accept", "content": {"name": "back"}})
        assert (await question.answered())["result"]["content"] == {"name": "back"}
        call.finish()
        await seed.reach(task, "completed")
        assert not call.is_cancelled


async def test_a_session_stream_that_is_opened_and_dropped_over_and_over_still_works(
    house: House, seed: Seed
) -> None:
    chance = random.Random(3)
    task = new_id()
    stream = await seed.begin(task, tool(task))
    call = await house.upstream.called(task)
    await stream.notification(CREATED)
    stream.cut()
    call.ask()
    for _ in range(15):
        await send_and_leave(seed, "GET", None, chance.random() * 0.01)
    asked = await (await seed.listen()).asked()
    await seed.answer(asked, {"action": "decline"})
    call.finish()
    await seed.reach(task, "completed")


@pytest.mark.parametrize(
    "ident", [b"mtg-\xff\xfe_0", b"mtg-", b"mtg-nothing_0", b"mtg-" + b"0" * 32 + b"_a b", b"mtg-{}:t_1-1"]
)
async def test_I12_an_event_id_that_is_none_of_ours_gets_one_answer(seed: Seed, ident: bytes) -> None:
    place = urlsplit(seed.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    head = http_request("GET", place.path, {**fields(seed), "Last-Event-ID": "@"})
    writer.write(head.replace(b"@", ident))
    try:
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)
    assert answer.startswith(b"HTTP/1.1 400 "), answer


async def test_I3_rounds_of_double_creation_and_endings_at_random_leave_one_execution_each(
    pair: House,
) -> None:
    chance = random.Random(1686)
    async with pair.client("Bearer rounds") as seed:
        both = [seed, seed.twin(pair.url(replica=1))]
        for number in range(40):
            task, first = new_id(), seed.ident()
            second = first if number % 3 == 0 else seed.ident()
            streams = await asyncio.gather(
                seed.begin(task, tool(task), ident=first),
                chance.choice(both).begin(task, tool(task), ident=second),
            )
            call = await pair.upstream.called(task)

            async def finish(end: bool = chance.random() < 0.7) -> None:
                await asyncio.sleep(chance.random() * 0.01)
                (call.finish if end else call.cut)()  # noqa: B023 - awaited in the same round

            async def cancel() -> None:
                await asyncio.sleep(chance.random() * 0.01)
                await chance.choice(both).cancel(chance.choice((first, second)))  # noqa: B023 - as above

            async def delete() -> None:
                await asyncio.sleep(chance.random() * 0.01)
                await chance.choice(both).delete(task)  # noqa: B023 - as above

            endings = chance.sample([finish, cancel, delete, cancel], chance.randint(1, 4))
            await asyncio.gather(*(ending() for ending in endings))
            if finish not in endings:
                call.finish()
            for stream in streams:
                await stream.rest()
            assert len(pair.upstream.calls[task]) == 1
            found = await chance.choice(both).get(task)
            assert "error" in found or found["result"]["status"] in ("completed", "failed", "cancelled")
