"""What an upstream says beside all calls, on its GET stream: requests, log lines, changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from gateway.crossing.crossing import UpstreamCrossing
from gateway.crossing.port import Caller, Wanted
from gateway.protocol.errors import UpstreamLost
from tests.warm.crossing_world import ALICE, ASKED, BOB, call, crossing_to, to_url, tool
from tests.warm.raw_servers import LeapClock, until
from tests.warm.session_server import session_server

QUESTION = {"id": "q1", "method": "elicitation/create", "params": {"message": "?"}}
TOOLS = {"method": "notifications/tools/list_changed"}
PROMPTS = {"method": "notifications/prompts/list_changed"}
WATCHED = "test://watched"


def updated(uri: str) -> dict[str, Any]:
    return {"method": "notifications/resources/updated", "params": {"uri": uri}}


async def listening(
    crossing: UpstreamCrossing, wanted: Wanted, caller: Caller = ALICE
) -> AsyncGenerator[bytes, None]:
    stream = crossing.listen(caller, wanted, [])
    assert await anext(stream) == b""
    return stream


async def heard(stream: AsyncGenerator[bytes, None]) -> dict[str, Any]:
    async with asyncio.timeout(20):
        return json.loads(await anext(stream))


async def test_a_question_beside_all_calls_goes_to_the_youngest_call_and_the_answer_back() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        older, younger = (crossing.channel(ASKED, drive=False) for _ in range(2))
        waiting = asyncio.ensure_future(call(crossing, "slow", ASKED))
        await server.came("tools/call")
        async with aclosing(younger.exchange(tool("slow", "y"), [])) as coming:
            asking = asyncio.ensure_future(anext(coming))
            await server.came("tools/call", 2)
            server.say(QUESTION)
            assert json.loads(await asking)["id"] == "q1"
            answer = {"jsonrpc": "2.0", "id": "q1", "result": {"action": "decline"}}
            await younger.send(json.dumps(answer).encode(), [])
            assert server.answers() == [answer]
            server.go_on.set()
            assert json.loads(await anext(coming))["id"] == "y"
        assert len(await waiting) == 1
        await older.close()


async def test_a_question_that_nobody_can_be_asked_is_refused_and_a_ping_answered() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        await call(crossing, "t", ASKED)
        server.say(QUESTION)
        server.say({"id": 5, "method": "ping"})
        await until(lambda: len(server.answers()) == 2)
        refused, pong = sorted(server.answers(), key=lambda one: "result" in one)
        assert refused["id"] == "q1"
        assert refused["error"]["code"] == -32603
        assert pong == {"jsonrpc": "2.0", "id": 5, "result": {}}


async def test_a_question_that_came_too_late_to_be_read_is_refused() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        channel = crossing.channel(ASKED, drive=False)
        async with aclosing(channel.exchange(tool("slow"), [])) as coming:
            asking = asyncio.ensure_future(anext(coming))
            await server.came("tools/call")
            server.say(QUESTION)
            await asking
            server.say({**QUESTION, "id": "q2"})
            server.say({"id": "p", "method": "ping"})
            await until(server.answers)
        await until(lambda: len(server.answers()) == 2)
        assert server.answers()[1]["id"] == "q2"
        assert server.answers()[1]["error"]["code"] == -32603


async def test_no_stream_is_opened_for_a_client_that_can_answer_nothing() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        await call(crossing, "t")
        assert server.raw.of("GET") == []
        await call(crossing, "t", ASKED)
        await call(crossing, "u", ASKED)
        assert len(server.raw.of("GET")) == 1


async def test_an_upstream_without_a_stream_is_asked_for_it_once() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        server.answers_get = False
        await call(crossing, "t", ASKED)
        await call(crossing, "u", ASKED)
        assert len(server.raw.of("GET")) == 1


async def test_log_lines_beside_all_calls_go_to_the_call_that_wants_them() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        plain = asyncio.ensure_future(call(crossing, "slow"))
        await server.came("tools/call")
        wanting = asyncio.ensure_future(call(crossing, "slow", Caller("alice", log_level="info")))
        await server.came("tools/call", 2)
        for level in ("debug", "error"):
            server.say({"method": "notifications/message", "params": {"level": level, "data": "x"}})
        server.say({"id": "p", "method": "ping"})
        await until(server.answers)
        server.go_on.set()
        assert len(await plain) == 1
        log, _ = await wanting
        assert log["params"]["level"] == "error"


async def test_listeners_hear_what_they_want_and_calls_hear_no_changes() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        tools = await listening(crossing, Wanted(tools=True))
        both = await listening(crossing, Wanted(tools=True, prompts=True))
        calling = asyncio.ensure_future(call(crossing, "slow", ALICE))
        await server.came("tools/call")
        for change in (PROMPTS, TOOLS):
            server.say(change)
        assert (await heard(tools))["method"] == TOOLS["method"]
        assert [(await heard(both))["method"] for _ in range(2)] == [PROMPTS["method"], TOOLS["method"]]
        server.go_on.set()
        assert len(await calling) == 1
        assert server.opened == 1
        for stream in (tools, both):
            await stream.aclose()


async def test_I10_changes_that_nobody_fetches_are_kept_once() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        stream = await listening(crossing, Wanted(tools=True, prompts=True))
        for _ in range(1000):
            server.say(TOOLS)
        server.say(PROMPTS)
        server.say({"id": "p", "method": "ping"})
        await until(server.answers)
        assert [(await heard(stream))["method"] for _ in range(2)] == [TOOLS["method"], PROMPTS["method"]]
        await stream.aclose()


async def test_resources_are_subscribed_to_once_and_given_up_with_the_last_listener() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        first = await listening(crossing, Wanted(uris=[WATCHED]))
        second = await listening(crossing, Wanted(uris=[WATCHED, "test://other"]))
        assert [one["params"]["uri"] for one in server.of("resources/subscribe")] == [
            WATCHED,
            "test://other",
        ]
        server.say(updated("test://nobody"))
        server.say(updated(WATCHED))
        server.say(updated(WATCHED + "/part"))
        assert (await heard(first))["params"] == {"uri": WATCHED}
        assert (await heard(first))["params"] == {"uri": WATCHED + "/part"}
        assert (await heard(second))["params"] == {"uri": WATCHED}
        await first.aclose()
        await second.aclose()
        gone = await server.came("resources/unsubscribe", 2)
        assert sorted(one["params"]["uri"] for one in gone) == ["test://other", WATCHED]


async def test_what_an_upstream_does_not_offer_is_not_honoured_and_not_asked_of_it() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        server.capabilities = {"tools": {"listChanged": True}, "resources": {}}
        wanted = Wanted(tools=True, prompts=True, resources=True, uris=[WATCHED])
        assert await crossing.honoured(ALICE, wanted, []) == Wanted(tools=True)
        stream = await listening(crossing, wanted)
        await stream.aclose()
        assert server.of("resources/subscribe") == []


async def test_listening_goes_on_in_a_new_session_when_the_upstream_forgot_the_old_one() -> None:
    async with (
        session_server() as server,
        crossing_to(to_url(server.raw.url), LeapClock()) as crossing,
    ):
        stream = await listening(crossing, Wanted(tools=True, uris=[WATCHED]))
        server.restart()
        # What changed meanwhile nobody knows.
        assert [(await heard(stream))["method"] for _ in range(2)] == [
            TOOLS["method"],
            "notifications/resources/updated",
        ]
        assert server.sessions_of("resources/subscribe") == ["s1", "s2"]
        server.say(updated(WATCHED))
        assert (await heard(stream))["params"] == {"uri": WATCHED}
        await stream.aclose()


async def test_listening_ends_where_the_upstream_stays_away() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url), LeapClock()) as crossing:
        stream = await listening(crossing, Wanted(tools=True), BOB)
        waiting = asyncio.ensure_future(anext(stream))
        server.away = True
        server.restart()
        with pytest.raises(UpstreamLost):
            await waiting


async def test_tool_support_is_read_over_all_pages_and_again_when_the_list_changes() -> None:
    tools = [
        {"name": "must", "execution": {"taskSupport": "required"}},
        {"name": "may", "execution": {"taskSupport": "optional"}},
        {"name": "never", "execution": {"taskSupport": "forbidden"}},
        {"name": "odd", "execution": {"taskSupport": 7}},
    ]
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        server.capabilities = {
            "tools": {"listChanged": True},
            "tasks": {"requests": {"tools": {"call": {}}}},
        }
        server.results["tools/list"] = {"tools": tools}
        names = ("must", "may", "never", "odd", "unknown")
        found = [await crossing.tool_support(ASKED, name, []) for name in names]
        assert found == ["required", "optional", "forbidden", "forbidden", "forbidden"]
        assert len(server.of("tools/list")) == 1
        assert await crossing.tool_schema(ASKED, "may", []) is None
        server.results["tools/list"] = {"tools": []}
        server.say(TOOLS)
        server.say({"id": "p", "method": "ping"})
        await until(server.answers)
        assert await crossing.tool_support(ASKED, "must", []) == "forbidden"
        server.results["tools/list"] = {"tools": tools, "nextCursor": "again"}
        server.say(TOOLS)
        server.say({"id": "r", "method": "ping"})
        await until(lambda: len(server.answers()) == 2)
        assert await crossing.tool_support(ASKED, "may", []) == "optional"
        assert len(server.of("tools/list")) == 2 + 100


async def test_schemas_are_known_where_they_mirror_arguments() -> None:
    mirrored = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    tools: list[dict[str, Any]] = [
        {"name": "mirrors", "inputSchema": mirrored},
        {"name": "plain", "inputSchema": {"type": "object"}},
    ]
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        server.results["tools/list"] = {"tools": tools}
        found = await crossing.tool_schema(ALICE, "mirrors", [])
        assert found is not None
        assert json.loads(found) == mirrored
        assert await crossing.tool_schema(ALICE, "plain", []) is None
        assert len(server.of("tools/list")) == 1


async def test_a_list_that_cannot_be_had_is_no_failure_of_who_asks_for_a_schema() -> None:
    async with session_server() as server, crossing_to(to_url(server.raw.url)) as crossing:
        await call(crossing, "t")
        server.cut_lists = True
        for _ in range(3):
            assert await crossing.tool_schema(ALICE, "t", []) is None
        assert len(server.of("tools/list")) == 1
