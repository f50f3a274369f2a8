"""`initialize` and `tools/list` answers: the one edit of each, byte for byte (I1, 2025-11-25 tasks 3.3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.warm.front_world import Answer, Door, opened
from tests.wire.raw_upstream import EVENTS, Request

Json = dict[str, Any]
TASKS: Final[Json] = {"tools": {"never": "forbidden", "must": "required"}, "default": "optional"}
ASKED: Final = b'{"jsonrpc":"2.0","id":"l","method":"tools/list"}'
# Odd on purpose: order of keys, spelling of numbers, fields that nobody knows, tools without a name.
TOOLS: Final = (
    b'{"inputSchema":{"type":"object","maximum":1.0e2},"name":"any","x-new":[1.0,12345678901234567890]}',
    b'{"name":"never"}',
    b'{"name":"must","execution":{"x-more":null,"taskSupport":"forbidden"},"title":"\\u00e9"}',
    b'{"name":"never","execution":{"taskSupport":"forbidden"}}',
    b'{"name":"any","execution":{"taskSupport":"required"}}',
    b'{"name":"never","execution":{"taskSupport":"optional"}}',
    b'{"name":"any","execution":{}}',
    b'{"title":"nameless"}',
)
EDITED: Final = (
    TOOLS[0][:-1] + b',"execution":{"taskSupport":"optional"}}',
    TOOLS[1],
    b'{"name":"must","execution":{"x-more":null,"taskSupport":"required"},"title":"\\u00e9"}',
    TOOLS[3],
    TOOLS[4],
    TOOLS[5],
    b'{"name":"any","execution":{"taskSupport":"optional"}}',
    TOOLS[7],
)
Carrier = Callable[[Request, bytes], None]


def listed(tools: tuple[bytes, ...]) -> bytes:
    return (
        b'{"id":"l","result":{"_meta":{"a":0.10},"tools":['
        + b",".join(tools)
        + b'],"nextCursor":"c"},"jsonrpc":"2.0"}'
    )


def as_json(request: Request, message: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-thing: kept\r\n"
    request.write(head + b"content-length: %d\r\n\r\n" % len(message) + message)


def as_events(request: Request, message: bytes) -> None:
    request.write(EVENTS + b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n')
    request.write(b"id: e7\ndata: " + message + b"\n\n")
    request.cut()


async def open_session(door: Door, version: str) -> tuple[dict[str, str], Answer]:
    """Open a session of a version; return the headers that name it, and the answer."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = await door.ask("POST", json.dumps(message).encode())
    return {"Mcp-Session-Id": answer.headers["mcp-session-id"]}, answer


async def list_through(door: Door, version: str) -> Answer:
    headers, _ = await open_session(door, version)
    return await door.ask("POST", ASKED, headers)


def body_of(answer: Answer) -> bytes:
    """Return the response, streamed or not."""
    if answer.headers["content-type"] != "text/event-stream":
        assert answer.headers["x-thing"] == "kept"
        return answer.body
    lines = answer.body.splitlines()
    assert b'data: {"jsonrpc":"2.0","method":"notifications/x"}' in lines
    found = [line.removeprefix(b"data:").lstrip() for line in lines if b'"id":"l"' in line]
    assert len(found) == 1
    assert any(line.startswith(b"id:") and line.endswith(b"e7") for line in lines)
    return found[0]


@pytest.mark.parametrize("carry", [as_json, as_events])
@pytest.mark.parametrize(
    ("version", "tools"),
    [("2024-11-05", TOOLS), ("2025-03-26", TOOLS), ("2025-06-18", TOOLS), ("2025-11-25", EDITED)],
)
async def test_I1_a_list_of_tools_gains_what_the_policy_says_and_nothing_else(
    carry: Carrier, version: str, tools: tuple[bytes, ...]
) -> None:
    async def behave(request: Request) -> bool:
        if request.message.get("method") != "tools/list":
            return False
        carry(request, listed(TOOLS))
        return True

    async with opened(behave, tasks=TASKS) as door:
        assert body_of(await list_through(door, version)) == listed(tools)


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":"l","error":{"code":-32602,"message":"No","data":{"tools":[]}}}',
        b'{"jsonrpc":"2.0","id":"l","result":{"tools":null}}',
        b'{"jsonrpc":"2.0","id":"l","result":{"tools":{"name":"any"}}}',
        b'{"jsonrpc":"2.0","id":"l","result":{}}',
    ],
)
@pytest.mark.parametrize("carry", [as_json, as_events])
async def test_I1_an_answer_that_lists_no_tools_stays_as_it_is(carry: Carrier, message: bytes) -> None:
    async def behave(request: Request) -> bool:
        if request.message.get("method") != "tools/list":
            return False
        carry(request, message)
        return True

    async with opened(behave, tasks=TASKS) as door:
        assert body_of(await list_through(door, "2025-11-25")) == message


async def test_I1_where_no_tool_may_be_a_task_a_list_stays_as_it_is() -> None:
    async def behave(request: Request) -> bool:
        if request.message.get("method") != "tools/list":
            return False
        as_json(request, listed(TOOLS))
        return True

    async with opened(behave, tasks={"default": "forbidden"}) as door:
        assert (await list_through(door, "2025-11-25")).body == listed(TOOLS)


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("2025-03-26", {}),
        ("2025-06-18", {}),
        ("2025-11-25", {"cancel": {}, "requests": {"tools": {"call": {}}}}),
    ],
)
async def test_I1_initialize_gains_the_tasks_capability_and_nothing_else(version: str, more: Json) -> None:
    start = '{"jsonrpc":"2.0","id":0,"result":{"serverInfo":{"version":"1.0","name":"s"},"n":1.0,'

    async def behave(request: Request) -> bool:
        if request.message.get("method") != "initialize":
            return False
        end = f'"protocolVersion":"{version}","capabilities":{{"tools":{{"listChanged":true}}}}}}}}'
        as_json(request, (start + end).encode())
        return True

    async with opened(behave, tasks=TASKS) as door:
        _, answer = await open_session(door, version)
    told = json.dumps({"tools": {"call": True}, **more}, separators=(",", ":"))
    end = f'"protocolVersion":"{version}","capabilities":{{"tools":{{"listChanged":true}},"tasks":{told}'
    assert answer.body.decode() == start + end + "}}}"
