"""Sessions that are held for stateless clients: shared, kept apart, made again, bounded, ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from gateway.crossing.port import Caller
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.upstream.port import is_placing, place_of
from tests.warm.crossing_world import ALICE, ASKED, BOB, call, crossing_to, say, to_url, tool, words
from tests.warm.raw_servers import until
from tests.warm.service_world import HandClock
from tests.warm.session_server import session_server

TOKEN = [("authorization", "Bearer one")]
CANCEL = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mine"}}'


async def test_fifty_calls_of_one_caller_share_one_session_and_no_request_id() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        found = await asyncio.gather(*(call(crossing, f"t{n % 5}", ident=n % 3) for n in range(50)))
        assert [one[-1]["id"] for one in found] == [n % 3 for n in range(50)]
        assert [words(one) for one in found] == [f"t{n % 5}" for n in range(50)]
        assert server.opened == 1
        assert len({message["id"] for message in server.of("tools/call")}) == 50
        assert len(server.of("notifications/initialized")) == 1


async def test_I7_callers_capabilities_and_credentials_have_sessions_of_their_own() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        await call(crossing, "a", ALICE)
        await call(crossing, "b", BOB)
        await call(crossing, "c", ASKED)
        await call(crossing, "d", ALICE, headers=TOKEN)
        await call(crossing, "e", Caller(None))
        await call(crossing, "f", ALICE, headers=[("traceparent", "1"), ("user-agent", "u")])
        assert server.sessions_of("tools/call") == ["s1", "s2", "s3", "s4", "s5", "s1"]


async def test_initialize_speaks_for_the_client_and_later_requests_name_the_negotiated_version() -> None:
    stateless = [
        ("mcp-method", "tools/call"),
        ("mcp-name", "t"),
        ("mcp-param-x", "1"),
        ("mcp-protocol-version", "2026-07-28"),
        ("x-trace", "kept"),
    ]
    named = Caller("alice", b'{"elicitation":{}}', b'{"name":"c","version":"2"}')
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        await call(crossing, "t", named, headers=stateless)
        (opening,) = server.of("initialize")
        assert opening["params"] == {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "c", "version": "2"},
        }
        last = server.raw.of("POST")[-1].headers
        assert last["mcp-protocol-version"] == "2025-06-18"
        assert last["x-trace"] == "kept"
        assert not {"mcp-method", "mcp-name", "mcp-param-x"} & last.keys()


async def test_an_upstream_without_session_ids_is_served() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        server.sessionless = True
        assert words(await call(crossing, "t")) == "t"
        assert words(await call(crossing, "u")) == "u"
        assert server.opened == 1


@pytest.mark.parametrize("status", ["404 Not Found", "400 Bad Request"])
async def test_I3_a_forgotten_session_is_made_again_and_the_refused_call_sent_once_more(
    status: str,
) -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        server.refuse_with = status
        await call(crossing, "before")
        server.restart()
        found = await asyncio.gather(*(call(crossing, "after", ident=n) for n in range(10)))
        assert [one[-1]["id"] for one in found] == list(range(10))
        assert server.opened == 2
        assert len(server.of("tools/call")) == 11
        assert server.ended == []


async def test_a_call_is_sent_once_more_and_not_a_third_time() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        await call(crossing, "before")

        class Forgetful(list[str]):
            def __contains__(self, session: object) -> bool:
                return False

        server.sessions = Forgetful()
        with pytest.raises(UpstreamLost) as caught:
            await call(crossing, "after")
        assert caught.value.status == 404
        assert server.opened == 2
        assert len(server.of("tools/call")) == 1


async def test_I3_a_call_whose_connection_is_cut_is_not_sent_again() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        with pytest.raises(UpstreamLost):
            await call(crossing, "cut")
        assert len(server.of("tools/call")) == 1
        assert words(await call(crossing, "t")) == "t"
        assert server.opened == 1


async def test_I10_no_more_sessions_are_held_than_may_be_and_idle_ones_make_room() -> None:
    counts: list[int] = []
    async with (
        session_server() as server,
        crossing_to(to_url(server.raw.url), max_sessions=2, counts=counts) as crossing,
    ):
        busy = [
            asyncio.ensure_future(call(crossing, "slow", Caller("one"))),
            asyncio.ensure_future(call(crossing, "slow", Caller("two"))),
        ]
        await server.came("tools/call", 2)
        with pytest.raises(Refusal) as caught:
            await call(crossing, "t", Caller("three"))
        assert caught.value.code == -32029
        assert caught.value.status == 503
        assert caught.value.data == {"limit": "sessions", "max": 2, "retryAfter": 30}
        server.go_on.set()
        await asyncio.gather(*busy)
        assert words(await call(crossing, "t", Caller("three"))) == "t"
        await until(lambda: server.ended)
        assert max(counts) == 2
    assert counts[-1] == 0
    assert sorted(server.ended) == ["s1", "s2", "s3"]


async def test_I8_an_idle_session_is_ended_and_one_in_use_is_not() -> None:
    clock = HandClock()
    async with session_server() as server, crossing_to(to_url(server.raw.url), clock, idle=40) as crossing:
        await call(crossing, "t")
        using = asyncio.ensure_future(call(crossing, "slow", BOB))
        await server.came("tools/call", 2)
        for _ in range(5):
            await clock.slept_on()
            clock.move(10)
        await until(lambda: server.ended)
        assert server.ended == ["s1"]
        server.go_on.set()
        await using


async def test_I11_a_call_that_is_left_tells_the_upstream_nothing_until_it_is_cancelled() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        channel = crossing.channel(ASKED, drive=False)
        async with aclosing(channel.exchange(tool("slow", "mine"), [])) as coming:
            waiting = asyncio.ensure_future(anext(coming))
            (asked,) = await server.came("tools/call")
            waiting.cancel()
            await asyncio.wait([waiting])
        assert server.of("notifications/cancelled") == []
        await channel.send(CANCEL, [])
        (cancelled,) = server.of("notifications/cancelled")
        assert cancelled["params"]["requestId"] == asked["id"]
        assert words(await call(crossing, "t", ASKED)) == "t"
        assert server.opened == 1


async def test_a_cancellation_of_a_call_that_is_over_does_not_hit_another() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        channel = crossing.channel(ALICE, drive=False)
        await say(channel, tool("t", "mine"))
        await channel.send(CANCEL, [])
        assert server.of("notifications/cancelled") == []


async def test_an_upstream_that_is_away_fails_the_call_and_is_asked_again_the_next_time() -> None:
    async with session_server() as server:
        url = server.raw.url
        async with crossing_to(to_url(url)) as crossing:
            await call(crossing, "t")
    async with crossing_to(to_url(url)) as crossing:
        for _ in range(2):
            with pytest.raises(UpstreamLost):
                await call(crossing, "t")


async def test_log_levels_are_raised_once_and_each_call_sees_its_own() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:

        async def seen(level: str | None) -> list[str]:
            *logs, _ = await call(crossing, "logs", Caller("alice", log_level=level))
            return [one["params"]["level"] for one in logs]

        assert await seen(None) == []
        assert server.of("logging/setLevel") == []
        assert await asyncio.gather(*(seen("error") for _ in range(5))) == [["error"]] * 5
        assert await seen("info") == ["info", "error"]
        assert await seen("warning") == ["error"]
        assert [one["params"]["level"] for one in server.of("logging/setLevel")] == ["error", "info"]
        assert server.opened == 1


async def test_no_level_is_set_where_the_upstream_has_no_logging() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        server.capabilities = {"tools": {}}
        await call(crossing, "t", Caller("alice", log_level="debug"))
        assert server.of("logging/setLevel") == []


async def test_what_the_upstream_says_of_itself_is_asked_once() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        found = await asyncio.gather(*(crossing.opened(ALICE, []) for _ in range(10)))
        assert {json.loads(one)["serverInfo"]["name"] for one in found} == {"sessions"}
        assert await crossing.tool_support(ALICE, "t", []) == "forbidden"
        assert server.opened == 1
        assert server.of("tools/list") == []


async def test_I10_calls_that_are_left_at_any_moment_keep_no_session_taken() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url), max_sessions=2) as crossing:
        for steps in range(60):
            calls = [
                asyncio.ensure_future(call(crossing, "logs", who, log))
                for log, who in enumerate((ALICE, ASKED, Caller("alice", log_level="debug")))
            ]
            for _ in range(steps):
                await asyncio.sleep(0)
            for one in calls:
                one.cancel()
            await asyncio.wait(calls)
        for name in ("one", "two", "three"):
            assert words(await call(crossing, "t", Caller(name))) == "t"


@pytest.mark.parametrize(
    ("caller", "told", "kept"),
    [
        (ALICE, ["at debug", "at info", "at error"], [""]),
        (Caller("alice", log_level="info"), ["at debug"], ["at info", "at error", ""]),
    ],
)
async def test_I3_places_of_messages_that_the_caller_does_not_see_are_told_before_all_that_it_sees(
    caller: Caller, told: list[str], kept: list[str]
) -> None:
    heard: list[str] = []
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        channel = crossing.channel(caller, drive=False)
        assert is_placing(channel)
        channel.on_place = heard.append
        async with aclosing(channel.exchange(tool("numbered logs"), [])) as coming:
            assert [place_of(raw) async for raw in coming] == kept
    assert heard == told
