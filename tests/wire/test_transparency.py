"""What the official client sees of two generations of servers, directly and behind the gateway (I1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, TypeAlias

import pytest
from mcp import types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.fixture_servers.common_tools import WATCHED
from tests.gateways import StartGateway
from tests.upstreams import Server, StartServer, fixture_command
from tests.wire.official import Desk, connect, words

# Sampling, roots and logging are deprecated in the era that this client does not speak here.
pytestmark = pytest.mark.filterwarnings(f"ignore::{MCPDeprecationWarning.__module__}.MCPDeprecationWarning")

Target: TypeAlias = str | Sequence[str]
Way: TypeAlias = Literal["directly", "behind"]

TRANSPORTS = {
    "stdio": (),
    "http": (),
    "http-json": ("--json",),
    "http-events": ("--events",),
    "sse": (),
}
TALKING = [name for name in TRANSPORTS if name != "http-json"]


@pytest.fixture(params=["mcp1", "mcp2"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.param


@pytest.fixture(params=["directly", "behind"])
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture
def target(
    request: pytest.FixtureRequest,
    server: Server,
    way: Way,
    gateway: StartGateway,
    fixture_server: StartServer,
) -> Target:
    """Return what a client connects to, for the transport that the test names by indirect parameter."""
    transport: str = request.param
    options = [*TRANSPORTS[transport], "--extra-tools", "30", "--page-size", "20"]
    if transport == "stdio":
        command = fixture_command(server, "stdio", *options)
        return command if way == "directly" else gateway({"upstreams": {"up": {"command": command}}}).url()
    upstream = fixture_server(server, "sse" if transport == "sse" else "http", *options)
    return (
        upstream.url if way == "directly" else gateway({"upstreams": {"up": {"url": upstream.url}}}).url()
    )


every_transport = pytest.mark.parametrize("target", TRANSPORTS, indirect=True)
talking_transports = pytest.mark.parametrize("target", TALKING, indirect=True)


@every_transport
async def test_I1_lists_reads_and_errors_are_the_upstreams_own(target: Target) -> None:
    async with connect(target, Desk()) as session:
        pages = await _tool_names(session)
        assert [len(page) for page in pages] == [20, 20, 4]
        assert pages[-1][-1] == "extra_029"
        with pytest.raises(MCPError) as bad_cursor:
            await session.list_tools(params=types.PaginatedRequestParams(cursor="nonsense"))
        assert (bad_cursor.value.code, bad_cursor.value.message) == (-32602, "Unknown cursor")

        failed = await session.call_tool("fail")
        assert (failed.is_error, words(failed)) == (True, "This tool always fails.")
        with pytest.raises(MCPError) as refused:
            await session.call_tool("protocol_error")
        assert (refused.value.code, refused.value.data) == (-32050, {"detail": [1, "two", None]})

        assert len(words(await session.call_tool("large", {"kib": 300}))) == 300 * 1024
        meta = await session.call_tool("echo_meta", meta={"x.example/y": [1.0, None]})
        assert json.loads(words(meta))["x.example/y"] == [1.0, None]

        read = await session.read_resource("test://static")
        assert isinstance(read.contents[0], types.TextResourceContents)
        assert read.contents[0].text == "A static text."
        prompt = await session.get_prompt("greet", {"name": "Ada"})
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert prompt.messages[0].content.text == "Say hello to Ada."
        reference = types.PromptReference(type="ref/prompt", name="greet")
        completed = await session.complete(reference, {"name": "name", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]


async def _tool_names(session: ClientSession) -> list[list[str]]:
    """Return the names on each page."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while cursor or not pages:
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        pages.append([tool.name for tool in page.tools])
        cursor = page.next_cursor
    return pages


@talking_transports
async def test_I1_a_server_can_ask_and_tell_while_a_tool_runs(target: Target) -> None:
    desk = Desk()
    async with connect(target, desk) as session:
        assert words(await session.call_tool("ask_name")) == "Hello, Ada 1!"
        both = words(await session.call_tool("two_questions"))
        assert sorted(both.removeprefix("Hello, ").removesuffix("!").split(" and ")) == ["Ada 2", "Ada 3"]
        assert words(await session.call_tool("elicit_url")) == "The answer was accept."
        assert words(await session.call_tool("summarise", {"text": "much"})) == "In short: good."
        assert words(await session.call_tool("roots")) == "file:///one, file:///two"

        await session.call_tool("slow_count", {"seconds": 0.2, "steps": 2}, progress_callback=desk.step)
        assert [(done, total) for done, total, _ in desk.progress] == [(0, 2), (1, 2), (2, 2)]
        await session.call_tool("log_lines", {"n": 3})
        assert desk.logged == ["line 0", "line 1", "line 2"]


@talking_transports
async def test_I1_what_belongs_to_no_request_reaches_the_client(target: Target) -> None:
    desk = Desk()
    async with connect(target, desk) as session:
        await session.call_tool("add_tool", {"name": "newcomer"})
        await desk.wait_told("notifications/tools/list_changed")
        assert words(await session.call_tool("newcomer", {"a": 1})) == '{"a": 1}'

        await session.subscribe_resource(WATCHED)  # pyright: ignore[reportDeprecated] - of this era
        assert words(await session.call_tool("touch")) == "Told."
        await desk.wait_told("notifications/resources/updated")
        await session.unsubscribe_resource(WATCHED)  # pyright: ignore[reportDeprecated] - of this era
        assert words(await session.call_tool("touch")) == "Nobody watches."
