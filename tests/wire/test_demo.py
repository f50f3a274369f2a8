"""The demo upstream is an ordinary server of the handshake era: it answers without any gateway."""

from __future__ import annotations

import json
import subprocess
import sys

import anyio
import pytest
from mcp import types
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.processes import ROOT
from tests.wire.official import Desk, connect, words

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{MCPDeprecationWarning.__module__}.MCPDeprecationWarning"),
    pytest.mark.one_replica("speaks to no gateway"),
]

DEMO = (sys.executable, "-m", "gateway.demo")


async def test_the_demo_tools_do_what_their_descriptions_say() -> None:
    desk = Desk()
    async with connect(DEMO, desk) as session:
        listed = await session.list_tools()
        names = ["slow_count", "ask_name", "summarise", "fail", "protocol_error", "large", "never"]
        assert [tool.name for tool in listed.tools] == names

        counted = await session.call_tool("slow_count", {"seconds": 1}, progress_callback=desk.step)
        assert words(counted) == "Counted for 1 seconds."
        assert [done for done, _, _ in desk.progress][::2] == [0, 1]
        assert words(await session.call_tool("ask_name")) == "Hello, Ada 1!"
        assert words(await session.call_tool("summarise", {"text": "much"})) == "In short: good."
        assert (await session.call_tool("fail")).is_error
        with pytest.raises(MCPError) as refused:
            await session.call_tool("protocol_error")
        assert refused.value.code == -32050
        assert len(words(await session.call_tool("large"))) == 256 * 1024

        read = await session.read_resource("demo://about")
        assert isinstance(read.contents[0], types.TextResourceContents)
        assert (await session.get_prompt("plan_day", {"city": "Rome"})).messages


async def test_never_ends_only_by_cancellation_and_the_demo_lives_on() -> None:
    async with connect(DEMO, Desk()) as session:
        with anyio.move_on_after(0.5) as limit:
            await session.call_tool("never")
        assert limit.cancelled_caught
        assert (await session.call_tool("fail")).is_error


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_demo_speaks_each_version_of_the_handshake_era(version: str) -> None:
    asked = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked})
    done = subprocess.run(
        DEMO, cwd=ROOT, input=f"{line}\n", capture_output=True, text=True, timeout=30, check=True
    )
    answer = json.loads(done.stdout)
    assert answer["result"]["protocolVersion"] == version
    assert done.stderr == ""
