"""Held sessions that are links: a child for each call at a time, taken in turn, made again when dead."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from gateway.crossing.port import Caller, Wanted
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.upstream.options import CommandOptions
from tests.warm.crossing_world import ALICE, ASKED, BOB, call, crossing_to, say, tool, words
from tests.warm.raw_servers import until
from tests.warm.service_world import HandClock

COMMAND = (sys.executable, str(Path(__file__).with_name("crossing_child.py")), "refuses")


def children(max_links: int = 100) -> CommandOptions:
    return CommandOptions(name="x", command=COMMAND, stop_grace=0.5, max_links=max_links)


def answer(action: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "q", "result": {"action": action}}).encode()


async def test_calls_of_one_caller_never_share_a_child_at_the_same_time() -> None:
    counts: list[int] = []
    async with crossing_to(children(), max_sessions=3, counts=counts) as crossing:
        found = await asyncio.gather(*(call(crossing, "alone", ident=n) for n in range(6)))
        assert all(words(one).isdigit() for one in found)
        assert [one[-1]["id"] for one in found] == list(range(6))
        assert max(counts) <= 3


async def test_one_call_after_another_uses_one_child_and_another_caller_another() -> None:
    async with crossing_to(children()) as crossing:
        pids = [words(await call(crossing, "pid", who)) for who in (ALICE, ALICE, BOB, ALICE, BOB)]
        assert pids[0] == pids[1] == pids[3]
        assert pids[2] == pids[4] != pids[0]


async def test_the_exchanges_of_one_channel_have_the_same_child_even_at_the_same_time() -> None:
    async with crossing_to(children()) as crossing:
        channel = crossing.channel(ASKED, drive=False)
        async with aclosing(channel.exchange(tool("ask", "a"), [])) as asking:
            assert json.loads(await anext(asking))["method"] == "elicitation/create"
            pinging = asyncio.ensure_future(say(channel, tool("pid", "b")))
            other = words(await call(crossing, "pid", ASKED))
            await channel.send(answer("accept"), [])
            pid, action = words([json.loads(await anext(asking))]).split()
            assert action == "accept"
            assert pid != other
        # The child read the second request while it waited for the answer, and let it be.
        pinging.cancel()
        assert words(await say(channel, tool("pid", "c"))) == pid


async def test_I10_a_call_waits_for_its_turn_where_no_more_children_may_be_started() -> None:
    async with crossing_to(children(), max_sessions=1) as crossing:
        channel = crossing.channel(ASKED, drive=False)
        async with aclosing(channel.exchange(tool("ask"), [])) as asking:
            await anext(asking)
            waiting = asyncio.ensure_future(call(crossing, "pid", ASKED))
            with pytest.raises(Refusal) as caught:
                await call(crossing, "pid", BOB)
            assert (caught.value.code, caught.value.status) == (-32029, 503)
            assert not waiting.done()
            await channel.send(answer("decline"), [])
            pid = words([json.loads(await anext(asking))]).split()[0]
        assert words(await waiting) == pid
        assert words(await call(crossing, "pid", BOB)) != pid


async def test_I10_a_call_does_not_wait_for_its_turn_for_ever() -> None:
    async with crossing_to(children(), max_sessions=1, start_timeout=1.0) as crossing:
        channel = crossing.channel(ASKED, drive=False)
        async with aclosing(channel.exchange(tool("ask"), [])) as asking:
            await anext(asking)
            with pytest.raises(Refusal) as caught:
                await call(crossing, "pid", ASKED)
            assert caught.value.status == 503


async def test_the_bound_of_the_upstream_counts_too() -> None:
    async with crossing_to(children(max_links=1)) as crossing:
        pid = words(await call(crossing, "pid", ALICE))
        assert words(await call(crossing, "pid", BOB)) != pid


async def test_a_dead_child_is_replaced_for_the_next_call() -> None:
    counts: list[int] = []
    async with crossing_to(children(), counts=counts) as crossing:
        pid = int(words(await call(crossing, "pid")))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: counts == [1, 0])
        found = words(await call(crossing, "pid"))
        assert int(found) != pid


async def test_I3_a_call_in_which_the_child_dies_is_not_sent_again() -> None:
    counts: list[int] = []
    async with crossing_to(children(), counts=counts) as crossing:
        with pytest.raises(UpstreamLost):
            await call(crossing, "die")
        await until(lambda: counts == [1, 0])
        assert words(await call(crossing, "pid")).isdigit()


async def test_I8_an_idle_child_is_ended() -> None:
    clock, counts = HandClock(), list[int]()
    async with crossing_to(children(), clock, idle=40, counts=counts) as crossing:
        pid = int(words(await call(crossing, "pid")))
        for _ in range(5):
            await clock.slept_on()
            clock.move(10)
        await until(lambda: counts == [1, 0])
        await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_change_that_comes_in_a_call_goes_to_listeners_and_not_to_the_caller() -> None:
    async with crossing_to(children()) as crossing:
        stream = crossing.listen(ALICE, Wanted(tools=True, uris=["test://a"]), [])
        assert await anext(stream) == b""
        assert len(await call(crossing, "change")) == 1
        assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"
        await stream.aclose()


async def test_a_listener_goes_on_with_a_new_child_when_its_child_dies() -> None:
    async with crossing_to(children()) as crossing:
        pid = int(words(await call(crossing, "pid")))
        stream = crossing.listen(ALICE, Wanted(tools=True), [])
        assert await anext(stream) == b""
        os.kill(pid, signal.SIGKILL)
        # What changed meanwhile nobody knows.
        assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"
        assert int(words(await call(crossing, "pid"))) != pid
        await stream.aclose()


async def test_I10_a_caller_that_left_while_it_waited_leaves_no_session_taken() -> None:
    async with crossing_to(children(), max_sessions=1) as crossing:
        for _ in range(5):
            calling = asyncio.ensure_future(call(crossing, "pid", Caller("someone")))
            await asyncio.sleep(0)
            calling.cancel()
            await asyncio.wait([calling])
        assert words(await call(crossing, "pid", BOB)).isdigit()
