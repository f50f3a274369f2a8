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

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.one_replica("speaks on a pipe, to the stdio front"),
]

WRAP = [sys.executable, "-m", "gateway", "stdio", "--"]
PROGRESS = "notifications/progress"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TAG = f"{META}subscriptionId"
# A tool of each server, its arguments, what it says.
TOOLS: dict[str, tuple[str, Json, str]] = {
    "modern": ("echo", {"text": "hi"}, "hi"),
    "old": ("slow_count", {"seconds": 0.1, "steps": 2}, "Counted for 0.1 seconds."),
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("eras") / "seen.jsonl"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pipes(log: Path) -> AsyncIterator[dict[str, EraPipe]]:
    """Wrap a server of the stateless era alone, one of the handshake era alone, and one with a session."""
    child = [*WRAP, *command(log)]
    async with (
        EraPipe(child) as session,
        EraPipe(child) as modern,
        EraPipe([*WRAP, *fixture_command("mcp1", "stdio")]) as old,
    ):
        await session.open()
        yield {"session": session, "modern": modern, "old": old}


def fresh(pipe: EraPipe) -> EraPipe:
    """Return a pipe that has forgotten what earlier tests heard."""
    pipe.kept.clear()
    pipe.seen.clear()
    return pipe


@pytest.fixture
def session(pipes: dict[str, EraPipe]) -> EraPipe:
    """Return a client that has shaken hands with a stateless server."""
    return fresh(pipes["session"])


@pytest.fixture
def modern(pipes: dict[str, EraPipe]) -> EraPipe:
    """Return a client of a stateless server."""
    return fresh(pipes["modern"])


@pytest.fixture(params=["modern", "old"])
def server(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def pipe(pipes: dict[str, EraPipe], server: str) -> EraPipe:
    """Return a client of a server of one era alone."""
    return fresh(pipes[server])


async def stepped(pipe: EraPipe, token: str) -> Json:
    """Wait for progress of a token."""
    return await pipe.until(lambda m: m.get("method") == PROGRESS and m["params"]["progressToken"] == token)


async def test_a_handshake_client_over_a_stateless_server(session: EraPipe, log: Path) -> None:
    welcome = session.welcome
    assert (welcome["protocolVersion"], welcome["serverInfo"]) == (LEGACY, INFO)
    assert "call" in welcome["capabilities"]["tasks"]["requests"]["tools"]
    listed = (await session.ask("tools/list"))["result"]
    assert {tool["name"]: tool["execution"]["taskSupport"] for tool in listed["tools"]}[
        "echo"
    ] == "optional"
    assert (await session.call("echo", text="hi"))["result"] == {
        "content": [{"type": "text", "text": "hi"}]
    }
    assert (await session.call("refuse"))["error"]["code"] == -32050
    assert (await session.ask("ping"))["result"] == {}
    params: Json = {"name": "count", "arguments": {}, "_meta": {"progressToken": 3}}
    assert words((await session.ask("tools/call", params))["result"]) == "counted"
    told = [m["params"] for m in session.seen if m.get("method") == PROGRESS]
    assert [one["progress"] for one in told if one["progressToken"] == 3] == [1, 2, 3]
    seen_in(log).check()


async def test_a_live_question_of_a_stateless_server(session: EraPipe) -> None:
    params: Json = {"name": "ask_name", "arguments": {}}
    await session.say({"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": params})
    asked = await session.asked()
    assert asked["method"] == "elicitation/create"
    await session.answer(asked, accept(name="Ada"))
    assert json.loads(words((await session.response("q"))["result"])) == {"name": accept(name="Ada")}


async def test_log_levels_and_changes_of_a_stateless_server(session: EraPipe) -> None:
    assert (await session.ask("logging/setLevel", {"level": "warning"}))["result"] == {}
    await session.call("chat")
    assert (await session.notification("notifications/message"))["params"]["data"] == "a warning"
    assert (await session.ask("resources/subscribe", {"uri": "test://a"}))["result"] == {}
    await session.call("touch", uri="test://a")
    await session.notification("notifications/tools/list_changed")
    updated = await session.notification("notifications/resources/updated")
    assert updated["params"] == {"uri": "test://a"}


async def test_a_cancelled_call_of_a_session_over_a_stateless_server(session: EraPipe, log: Path) -> None:
    key, seen = new_key(), seen_in(log)
    params: Json = {"name": "never", "arguments": {"key": key}, "_meta": {"progressToken": key}}
    await session.say({"jsonrpc": "2.0", "id": "stop", "method": "tools/call", "params": params})
    await stepped(session, key)
    await session.cancel("stop")
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
    await pipe.answer({"id": "nobody's"}, {"resultType": "complete"})
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
    token = new_key()
    params: Json = {"name": "never", "arguments": {}, "_meta": {"progressToken": token}}
    if server == "old":
        params |= {"name": "slow_count", "arguments": {"seconds": 100, "steps": 1000}}
    sent = await pipe.send_new("tools/call", params, tasks=False)
    await stepped(pipe, token)
    await pipe.cancel(sent["id"])
    await pipe.new("server/discover")
    # "MUST NOT send any further messages for it"
    assert not [m for m in pipe.seen if m.get("id") == sent["id"]]


async def test_the_stateless_server_hears_of_the_cancellation(modern: EraPipe, log: Path) -> None:
    key, seen = new_key(), seen_in(log)
    params: Json = {"name": "never", "arguments": {"key": key}, "_meta": {"progressToken": key}}
    sent = await modern.send_new("tools/call", params, tasks=False)
    await stepped(modern, key)
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
