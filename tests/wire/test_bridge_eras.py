"""Both eras on one URL: told apart by each request, and a client that probes ends in the newest form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests import upstreams
from tests.balancers import serve
from tests.upstreams import Running
from tests.wire.bridge_world import POLICY, Bridge, configuration, credential, words
from tests.wire.clients_tried import CLIENTS, run
from tests.wire.modern_words import META, Json
from tests.wire.stateless_rules import UNSUPPORTED_VERSION, VERSION, accept

pytest_plugins = ["tests.wire.bridge_fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

LEGACY = "2025-11-25"
# Each upstream, and the tools that serve the scenes there.
OLD: dict[str, tuple[str, Json, str]] = {
    "plain": ("slow_count", {"seconds": 0.1}, "Counted for 0.1 seconds."),
    "progress": ("slow_count", {"seconds": 0.1}, "Counted for 0.1 seconds."),
    "plain_input": ("ask_name", {}, "Hello, Ada!"),
    "sample": ("summarise", {"text": "much"}, "In short: good."),
    "subscribe": ("add_tool", {"name": "late"}, "Added late"),
}
NEW: dict[str, tuple[str, Json, str]] = {
    "plain": ("echo", {"text": "hi"}, "hi"),
    "progress": ("count", {}, "counted"),
    "plain_input": ("ask_name", {}, '"name": "Ada"'),
    "sample": ("sample", {}, "In short: good."),
    "subscribe": ("touch", {"uri": "test://x"}, "touched"),
}
TOOLS = {"handshake": OLD, "dual": OLD, "modern": NEW, "pipe": NEW, "tasks": NEW}
MODES = {"mcp2-auto": VERSION, "mcp2-legacy": LEGACY, "mcp2-pinned": VERSION}
TRIED = {
    "handshake": list(MODES),
    "modern": list(MODES),
    "dual": ["mcp2-auto", "mcp2-legacy"],
    "pipe": ["mcp2-auto", "mcp2-legacy"],
}
TASKS: dict[str, tuple[str, Json, str]] = {
    "task": ("count", {}, "counted"),
    "input": ("ask_name", {}, '"name": "Ada"'),
    "list": ("count", {}, "counted"),
    "fail": ("fail", {}, "It failed."),
    "cancel": ("never", {}, ""),
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def eras(bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """Serve upstreams of the handshake era and of both, beside those of the stateless era."""
    place: Path = tmp_path_factory.mktemp("eras")
    servers: list[Running] = []
    config: Json = dict(bridge.gateways[0].config["upstreams"])
    try:
        servers += [upstreams.start_fixture("mcp1", "http", log=None)]
        servers += [upstreams.start_fixture("mcp2", "http", log=None)]
        for name, server in zip(("handshake", "dual"), servers, strict=True):
            config[name] = {"url": server.url, "tasks": POLICY}
        gateway = serve(configuration(config, "memory://"), place)
        await asyncio.to_thread(gateway.wait)
        yield Bridge([gateway], {})
        await asyncio.to_thread(gateway.end)
    finally:
        for one in servers:
            await asyncio.to_thread(one.process.stop, 2)


def plan(url: str, scenes: dict[str, tuple[str, Json, str]]) -> list[dict[str, Any]]:
    return [
        {"scene": scene, "tool": tool, "arguments": arguments, "url": url}
        for scene, (tool, arguments, _) in scenes.items()
    ]


@pytest.mark.parametrize("upstream", TRIED)
@pytest.mark.one_replica("the calls meet in one child; each replica has its own", only=("pipe",))
async def test_the_official_client_is_served_in_each_mode(eras: Bridge, upstream: str) -> None:
    await asyncio.gather(*(tried(eras, upstream, mode) for mode in TRIED[upstream]))


async def tried(eras: Bridge, upstream: str, mode: str) -> None:
    scenes = TOOLS[upstream]
    accounts = await asyncio.to_thread(run, CLIENTS[mode], plan(eras.url(upstream), scenes))
    for scene, (_, _, said) in scenes.items():
        account: dict[str, Any] = dict(accounts[scene])
        assert account["ok"], (scene, account)
        # In the mode `auto` it asks what there is, and takes the newest.
        assert account["version"] == MODES[mode], (scene, account)
        assert said in account["result"], (scene, account)
    assert accounts["progress"]["progress"] >= 1
    assert accounts["plain_input"]["asked"] == 1
    assert accounts["subscribe"]["told"] is True


@pytest.mark.parametrize("name", ["py1", "ts1", "fm3"])
async def test_clients_of_dialect_b_have_tasks_over_a_stateless_upstream(eras: Bridge, name: str) -> None:
    scenes = {scene: found for scene, found in TASKS.items() if scene in CLIENTS[name].scenes}
    accounts = await asyncio.to_thread(run, CLIENTS[name], plan(eras.url("modern"), scenes))
    for scene in scenes.keys() - {"fail", "cancel", "list"}:
        account: dict[str, Any] = dict(accounts[scene])
        assert account["ok"], (scene, account)
        assert account["dialect"] == "B"
        assert scenes[scene][2] in account["result"], (scene, account)
    assert accounts["input"]["asked"] == 1
    assert accounts["cancel"]["statuses"][-1] == "cancelled"
    assert accounts["fail"]["statuses"][-1] == "failed"


@pytest.mark.parametrize("upstream", TOOLS)
async def test_each_request_tells_its_era_by_itself(eras: Bridge, upstream: str) -> None:
    tool, arguments, said = TOOLS[upstream]["plain"]
    own = credential()
    async with eras.client_c(upstream, own, tasks=False) as new, eras.client_b(upstream, own) as old:
        discovered = await new.discover()
        assert discovered["supportedVersions"][0] == VERSION
        assert old.welcome["protocolVersion"] == LEGACY
        params: Json = {"name": tool, "arguments": arguments}
        for _ in range(2):
            assert said in (await new.call(tool, arguments)).text
            assert said in words((await old.ask("tools/call", params))["result"])


@pytest.mark.parametrize("upstream", ["handshake", "modern", "pipe"])
async def test_a_client_that_probes_falls_back_on_the_same_url(eras: Bridge, upstream: str) -> None:
    async with eras.client_c(upstream) as prober:
        wished = {f"{META}protocolVersion": "2099-01-01"}
        refused = await prober.ask(
            "server/discover", {"_meta": wished}, headers={"MCP-Protocol-Version": "2099-01-01"}
        )
        assert refused.refusal[:2] == (400, UNSUPPORTED_VERSION)
        data = refused.response["error"]["data"]
        assert data["requested"] == "2099-01-01"
        # The newest of those that both know is the one to take; one who knows none of them shakes hands.
        assert {VERSION, LEGACY} <= set(data["supported"])
    async with eras.client_b(upstream) as client:
        assert client.welcome["protocolVersion"] == LEGACY
        assert "call" in client.welcome["capabilities"]["tasks"]["requests"]["tools"]


@pytest.mark.parametrize("upstream", ["handshake", "modern"])
async def test_a_session_and_stateless_requests_of_one_user_share_tasks(
    eras: Bridge, upstream: str
) -> None:
    own = credential()
    async with eras.client_c(upstream, own) as new, eras.client_b(upstream, own) as old:
        made = await old.start("ask_name", ttl=30_000)
        task = await new.reach(made, "input_required")
        await new.update(made, {key: accept(name="Ada") for key in task["inputRequests"]})
        assert "Ada" in words((await old.result(made))["result"])


async def test_a_session_id_does_not_make_a_stateless_request_one_of_the_session(eras: Bridge) -> None:
    async with eras.client_b("modern") as old, eras.client_c("modern", old.authorization) as new:
        reply = await new.call(
            "echo", {"text": "x"}, tasks=False, headers={"Mcp-Session-Id": str(old.session)}
        )
        assert reply.text == "x"


async def test_a_handshake_without_a_session_is_told_to_begin_one(eras: Bridge) -> None:
    async with eras.client_b("pipe") as client:
        client.session = None
        message = client.request("tools/list")
        async with await client.send("POST", json.dumps(message).encode(), asked=message) as answer:
            assert answer.status == 400
            assert "initialize" in (await answer.response())["error"]["message"]
