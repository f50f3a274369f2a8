"""Sessions of handshake-era clients with stateless upstreams: the `mcp` package's, and scripted ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.crossing.stateless_link import StatelessLink
from gateway.crossing.stateless_links import StatelessLinks
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.upstream.auto import build
from gateway.upstream.options import UrlOptions
from tests.warm.native_world import (
    HEADERS,
    Json,
    answer,
    call,
    cancelled,
    event,
    first,
    message,
    real,
    scripted,
    tool,
)
from tests.warm.raw_servers import LeapClock, Play, Request, serve, stream_head, until

URI = "file:///a"
INITIALIZE = message(
    0,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={"elicitation": {}, "roots": {"listChanged": True}},
    clientInfo={"name": "t", "version": "1"},
)
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@pytest.fixture(params=["http", "stdio"])
async def links(request: pytest.FixtureRequest) -> AsyncGenerator[StatelessLinks]:
    async with real(request.param) as upstream, Crew("test") as crew:
        made = StatelessLinks(upstream, SystemClock(), crew)
        yield made
        await made.close()


async def opened(links: StatelessLinks, tag: str = "t") -> StatelessLink:
    link, raw = await links.open(tag, INITIALIZE, HEADERS)
    assert "result" in json.loads(raw)
    return link


async def test_initialize_is_answered_from_discovery(links: StatelessLinks) -> None:
    _, raw = await links.open("t", INITIALIZE, HEADERS)
    found = json.loads(raw)
    assert found["id"] == 0
    assert found["result"]["protocolVersion"] == "2025-06-18"
    assert found["result"]["serverInfo"] == {"name": "stateless", "version": "1.0"}
    assert found["result"]["instructions"] == "Ask."
    assert found["result"]["capabilities"]["tools"] == {"listChanged": True}


async def test_calls_of_one_session_run_side_by_side(links: StatelessLinks) -> None:
    link = await opened(links)
    one, other = await asyncio.gather(call(link, tool(1, "count", 5)), call(link, tool(2, "count", "p")))
    assert [step["params"] for step in one[:-1]] == [
        {"progressToken": 5, "progress": number, "total": 3} for number in (1, 2, 3)
    ]
    assert [step["params"]["progressToken"] for step in other[:-1]] == ["p"] * 3
    assert one[-1]["id"] == 1
    assert one[-1]["result"]["content"] == [{"type": "text", "text": "counted"}]
    assert "resultType" not in one[-1]["result"]
    assert other[-1]["id"] == 2


async def test_what_the_upstream_wants_of_the_client_is_a_server_request(links: StatelessLinks) -> None:
    link = await opened(links)
    coming = link.exchange(tool("a", "ask"), HEADERS)
    asked = await first(coming)
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["message"] == "Your name?"
    await link.send(answer(asked, {"action": "accept", "content": {"name": "Ada"}}), HEADERS)
    then = await first(coming)
    assert then["method"] == "roots/list"
    assert then["id"] != asked["id"]
    await link.send(answer(then, {"roots": [{"uri": "file:///r"}]}), HEADERS)
    assert (await first(coming))["result"]["content"][0]["text"] == "Ada: file:///r"
    with pytest.raises(StopAsyncIteration):
        await anext(coming)


async def test_any_replica_makes_the_link_anew_from_initialize_I6(links: StatelessLinks) -> None:
    link = await links.find("never opened here", INITIALIZE, HEADERS)
    assert link is not None
    assert await links.find("never opened here", None, HEADERS) is link
    assert await links.find("nor anywhere", None, HEADERS) is None
    (found,) = await call(link, tool(1, "who"))
    meta = found["result"]["structuredContent"]["meta"]
    assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "t", "version": "1"}
    assert meta["io.modelcontextprotocol/clientCapabilities"]["elicitation"] == {}
    await links.drop("never opened here")
    assert not link.alive
    with pytest.raises(UpstreamLost, match="was ended"):
        await call(link, tool(1, "who"))


async def test_what_is_about_the_session_is_answered_by_the_link(links: StatelessLinks) -> None:
    link = await opened(links)
    assert await call(link, message("p", "ping")) == [{"jsonrpc": "2.0", "id": "p", "result": {}}]
    (refused,) = await call(link, message(2, "logging/setLevel", level="loud"))
    assert refused["error"]["code"] == -32602
    assert (await call(link, message(3, "logging/setLevel", level="info")))[0]["result"] == {}
    (found,) = await call(link, tool(4, "who"))
    meta = found["result"]["structuredContent"]["meta"]
    assert meta["io.modelcontextprotocol/logLevel"] == "info"


async def test_changes_come_to_the_listener(links: StatelessLinks) -> None:
    link = await opened(links)
    assert (await call(link, message(1, "resources/subscribe", uri=URI)))[0]["result"] == {}
    heard = link.listen()
    assert (await call(link, tool(2, "touch", uri=URI)))[-1]["result"]["content"]
    found = [await first(heard), await first(heard)]
    assert [one["method"] for one in found] == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    assert found[1]["params"] == {"uri": URI}
    assert (await call(link, message(3, "resources/unsubscribe", uri=URI)))[0]["result"] == {}
    await call(link, tool(4, "touch", uri=URI))
    await call(link, tool(5, "touch", uri="file:///b"))
    assert [(await first(heard))["method"] for _ in range(2)] == ["notifications/tools/list_changed"] * 2
    newer = link.listen()
    waiting = asyncio.get_running_loop().create_task(anext(newer, None))
    with pytest.raises(StopAsyncIteration):
        await anext(heard)
    await link.close()
    assert await waiting is None


async def test_a_cancelled_call_ends_here_and_there(links: StatelessLinks) -> None:
    link = await opened(links)
    coming = link.exchange(tool(1, "never", 1), HEADERS)
    assert (await first(coming))["method"] == "notifications/progress"
    await link.send(cancelled(1, reason="enough"), HEADERS)
    final = await first(coming)
    assert final["id"] == 1
    assert final["error"] == {"code": -32603, "message": "The request was cancelled: enough"}
    async with asyncio.timeout(10):
        while (await call(link, tool(2, "who")))[0]["result"]["structuredContent"]["ended"] != ["never"]:
            pass


async def test_a_client_on_a_pipe_gets_all_through_the_listener(links: StatelessLinks) -> None:
    link = await opened(links)
    heard = link.listen()
    await link.send(tool(1, "count", 1), HEADERS)
    assert [(await first(heard)).get("id") for _ in range(4)] == [None, None, None, 1]
    await link.settled()
    link.keep(b'{"jsonrpc":"2.0","id":9,"result":{}}')
    assert (await first(heard))["id"] == 9


def discovery(body: Json, request: Request) -> Json | None:
    if body["method"] == "server/discover":
        found: Json = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}
        return {"result": found}
    if body["method"] == "tools/call":
        return None
    return {"error": {"code": -32601, "message": "no such method"}}


@asynccontextmanager
async def scripted_links(
    play: Play, clock: Clock | None = None, *, max_links: int = 100, idle: float = 3600
) -> AsyncGenerator[tuple[StatelessLinks, list[Request]]]:
    async with serve(play) as server, Crew("test") as crew:
        upstream = build(UrlOptions(name="x", url=server.url), SystemClock())
        made = StatelessLinks(upstream, clock or SystemClock(), crew, max_links=max_links, idle=idle)
        try:
            yield made, server.requests
        finally:
            await made.close()
            await crew.close()
            await upstream.close()


async def test_an_upstream_without_subscriptions_refuses_them_and_serves_on() -> None:
    async with scripted_links(scripted(discovery)) as (links, _):
        link = await opened(links)
        (refused,) = await call(link, message(1, "resources/subscribe", uri=URI))
        assert refused["error"] == {"code": -32601, "message": "no such method"}
        heard = link.listen()
        waiting = asyncio.get_running_loop().create_task(anext(heard, None))
        assert (await call(link, message(2, "ping")))[0]["result"] == {}
        assert not waiting.done()
        await link.close()
        assert await waiting is None


async def test_what_is_not_acknowledged_is_refused() -> None:
    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        if json.loads(request.body)["method"] == "server/discover":
            await scripted(discovery)(request, writer)
            return
        kept = {"notifications": {"toolsListChanged": True}}
        writer.write(stream_head())
        writer.write(event({"method": ACKNOWLEDGED, "params": kept}))

    async with scripted_links(play) as (links, requests):
        link = await opened(links)
        (refused,) = await call(link, message(1, "resources/subscribe", uri=URI))
        assert refused["error"]["code"] == -32602
        wanted = json.loads(requests[-1].body)["params"]["notifications"]
        assert wanted["resourceSubscriptions"] == [URI]
        assert requests[-1].headers["mcp-method"] == "subscriptions/listen"
        assert requests[-1].headers["mcp-protocol-version"] == "2026-07-28"


async def test_a_subscription_that_is_cut_is_opened_again() -> None:
    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        body = json.loads(request.body)
        if body["method"] == "server/discover":
            await scripted(discovery)(request, writer)
            return
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": body["id"]}}
        writer.write(stream_head())
        writer.write(event({"method": ACKNOWLEDGED, "params": {**meta, "notifications": {}}}))
        writer.write(event({"method": "notifications/prompts/list_changed", "params": meta}))
        await writer.drain()
        writer.close()

    async with scripted_links(play, LeapClock()) as (links, _):
        heard = (await opened(links)).listen()
        for _ in range(3):
            assert await first(heard) == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}


async def test_an_upstream_that_refuses_discovery_refuses_the_session() -> None:
    refusal = {"error": {"code": -32022, "message": "no", "data": {"supported": ["2027-01-01"]}}}
    async with scripted_links(scripted(lambda _, __: refusal)) as (links, requests):
        link, raw = await links.open("t", INITIALIZE, HEADERS)
        assert json.loads(raw)["error"]["message"] == "no"
        assert json.loads(raw)["id"] == 0
        assert not link.alive
        assert len(links) == 0
        assert requests[0].headers["authorization"] == "Bearer x"


async def test_links_are_bounded_and_the_longest_idle_makes_room_I10() -> None:
    async with scripted_links(scripted(discovery), max_links=2) as (links, requests):
        used = await opened(links, "1")
        idle = await opened(links, "2")
        await call(used, message(1, "ping"))
        await opened(links, "3")
        assert (used.alive, idle.alive) == (True, False)
        busy = [await opened(links, tag) for tag in ("4", "5")]
        calls = [asyncio.get_running_loop().create_task(call(one, tool(1, "t"))) for one in busy]
        await until(lambda: sum(b"tools/call" in one.body for one in requests) == 2)
        with pytest.raises(Refusal, match="Limit reached"):
            await links.open("6", INITIALIZE, HEADERS)
        for one in busy:
            await one.close()
        assert [found[-1]["error"]["code"] for found in await asyncio.gather(*calls)] == [-32603] * 2


async def test_idle_links_end() -> None:
    gate = asyncio.Event()

    class Gated(LeapClock):
        async def sleep(self, seconds: float) -> None:
            await gate.wait()
            await super().sleep(seconds)

    clock = Gated()
    async with scripted_links(scripted(discovery), clock, idle=100.0) as (links, _):
        link = await opened(links)
        gate.set()
        await until(lambda: not link.alive)
        assert len(links) == 0
        assert clock.now >= 100
