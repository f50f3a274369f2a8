"""The stateless era: discovery, lists, reads and completions over upstreams of both eras (caching)."""

from __future__ import annotations

import pytest

from tests.wire.answers import Json
from tests.wire.era_upstream import INFO, INSTRUCTIONS, MIRRORED
from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import META, VERSION

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
SERVER_INFO = f"{META}serverInfo"
CACHED = {
    "server/discover": {},
    "tools/list": {},
    "prompts/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "test://static"},
}
COMPLETE: Json = {
    "ref": {"type": "ref/prompt", "name": "greet"},
    "argument": {"name": "city", "value": "pa"},
}


@pytest.fixture(scope="session")
def eras(era_alone: Eras) -> Eras:
    """Serve on one store: nothing here is kept in it."""
    return era_alone


async def test_discovery_tells_what_the_upstream_said_of_itself(caller: Stateless) -> None:
    found = await caller.discover()
    assert VERSION in found["supportedVersions"]
    assert found["_meta"][SERVER_INFO] == INFO
    assert found["instructions"] == INSTRUCTIONS
    assert found["ttlMs"] >= 0
    assert found["cacheScope"] == "private"
    capabilities = found["capabilities"]
    assert set(capabilities) == {"tools", "resources", "prompts", "logging", "completions", "extensions"}
    assert capabilities["tools"]["listChanged"] is True
    assert capabilities["resources"]["subscribe"] is True
    assert not {"protocolVersion", "serverInfo"} & set(found)


async def test_discovery_over_an_upstream_of_the_same_era_is_its_own_with_tasks(eras: Eras) -> None:
    async with eras.client(name="modern") as caller:
        found = await caller.discover()
        assert VERSION in found["supportedVersions"]
        assert found["_meta"][SERVER_INFO] == INFO
        assert found["instructions"] == INSTRUCTIONS
        assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        assert found["capabilities"]["tools"] == {"listChanged": True}
        key = new_key()
        reply = await caller.ask("tools/call", tool(key, "must"))
        call = await eras.upstream.called(key)
        sent = eras.upstream.post_of(call).headers
        assert (sent["mcp-method"], sent["mcp-name"]) == ("tools/call", "must")
        assert sent["mcp-protocol-version"] == VERSION
        call.finish({"resultType": "complete", **text("by the gateway")})
        task = await caller.reach(reply.task_id, "completed")
        assert task["result"]["content"] == text("by the gateway")["content"]


@pytest.mark.parametrize("name", ["main", "modern"])
@pytest.mark.parametrize("method", list(CACHED))
async def test_cacheable_results_say_for_how_long(eras: Eras, name: str, method: str) -> None:
    async with eras.client(name=name) as caller:
        result = (await caller.ask(method, CACHED[method])).result
    assert result["resultType"] == "complete"
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
    if name == "main":
        assert result["cacheScope"] == "private"
    elif method.endswith("/list"):
        assert (result["ttlMs"], result["cacheScope"]) == (5000, "public")


@pytest.mark.parametrize(
    ("method", "params"), [*CACHED.items(), ("completion/complete", COMPLETE), ("tools/call", {})]
)
async def test_every_result_says_its_kind_and_who_answers(
    eras: Eras, caller: Stateless, method: str, params: Json
) -> None:
    if method == "tools/call":
        async with meanwhile(caller.ask(method, tool(key := new_key(), "plain"))) as asking:
            (await eras.upstream.called(key)).finish()
            result = (await asking).result
    else:
        result = (await caller.ask(method, params)).result
    assert result["resultType"] == "complete"
    assert result["_meta"][SERVER_INFO] == INFO
    assert ("ttlMs" in result) == (method in CACHED)


async def test_lists_come_as_the_upstream_has_them(caller: Stateless) -> None:
    assert (await caller.ask("prompts/list")).result["prompts"] == [{"name": "greet"}]
    assert (await caller.ask("resources/list")).result["resources"] == [
        {"uri": "test://static", "name": "static"}
    ]
    templates = (await caller.ask("resources/templates/list")).result["resourceTemplates"]
    assert templates == [{"uriTemplate": "test://{key}", "name": "any"}]
    found = (await caller.ask("completion/complete", COMPLETE)).result
    assert found["completion"] == {"values": ["paris"], "total": 1, "hasMore": False}
    read = (await caller.ask("resources/read", {"uri": "test://static"})).result
    assert read["contents"] == [{"uri": "test://static", "text": "static"}]


@pytest.mark.parametrize("name", ["main", "modern"])
async def test_pages_are_turned_and_have_one_scope(eras: Eras, name: str) -> None:
    async with eras.client(name=name) as caller:
        first = (await caller.ask("tools/list")).result
        second = (await caller.ask("tools/list", {"cursor": first["nextCursor"]})).result
        assert "nextCursor" not in second
        names = [one["name"] for page in (first, second) for one in page["tools"]]
        assert names == ["work", "plain_mirrored", "echo"]
        assert second["tools"][0]["inputSchema"] == MIRRORED
        assert first["cacheScope"] == second["cacheScope"]
        if name == "main":
            # The field of 2025-11-25 is no part of the era.
            assert not [one for one in first["tools"] if "execution" in one]
        reply = await caller.ask("tools/list", {"cursor": "page-9"})
        assert reply.refusal[1] == -32602


async def test_an_unknown_resource_is_refused_in_the_code_of_the_era(caller: Stateless) -> None:
    reply = await caller.ask("resources/read", {"uri": "test://nothing"})
    assert reply.refusal == (200, -32602, "Resource not found")


async def test_methods_of_a_vendor_pass(eras: Eras, caller: Stateless) -> None:
    # The upstream does not know this one, but it was asked.
    reply = await caller.ask("com.example/own", {"a": 1})
    assert reply.refusal[:2] == (404, -32601)
    assert [one for one in eras.upstream.asked("com.example/own") if one.session]


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "structuredContent": [1, 2]},
        {"content": [], "com.example/own": {"z": 1, "a": 2.50}, "isError": True},
        {"content": [{"type": "text", "text": "é\u2028😀"}], "_meta": {"com.example/x": {"deep": [None]}}},
        {"content": [], "resultType": "complete"},
    ],
)
async def test_I1_a_result_crosses_with_all_that_is_in_it(
    eras: Eras, caller: Stateless, result: Json
) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        (await eras.upstream.called(key)).finish(result)
        got = (await asking).result
    assert got.pop("resultType") == "complete"
    meta = got.pop("_meta")
    assert meta.pop(SERVER_INFO) == INFO
    assert meta == result.get("_meta", {})
    assert got == {name: part for name, part in result.items() if name not in ("_meta", "resultType")}


async def test_I1_the_arguments_and_the_rest_of_the_metadata_cross(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    arguments = {"key": key, "n": 1.0, "deep": {"a": [None, True, "é"]}}
    more: Json = {"_meta": {"traceparent": "00-1-2-01", "com.example/x": [1]}, "unknown": {"b": 1}}
    async with meanwhile(caller.call("plain", arguments, more=more)) as asking:
        call = await eras.upstream.called(key)
        sent = call.message["params"]
        assert sent["arguments"] == arguments
        assert sent["unknown"] == {"b": 1}
        assert {**sent["_meta"], "progressToken": 0} == {**more["_meta"], "progressToken": 0}
        call.finish()
        await asking
