"""`mcp-task-gateway stdio -- COMMAND`: both eras on one pipe, whichever era the server speaks."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.upstreams import fixture_command
from tests.wire.bridge_world import new_key, words
from tests.wire.era_pipe import LEGACY, EraPipe
from tests.wire.modern_upstream import command, seen_in
from tests.wire.modern_words import FIXED, INFO, META, PAGES, VERSION, Json
from tests.wire.stateless_rules import UNSUPPORTED_VERSION, accept, sampled

pytestmark = pytest.mark.timeout(60)

WRAP = [sys.executable, "-m", "gateway", "stdio", "--"]
PROGRESS = "notifications/progress"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TAG = f"{META}subscriptionId"
# A tool of each server, its arguments, what it says.
TOOLS: dict[str, tuple[str, Json, str]] = {
    "modern": ("echo", {"text": "hi"}, "hi"),
    "old": ("slow_count", {"seconds": 0.1, "steps": 2}, "Counted for 0.1 seconds."),
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "seen.jsonl"


@pytest_asyncio.fixture
async def modern(log: Path) -> AsyncIterator[EraPipe]:
    """Wrap a server of the stateless era alone."""
    async with EraPipe([*WRAP, *command(log)]) as pipe:
        yield pipe


@pytest.fixture(params=["modern", "old"])
def server(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture
async def pipe(server: str, log: Path) -> AsyncIterator[EraPipe]:
    """Wrap a server of one era alone."""
    child = command(log) if server == "modern" else fixture_command("mcp1", "stdio")
    async with EraPipe([*WRAP, *child]) as made:
        yield made


async def test_a_handshake_client_over_a_stateless_server(modern: EraPipe, log: Path) -> None:
    welcome = await modern.open()
    assert (welcome["protocolVersion"], welcome["serverInfo"]) == (LEGACY, INFO)
    assert "call" in welcome["capabilities"]["tasks"]["requests"]["tools"]
    listed = (await modern.ask("tools/list"))["result"]
    assert {tool["name"]: tool["execution"]["taskSupport"] for tool in listed["tools"]}[
        "echo"
    ] == "optional"
    assert (await modern.call("echo", text="hi"))["result"] == {"content": [{"type": "text", "text": "hi"}]}
    assert (await modern.call("refuse"))["error"]["code"] == -32050
    assert (await modern.ask("ping"))["result"] == {}
    params: Json = {"name": "count", "arguments": {}, "_meta": {"progressToken": 3}}
    assert words((await modern.ask("tools/call", params))["result"]) == "counted"
    assert [m["params"]["progressToken"] for m in modern.seen if m.get("method") == PROGRESS] == [3] * 3
    seen_in(log).check()


async def test_a_live_question_of_a_stateless_server(modern: EraPipe) -> None:
    await modern.open()
    params: Json = {"name": "ask_name", "arguments": {}}
    await modern.say({"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": params})
    asked = await modern.asked()
    assert asked["method"] == "elicitation/create"
    await modern.answer(asked, accept(name="Ada"))
    assert json.loads(words((await modern.response("q"))["result"])) == {"name": accept(name="Ada")}


async def test_log_levels_and_changes_of_a_stateless_server(modern: EraPipe) -> None:
    await modern.open()
    assert (await modern.ask("logging/setLevel", {"level": "warning"}))["result"] == {}
    await modern.call("chat")
    assert (await modern.notification("notifications/message"))["params"]["data"] == "a warning"
    assert (await modern.ask("resources/subscribe", {"uri": "test://a"}))["result"] == {}
    await modern.call("touch", uri="test://a")
    await modern.notification("notifications/tools/list_changed")
    updated = await modern.notification("notifications/resources/updated")
    assert updated["params"] == {"uri": "test://a"}


async def test_a_cancelled_call_of_a_session_over_a_stateless_server(modern: EraPipe, log: Path) -> None:
    await modern.open()
    key, seen = new_key(), seen_in(log)
    params: Json = {"name": "never", "arguments": {"key": key}, "_meta": {"progressToken": "p"}}
    await modern.say({"jsonrpc": "2.0", "id": "stop", "method": "tools/call", "params": params})
    await modern.notification(PROGRESS)
    await modern.cancel("stop")
    await seen.until(lambda: seen.cancelled(key=key))


async def test_a_stateless_client_over_either_server(pipe: EraPipe, server: str) -> None:
    found = (await pipe.new("server/discover"))["result"]
    assert found["supportedVersions"][0] == VERSION
    assert f"{META}tasks" in found["capabilities"]["extensions"]
    names = {tool["name"] for tool in (await pipe.new("tools/list"))["result"]["tools"]}
    tool, arguments, said = TOOLS[server]
    assert tool in names
    assert words(await pipe.call_new(tool, **arguments)) == said
    unknown = await pipe.new("x-vendor/unknown")
    # The other server's own word for a method that it does not know.
    assert unknown["error"]["code"] == (-32601 if server == "modern" else -32602)
    gone = await pipe.new("tasks/list")
    assert gone["error"]["code"] == -32601
    refused = await pipe.new("tools/list", {"_meta": {f"{META}protocolVersion": "2099-01-01"}})
    assert refused["error"]["code"] == UNSUPPORTED_VERSION
    # Nobody's id, and somebody's answer: the pipe lives on.
    await pipe.cancel("nobody's")
    await pipe.answer({"id": "nobody's"}, {})
    assert words(await pipe.call_new(tool, **arguments)) == said


async def test_input_is_asked_of_a_stateless_client_by_results(pipe: EraPipe, server: str) -> None:
    for tool, answer in (("ask_name", accept(name="Ada")), ("summarise", sampled("short"))):
        name = {"summarise": "sample"}.get(tool, tool) if server == "modern" else tool
        params: Json = {"name": name, "arguments": {"text": "much"}}
        asked = (await pipe.new("tools/call", params, tasks=False))["result"]
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        more = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
        done = (await pipe.new("tools/call", {**params, **more}, tasks=False))["result"]
        assert done["resultType"] == "complete"
        assert ("Ada" if tool == "ask_name" else "short") in words(done)


async def test_progress_and_a_cancellation_of_a_stateless_request(pipe: EraPipe, server: str) -> None:
    params: Json = {"name": "never", "arguments": {}, "_meta": {"progressToken": "p"}}
    if server == "old":
        params |= {"name": "slow_count", "arguments": {"seconds": 100, "steps": 1000}}
    sent = await pipe.send_new("tools/call", params, tasks=False)
    told = await pipe.notification(PROGRESS)
    assert told["params"]["progressToken"] == "p"
    await pipe.cancel(sent["id"])
    await pipe.new("server/discover")
    # "MUST NOT send any further messages for it"
    assert not [m for m in pipe.seen if m.get("id") == sent["id"]]


async def test_the_stateless_server_hears_of_the_cancellation(modern: EraPipe, log: Path) -> None:
    key, seen = new_key(), seen_in(log)
    params: Json = {"name": "never", "arguments": {"key": key}, "_meta": {"progressToken": "p"}}
    sent = await modern.send_new("tools/call", params, tasks=False)
    await modern.notification(PROGRESS)
    await modern.cancel(sent["id"])
    await seen.until(lambda: seen.cancelled(key=key))
    seen.check()


async def test_subscriptions_over_the_pipe(pipe: EraPipe, server: str) -> None:
    uri = "test://a" if server == "modern" else "test://watched"
    wanted: Json = {"toolsListChanged": True, "resourceSubscriptions": [uri]}
    first = await pipe.send_new("subscriptions/listen", {"notifications": wanted}, ident="one")
    granted = await pipe.notification(ACKNOWLEDGED)
    assert granted["params"]["notifications"] == wanted
    assert granted["params"]["_meta"][TAG] == "one"
    second = await pipe.send_new("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert (await pipe.notification(ACKNOWLEDGED))["params"]["_meta"][TAG] == second["id"]
    touch = {"name": "touch", "arguments": {"uri": uri}}
    add = {"name": "add_tool", "arguments": {"name": "late"}} if server == "old" else touch
    await pipe.new("tools/call", add, tasks=False)
    tags = [(await pipe.notification("notifications/tools/list_changed"))["params"] for _ in range(2)]
    assert sorted((tag["_meta"][TAG] for tag in tags), key=str) == sorted(["one", second["id"]], key=str)
    await pipe.cancel(first["id"])
    await pipe.new("tools/call", touch, tasks=False)
    if server == "modern":
        tagged = await pipe.notification("notifications/tools/list_changed")
        assert tagged["params"]["_meta"][TAG] == second["id"]
    await pipe.new("server/discover")
    told = [m["params"] for m in pipe.kept if m.get("method") == "notifications/tools/list_changed"]
    assert not [one for one in told if one["_meta"][TAG] == "one"]


async def test_a_client_that_probes_may_shake_hands_on_the_same_pipe(pipe: EraPipe, server: str) -> None:
    wished = {f"{META}protocolVersion": "2099-01-01"}
    refused = await pipe.new("server/discover", {"_meta": wished})
    assert refused["error"]["code"] == UNSUPPORTED_VERSION
    assert {VERSION, LEGACY} <= set(refused["error"]["data"]["supported"])
    await pipe.open()
    tool, arguments, said = TOOLS[server]
    assert words((await pipe.call(tool, **arguments))["result"]) == said
    # Each request tells its era by itself.
    assert words(await pipe.call_new(tool, **arguments)) == said
    assert words((await pipe.call(tool, **arguments))["result"]) == said


async def test_I1_what_a_stateless_server_says_to_its_own_era_crosses_unchanged(modern: EraPipe) -> None:
    for method, params in {
        "tools/list": {"cursor": "page-2"},
        "resources/list": {},
        "resources/read": {"uri": "test://static"},
        "prompts/get": {"name": "greet"},
    }.items():
        result = (await modern.new(method, params))["result"]
        if method == "tools/list":
            kept = {"resultType": "complete", "ttlMs": 5000, "cacheScope": "public"}
            assert result == {**kept, "tools": PAGES[1]}
        else:
            assert result == FIXED[method]
    refused = await modern.new("resources/read", {"uri": "test://none"})
    error = {"code": -32602, "message": "Resource not found", "data": {"uri": "test://none"}}
    assert refused["error"] == error
