"""A result that is in hand reaches its client, whatever else fails; calls under way wait for no turn."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.warm.front_world import opened
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import POLICY, Eras, configuration, deployed, meanwhile, new_key
from tests.wire.raw_upstream import Request
from tests.wire.scripted_upstream import text, tool
from tests.wire.stateless_rules import accept, retry

pytest_plugins = ["tests.wire.era_fixtures"]
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
HEADERS: Final = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "t"}


class Shy:
    """A stateless server that says once who it is, and never again."""

    def __init__(self) -> None:
        self.discovered = 0
        self.called = 0

    async def behave(self, request: Request) -> bool:
        match request.message.get("method"):
            case "server/discover":
                self.discovered += 1
                if self.discovered > 1:
                    request.json({}, "500 Internal Server Error")
                else:
                    request.result(
                        {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}
                    )
            case "tools/call":
                self.called += 1
                content = [{"type": "text", "text": "done"}]
                request.result({"resultType": "complete", "content": content})
            case _:
                return False
        return True


async def test_a_result_is_not_lost_for_the_name_of_its_server() -> None:
    server = Shy()
    async with opened(server.behave, tasks={"inline_within": "30s"}) as door:
        params = {"name": "t", "arguments": {}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await door.ask("POST", json.dumps(message).encode(), HEADERS)
        assert answer.status == 200
        assert answer.json["result"]["content"][0]["text"] == "done"
        assert server.called == 1
        assert server.discovered > 1


@pytest.mark.asyncio(loop_scope="session")
async def test_a_plain_call_that_asks_waits_for_no_turn_and_takes_none(
    era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, "memory://")
    assert POLICY["tools"]["one_by_one"] == {"max_concurrent": 1}
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("turns")) as eras:
        await asks_beside_a_task(eras)


async def asks_beside_a_task(eras: Eras) -> None:
    """Have a task run, and a plain call of the same tool ask; then the other way round."""
    async with eras.client() as caller:
        made = await caller.ask("tools/call", tool(new_key(), "one_by_one"))
        params = tool(new_key(), "one_by_one")
        async with meanwhile(caller.ask("tools/call", params, tasks=False)) as asking:
            call = await eras.upstream.called(params["arguments"]["key"])
            call.ask()
            reply = await asking
        assert reply.result["resultType"] == "input_required"
        await caller.cancel(made.task_id)
        key = new_key()
        other = await caller.ask("tools/call", tool(key, "one_by_one"))
        (await eras.upstream.called(key)).finish()
        await caller.reach(other.task_id, "completed")
        answered = {**params, **retry(reply.result, {"elicitation/create": accept(name="Ada")})}
        async with meanwhile(caller.ask("tools/call", answered, tasks=False)) as retrying:
            call.finish(text("last"))
            assert (await retrying).text == "last"
