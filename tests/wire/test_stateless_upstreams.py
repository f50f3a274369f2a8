"""The stateless era over real servers of both eras on every transport (design section 7).

The servers are those of the official packages; their own logs say what ran and what was cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.upstreams import Running, fixture_command, read_runs, start_fixture
from tests.wire.answers import Json
from tests.wire.era_world import POLICY, meanwhile, started
from tests.wire.raw_upstream import soon
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import META, VERSION, accept, answers, sampled

pytestmark = pytest.mark.asyncio(loop_scope="session")
KINDS: Final = ["http", "events", "sse", "stdio", "modern", "modern-stdio"]
INPUTS: Final[Json] = {
    "elicitation/create": accept(name="Ada"),
    "sampling/createMessage": sampled("Short."),
    "roots/list": {"roots": [{"uri": "file:///one"}, {"uri": "file:///two"}]},
}
RULES: Final[Json] = {
    **POLICY,
    "default": "forbidden",
    "tools": {"slow_*": "optional", "ask_*": "optional"},
}


class Real:
    """A gateway in front of all servers, and the logs of these."""

    def __init__(self, gateway: Gateway, logs: dict[str, Path]) -> None:
        self.gateway = gateway
        self.logs = logs

    def client(self, kind: str, **options: Any) -> Stateless:
        """Return a client of one server; all of one server are the same principal's."""
        return Stateless(self.gateway.url(kind), authorization="Bearer real", **options)

    def saw(self, kind: str, tool: str, event: str) -> int:
        """Return how often something happened to a tool."""
        return sum(
            1 for line in read_runs(self.logs[kind]) if (line["tool"], line["event"]) == (tool, event)
        )


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Json, dict[str, Path]]]:
    """Start the servers that are reached by URL; return the upstreams of the configuration, and logs."""
    place = tmp_path_factory.mktemp("servers")
    logs = {kind: place / f"{kind}.jsonl" for kind in KINDS}
    running: dict[str, Running] = {}
    try:
        running["http"] = start_fixture("mcp1", "http", log=logs["http"])
        running["events"] = start_fixture("mcp1", "http", "--events", log=logs["events"])
        running["sse"] = start_fixture("mcp1", "sse", log=logs["sse"])
        running["modern"] = start_fixture("mcp2", "http", log=logs["modern"])
        found: Json = {kind: {"url": one.url, "tasks": RULES} for kind, one in running.items()}
        for kind, server in (("stdio", "mcp1"), ("modern-stdio", "mcp2")):
            assert server in ("mcp1", "mcp2")
            command = fixture_command(server, "stdio", "--log", str(logs[kind]))
            found[kind] = {"command": command, "tasks": RULES}
        yield found, logs
    finally:
        for one in running.values():
            one.process.stop(2)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real(
    servers: tuple[Json, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Real]:
    """Serve all of them."""
    upstreams, logs = servers
    config = {"store": {"url": "memory://"}, "upstreams": upstreams, "drain": "1s"}
    (gateway,) = await started(config, place=tmp_path_factory.mktemp("real"))
    yield Real(gateway, logs)
    await asyncio.to_thread(gateway.end)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return each server in turn."""
    return request.param


async def test_discovery_and_lists(real: Real, kind: str) -> None:
    async with real.client(kind) as caller:
        found = await caller.discover()
        assert VERSION in found["supportedVersions"]
        assert found["_meta"][f"{META}serverInfo"]["name"] == "fixture"
        tools = (await caller.ask("tools/list")).result["tools"]
        assert {"ask_name", "slow_count"} <= {tool["name"] for tool in tools}
        assert (await caller.ask("resources/list")).result["resources"]
        assert "resourceTemplates" in (await caller.ask("resources/templates/list")).result
        assert (await caller.ask("prompts/list")).result["prompts"][0]["name"] == "greet"
        read = (await caller.ask("resources/read", {"uri": "test://static"})).result
        assert read["contents"][0]["text"] == "A static text."
        prompt = (await caller.ask("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})).result
        assert prompt["messages"][0]["content"]["text"] == "Say hello to Ada."
        completion: Json = {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": "pa"},
        }
        found = (await caller.ask("completion/complete", completion)).result
        assert found["completion"]["values"] == ["paris", "park", "party"]


async def test_progress_and_log_messages(real: Real, kind: str) -> None:
    async with real.client(kind) as caller:
        arguments = {"seconds": 0.06, "steps": 3}
        reply = await caller.call("slow_count", arguments, tasks=False, progress="mine")
        assert reply.text == "Counted for 0.06 seconds."
        done = [note["params"] for note in reply.notifications]
        assert [(one["progressToken"], one["progress"]) for one in done] == [("mine", n) for n in range(4)]
        more: Json = {"_meta": {f"{META}logLevel": "debug"}}
        reply = await caller.call("log_lines", {"n": 3}, more=more)
        assert [note["params"]["data"] for note in reply.notifications] == [f"line {n}" for n in range(3)]
        if kind != "modern":
            # What comes from a server of the same era over HTTP passes as it is, and this one tells all.
            assert (await caller.call("log_lines", {"n": 3})).notifications == []


@pytest.mark.parametrize(
    ("tool", "arguments", "text", "rounds"),
    [
        ("ask_name", {}, "Hello, Ada!", 1),
        ("two_questions", {}, "Hello, Ada and Ada!", 1),
        ("summarise", {"text": "a long one"}, "Short.", 1),
        ("roots", {}, "file:///one, file:///two", 1),
    ],
)
async def test_a_tool_that_asks_is_answered_by_rounds(
    real: Real, kind: str, tool: str, arguments: Json, text: str, rounds: int
) -> None:
    async with real.client(kind) as caller:
        before = real.saw(kind, tool, "end")
        reply = await caller.call(tool, arguments, tasks=False, inputs=INPUTS)
        assert reply.text == text
        # Servers of the stateless era may ask one after another.
        assert rounds <= len(reply.rounds) <= 2
        assert real.saw(kind, tool, "end") == before + 1


async def test_failures_cross(real: Real, kind: str) -> None:
    async with real.client(kind) as caller:
        reply = await caller.call("fail")
        assert reply.result["isError"] is True
        assert reply.text == "This tool always fails."
        error = (await caller.call("protocol_error")).response["error"]
        assert error["message"] == "This tool answers with a protocol error."
        assert error["data"] == {"detail": [1, "two", None]}


async def test_I11_closing_the_stream_is_seen_in_the_servers_own_log(real: Real, kind: str) -> None:
    async with real.client(kind) as caller:
        begun, ended = real.saw(kind, "never", "start"), real.saw(kind, "never", "cancelled")
        async with meanwhile(caller.begin("tools/call", {"name": "never", "arguments": {}})) as asking:
            await soon(lambda: real.saw(kind, "never", "start") > begun)
            asking.cancel()
        await soon(lambda: real.saw(kind, "never", "cancelled") > ended)
        # The session serves on.
        assert (await caller.call("fail")).result["isError"] is True


async def test_a_task_and_its_questions(real: Real, kind: str) -> None:
    async with real.client(kind) as caller:
        made = await caller.call("slow_count", {"seconds": 0.1, "steps": 2})
        done = await caller.reach(made.task_id, "completed")
        assert done["result"]["content"][0]["text"] == "Counted for 0.1 seconds."
        made = await caller.call("ask_name")
        asked = await caller.reach(made.task_id, "input_required")
        await caller.update(made.task_id, answers(asked["inputRequests"], INPUTS))
        done = await caller.reach(made.task_id, "completed")
        assert done["result"]["content"][0]["text"] == "Hello, Ada!"
        assert done["result"]["resultType"] == "complete"


async def test_a_cancelled_task_is_cancelled_in_the_server(real: Real, kind: str) -> None:
    async with real.client(kind) as caller:
        begun, ended = (real.saw(kind, "slow_count", event) for event in ("start", "cancelled"))
        made = await caller.call("slow_count", {"seconds": 60})
        await soon(lambda: real.saw(kind, "slow_count", "start") > begun)
        await caller.cancel(made.task_id)
        await soon(lambda: real.saw(kind, "slow_count", "cancelled") > ended)
        assert (await caller.get(made.task_id)).result["status"] == "cancelled"


@pytest.mark.one_replica("each replica has a child of its own", only=("modern-stdio",))
async def test_changes_are_told(real: Real, kind: str) -> None:
    wanted: Json = {"toolsListChanged": True, "resourceSubscriptions": ["test://watched"]}
    async with real.client(kind) as caller, caller.listen(wanted) as changes:
        assert changes.acknowledged["toolsListChanged"] is True
        assert changes.acknowledged["resourceSubscriptions"] == ["test://watched"]
        assert (await caller.call("add_tool", {"name": f"added_{kind}"})).text
        change = await changes.next()
        assert change is not None
        assert change["method"] == "notifications/tools/list_changed"
        if kind in ("stdio", "modern-stdio", "sse"):
            # Such a server knows subscriptions of the link that it is asked on alone.
            return
        assert (await caller.call("touch", {"uri": "test://watched"})).text == "Told."
        change = await changes.next()
        assert change is not None
        assert change["params"]["uri"] == "test://watched"


async def test_several_calls_at_once(real: Real, kind: str) -> None:
    async with real.client(kind) as caller:
        calls = [
            caller.call("slow_count", {"seconds": 0.05, "steps": 1}, tasks=False, progress=n)
            for n in range(4)
        ]
        for number, reply in enumerate(await asyncio.gather(*calls)):
            assert {note["params"]["progressToken"] for note in reply.notifications} == {number}
