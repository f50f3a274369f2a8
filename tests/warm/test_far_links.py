"""Links that live on another replica: they do what a link must, whatever becomes of the letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.far.asking import WINDOW
from gateway.far.far_link import FarLink
from gateway.far.letters import Asked, pack, read
from gateway.far.links import SharedLinks
from gateway.far.seal import HeaderSeal
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.upstream.link import MessageLink
from gateway.upstream.pool import LinkPool
from gateway.upstream.port import Link
from tests.warm.far_world import INITIALIZE, UPSTREAM, IdleClock, Replica, Wild, World
from tests.warm.test_upstream_link import LOG, asked, call, cancelled, progress, result

TAG = "session"


class Reading:
    """An exchange or a listener that is read by a task."""

    def __init__(self, source: AsyncGenerator[bytes, None]) -> None:
        self.got: list[bytes] = []
        self.task = asyncio.create_task(self._read(source))

    async def _read(self, source: AsyncGenerator[bytes, None]) -> None:
        async for raw in source:
            self.got.append(raw)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 many things on two replicas are watched
            await asyncio.sleep(0.001)


@asynccontextmanager
async def replicas(
    number: int, wild: Wild | None = None, answer: Callable[[MessageLink, bytes], None] | None = None
) -> AsyncGenerator[list[Replica]]:
    clock = IdleClock()
    world = World(clock, wild)
    world.crew.spawn(clock.run(), "time")
    made = [Replica(world, f"r{one}", answer=answer) for one in range(number)]
    yield made
    for one in made:
        await one.close()
    await world.crew.close()


async def found(replica: Replica, tag: str = TAG) -> Link:
    link = await replica.links.find(tag, INITIALIZE, [])
    assert link is not None
    return link


class Pair:
    """A link as it is used, and its carrier at the owner."""

    def __init__(self, owner: Replica, other: Replica, link: Link) -> None:
        self.owner = owner
        self.other = other
        self.link = link
        tape = owner.tapes[0]
        assert tape.link is not None
        self.at_owner = tape.link
        self.written = tape.written[1:]
        self.tape = tape

    async def exchange(self, message: bytes) -> Reading:
        reading = Reading(self.link.exchange(message, []))
        await until(lambda: message in self.tape.written or reading.task.done())
        return reading


@pytest.fixture(params=["own", "far"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with replicas(2) as (owner, other):
        link, _ = await owner.links.open(TAG, INITIALIZE, [])
        if request.param == "far":
            link = await found(other)
            assert isinstance(link, FarLink)
        yield Pair(owner, other, link)


async def test_responses_in_any_order_go_to_the_call_with_their_id(pair: Pair) -> None:
    calls = [await pair.exchange(call(ident)) for ident in ("0", "1", '"1"')]
    for ident in ('"1"', "9", "0", "1"):
        pair.at_owner.receive(result(ident))
    await asyncio.gather(*(one.task for one in calls))
    assert [one.got for one in calls] == [[result("0")], [result("1")], [result('"1"')]]


async def test_I1_messages_are_written_in_the_order_of_their_calls(pair: Pair) -> None:
    wanted: list[bytes] = []
    running: list[Reading] = []
    notes: list[asyncio.Task[None]] = []
    for number in range(20):
        ident = str(number)
        # Large ones go another way, but not at another time.
        large = call(ident, '"' + "t" * (30_000 if number % 4 == 1 else 1) + '"')
        running.append(Reading(pair.link.exchange(large, [])))
        notes.append(asyncio.create_task(pair.link.send(cancelled(ident), [])))
        wanted += [large, cancelled(ident)]
    await until(lambda: len(pair.tape.written) == 41)
    assert pair.tape.written[1:] == wanted
    await asyncio.gather(*notes)
    for one in running:
        await one.stop()


async def test_progress_goes_to_the_call_with_its_token_in_order(pair: Pair) -> None:
    one, other = await pair.exchange(call("1", '"a"')), await pair.exchange(call("2", "5"))
    for _ in range(50):
        pair.at_owner.receive(progress('"a"'))
        pair.at_owner.receive(progress("5"))
    pair.at_owner.receive(result("2"))
    pair.at_owner.receive(result("1"))
    await asyncio.gather(one.task, other.task)
    assert one.got == [progress('"a"')] * 50 + [result("1")]
    assert other.got == [progress("5")] * 50 + [result("2")]


async def test_I6_a_question_is_answered_from_anywhere_and_belongs_to_the_call(pair: Pair) -> None:
    running = await pair.exchange(call("1"))
    pair.at_owner.receive(asked('"s1"'))
    await until(lambda: running.got)
    assert running.got == [asked('"s1"')]
    elsewhere = await found(pair.other)
    await elsewhere.send(result('"s1"'), [])
    await until(lambda: pair.tape.written[-1] == result('"s1"'))
    # Nothing waits any more, so that news is the call's.
    pair.at_owner.receive(LOG)
    await until(lambda: running.got[-1] == LOG)
    await running.stop()


async def test_the_newest_listener_on_any_replica_hears_what_belongs_to_no_call(pair: Pair) -> None:
    pair.at_owner.receive(asked("1"))
    first = Reading(pair.link.listen())
    await until(lambda: first.got == [asked("1")])
    second = Reading((await found(pair.other)).listen())
    await first.task
    pair.at_owner.receive(asked("2"))
    await until(lambda: second.got == [asked("2")])
    third = Reading((await found(pair.owner)).listen())
    await second.task
    await third.stop()
    pair.at_owner.receive(asked("3"))
    fourth = Reading(pair.link.listen())
    await until(lambda: fourth.got == [asked("3")])
    pair.at_owner.end("gone")
    await fourth.task


async def test_what_a_listener_that_left_did_not_use_is_kept_for_the_next(pair: Pair) -> None:
    listening = pair.link.listen()
    first = asyncio.ensure_future(anext(listening))
    far = isinstance(pair.link, FarLink)
    await until(lambda: not far or len(pair.owner.office.hosting))
    for ident in "123":
        pair.at_owner.receive(asked(ident))
    assert await first == asked("1")
    unused = len(asked("2") + asked("3"))
    await until(lambda: not far or pair.other.office.asking.waiting == unused)
    await listening.aclose()
    again = Reading((await found(pair.other)).listen())
    await until(lambda: len(again.got) == 2)
    assert again.got == [asked("2"), asked("3")]
    await again.stop()


async def test_I5_calls_in_flight_fail_with_the_reason_when_the_link_ends(pair: Pair) -> None:
    running = await pair.exchange(call("1"))
    pair.at_owner.end("the upstream process exited with code 3")
    with pytest.raises(UpstreamLost, match=r"^the upstream process exited with code 3 during the call$"):
        await running.task


async def test_an_id_in_flight_is_refused_and_free_again_afterwards(pair: Pair) -> None:
    running = await pair.exchange(call("1"))
    with pytest.raises(Refusal, match="the id is in use"):
        await anext(pair.link.exchange(call("1"), []))
    await running.stop()

    async def again() -> bytes:
        return await anext(pair.link.exchange(call("1"), []))

    # Who listens no more tells nobody, so that the other side hears of it a moment later.
    await until(lambda: not pair.owner.office.hosting.calls("main", TAG))
    step = asyncio.create_task(again())
    await until(lambda: pair.tape.written.count(call("1")) == 2)
    pair.at_owner.receive(result("1"))
    assert await step == result("1")


async def test_I10_a_call_that_is_not_fetched_costs_a_window_and_then_its_own_queue(pair: Pair) -> None:
    coming = pair.link.exchange(call("1", "1"), [])
    first = asyncio.ensure_future(anext(coming))
    await until(lambda: len(pair.tape.written) == 2)
    large = progress("1")[:-2] + b',"message":"' + b"x" * 100_000 + b'"}}'
    for _ in range(60):
        pair.at_owner.receive(large)
    pair.at_owner.receive(result("1"))
    await first
    await asyncio.sleep(0.1)
    assert pair.other.office.asking.waiting <= WINDOW + len(large)
    got = [raw async for raw in coming]
    assert got == [large] * 59 + [result("1")]


async def test_I10_listeners_that_fetch_nothing_leave_room_for_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.far.hosting._MAX_KEPT", 300_000)
    async with replicas(2) as (owner, other):
        await owner.links.open(TAG, INITIALIZE, [])
        link, at_owner = await found(other), owner.tapes[0].link
        assert at_owner is not None
        coming = link.listen()
        first = asyncio.ensure_future(anext(coming))
        await until(lambda: len(owner.office.hosting))
        for number in range(8):
            at_owner.receive(asked(str(number))[:-1] + b',"more":"' + b"x" * 100_000 + b'"}')
        await first
        await asyncio.sleep(0.05)
        running = Reading(link.exchange(call("1"), []))
        await until(lambda: call("1") in owner.tapes[0].written)
        answer = result("1")[:-1] + b',"more":"' + b"x" * 200_000 + b'"}'
        at_owner.receive(answer)
        await until(lambda: running.got == [answer])
        await coming.aclose()


async def test_a_large_answer_and_a_large_request_arrive_whole(pair: Pair) -> None:
    message = call("1", '"' + "q" * 3_000_000 + '"')
    running = await pair.exchange(message)
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + b"x" * 16_000_000 + b'"}}'
    pair.at_owner.receive(answer)
    await running.task
    assert running.got == [answer]


def echo(link: MessageLink, message: bytes) -> None:
    """Answer a call with progress and a result, a question among it."""
    if b'"id"' not in message:
        return
    ident = message.split(b'"id":')[1].split(b",")[0].decode()
    for _ in range(5):
        link.receive(progress(ident))
    link.receive(result(ident))


@pytest.mark.parametrize("seed", range(12))
async def test_I3_whatever_becomes_of_letters_each_request_is_carried_out_once(seed: int) -> None:
    wild = Wild(seed, lost=0.25, twice=0.2, late=0.3)
    async with replicas(3, wild, echo) as (owner, *others):
        await owner.links.open(TAG, INITIALIZE, [])
        links = [await found(other) for other in others]
        messages = [call(str(number), str(number)) for number in range(40)]
        running = [Reading(links[n % 2].exchange(one, [])) for n, one in enumerate(messages)]
        await asyncio.gather(*(one.task for one in running))
        for number, one in enumerate(running):
            assert one.got == [progress(str(number))] * 5 + [result(str(number))]
        assert sorted(owner.tapes[0].written[1:]) == sorted(messages)
        assert [len(one.tapes) for one in (owner, *others)] == [1, 0, 0]


async def test_I6_replicas_that_revive_at_once_come_to_one_link() -> None:
    async with replicas(4, answer=echo) as all_of_them:
        links = await asyncio.gather(*(found(one) for one in all_of_them * 3))
        for number, link in enumerate(links):
            assert result(str(number)) in [raw async for raw in link.exchange(call(str(number)), [])]
        assert sum(len(one.tapes) for one in all_of_them) == 1


async def test_I5_the_death_of_the_owner_is_told_and_the_next_call_finds_another() -> None:
    async with replicas(2, answer=None) as (owner, other):
        await owner.links.open(TAG, INITIALIZE, [])
        link = await found(other)
        running = Reading(link.exchange(call("1"), []))
        await until(lambda: len(owner.tapes[0].written) == 2)
        owner.die()
        with pytest.raises(UpstreamLost, match="is gone during the call; its outcome is unknown") as caught:
            await running.task
        assert caught.value.sent
        # One that never left is made elsewhere.
        again = Reading(link.exchange(call("2"), []))
        await until(lambda: other.tapes and call("2") in other.tapes[0].written)
        await again.stop()
        assert call("2") not in owner.tapes[0].written
        assert not isinstance(await found(other), FarLink)


async def test_I6_a_link_that_ended_is_revived_by_whoever_needs_it_first() -> None:
    async with replicas(3) as (owner, other, third):
        await owner.links.open(TAG, INITIALIZE, [])
        link = await found(other)
        at_owner = owner.tapes[0].link
        assert at_owner is not None
        at_owner.end("the upstream process exited with code 3")
        running = Reading(link.exchange(call("1"), []))
        await until(lambda: other.tapes and call("1") in other.tapes[0].written)
        far = await found(third)
        assert isinstance(far, FarLink)
        assert far.owner == other.name
        await running.stop()


async def test_a_link_that_cannot_be_revived_is_unknown() -> None:
    async with replicas(2) as (owner, other):
        await owner.links.open(TAG, INITIALIZE, [])
        link = await other.links.find(TAG, None, [])
        assert isinstance(link, FarLink)
        assert await other.links.find("never there", None, []) is None
        await owner.pool.drop(TAG)
        with pytest.raises(Refusal) as caught:
            await link.send(LOG, [])
        assert caught.value.status == 404


async def test_I9_with_the_store_away_a_replica_uses_what_it_has_and_revives_what_it_has_not() -> None:
    async with replicas(2) as (owner, other):
        link, _ = await owner.links.open(TAG, INITIALIZE, [])
        owner.world.away = True
        assert await owner.links.find(TAG, INITIALIZE, []) is link
        aside = await found(other)
        assert not isinstance(aside, FarLink)
        owner.world.away = False

        async def one_is_left() -> bool:
            return isinstance(await other.links.find(TAG, INITIALIZE, []), FarLink)

        await eventually(one_is_left)
        assert await owner.links.find(TAG, INITIALIZE, []) is link
        await until(lambda: not aside.alive)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 it is asked for
            await asyncio.sleep(0.01)


async def test_a_link_that_is_dropped_anywhere_ends_when_nothing_is_in_flight() -> None:
    async with replicas(3) as (owner, other, third):
        link, _ = await owner.links.open(TAG, INITIALIZE, [])
        running = Reading((await found(other)).exchange(call("1"), []))
        await until(lambda: len(owner.tapes[0].written) == 2)
        await third.links.drop(TAG)
        assert link.alive
        owner_link = owner.tapes[0].link
        assert owner_link is not None
        owner_link.receive(result("1"))
        await running.task
        await until(lambda: not link.alive)
        await until(lambda: not owner.world.owners)


async def test_an_owner_that_stops_gives_its_links_up_at_once() -> None:
    clock = IdleClock()
    world = World(clock)
    world.crew.spawn(clock.run(), "time")
    owner, other = Replica(world, "a"), Replica(world, "b")
    await owner.links.open(TAG, INITIALIZE, [])
    running = Reading((await found(other)).exchange(call("1"), []))
    await until(lambda: len(owner.tapes[0].written) == 2)
    await owner.close()
    with pytest.raises(UpstreamLost, match="has stopped"):
        await running.task
    owner.die()
    await found(other)
    assert len(other.tapes) + len(owner.tapes) >= 1
    await other.close()
    await world.crew.close()
    assert not world.owners


async def test_I6_a_replica_that_drains_ends_what_is_in_flight_and_hands_the_rest_on() -> None:
    async with replicas(2) as (owner, other):
        await owner.links.open(TAG, INITIALIZE, [])
        link = await found(other)
        running = Reading(link.exchange(call("1"), []))
        await until(lambda: call("1") in owner.tapes[0].written)
        draining = asyncio.create_task(owner.office.drain(10))
        await until(lambda: not owner.world.owners)
        again = Reading(link.exchange(call("2"), []))
        await until(lambda: other.tapes and call("2") in other.tapes[0].written)
        at_owner = owner.tapes[0].link
        assert at_owner is not None
        at_owner.receive(asked('"s"'))
        await until(lambda: running.got)
        await link.send(result('"s"'), [])
        assert owner.tapes[0].written[-1] == result('"s"')
        at_owner.receive(result("1"))
        await running.task
        assert await draining
        await again.stop()


async def test_links_of_an_older_configuration_are_served_beside_the_newer() -> None:
    async with replicas(2, answer=echo) as (owner, other):
        await owner.links.open(TAG, INITIALIZE, [])
        SharedLinks(UPSTREAM, owner.pool, owner.office, settle=60.0)
        link = await found(other)
        assert isinstance(link, FarLink)
        assert result("1") in [raw async for raw in link.exchange(call("1"), [])]
        assert call("1") in owner.tapes[0].written


async def test_I6_a_link_of_an_older_configuration_is_the_sessions_on_every_replica_to_its_end() -> None:
    async with replicas(2, answer=echo) as (owner, other):
        await owner.links.open(TAG, INITIALIZE, [])
        pool = LinkPool(owner.start, owner.world.clock, max_links=9, idle=3600.0, start_timeout=30.0)
        newer = SharedLinks(UPSTREAM, pool, owner.office, settle=60.0)
        there, here = await found(other), await newer.find(TAG, INITIALIZE, [])
        assert here is not None
        for number, link in enumerate((there, here)):
            assert result(str(number)) in [raw async for raw in link.exchange(call(str(number)), [])]
        assert len(owner.tapes) == 1
        assert owner.tapes[0].written[1:] == [call("0"), call("1")]
        await newer.drop(TAG)
        await until(lambda: not len(owner.pool))
        await until(lambda: not owner.world.owners)
        await pool.close()


def test_letters_that_are_not_understood_are_no_letters() -> None:
    letter = Asked("r", 1, "call", "u", "t", b"{}")
    assert read(pack(letter)) == letter
    assert read(b"") is None
    assert read(pack(letter)[:-1]) is None
    assert read(b"\x91\xa5other") is None


def test_credentials_are_sealed_on_their_way() -> None:
    headers = [("authorization", "Bearer secret")]
    seal = HeaderSeal(b"one")
    assert b"secret" not in seal.seal(headers)
    assert seal.open(seal.seal(headers)) == headers
    assert HeaderSeal(b"other").open(seal.seal(headers)) == []
    assert seal.open(seal.seal([])) == []
