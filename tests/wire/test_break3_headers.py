"""Headers that come twice: who routes by them may read another one than the gateway does."""

from __future__ import annotations

import asyncio
import json
from typing import Final

import pytest

from tests.wire.era_world import Eras, new_key
from tests.wire.raw_upstream import http_request
from tests.wire.scripted_upstream import tool
from tests.wire.stateless_rules import HEADER_MISMATCH

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LIMIT: Final = 10


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Mcp-Method", "tools/list"),
        ("Mcp-Method", "tools/call"),
        ("mcp-name", "other"),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Param-Region", "b"),
    ],
)
@pytest.mark.parametrize("first", [False, True])
async def test_a_header_that_mirrors_the_body_comes_once(
    era_alone: Eras, name: str, content: str, *, first: bool
) -> None:
    key = new_key()
    async with era_alone.client() as caller:
        params = tool(key, "plain_mirrored", region="a")
        message = caller.request("tools/call", params)
        fields = caller.fields(message, {"Mcp-Param-Region": "a"})
    before, after = ({name: content}, fields) if first else (fields, {name.upper(): content})
    # Two spellings of one name stay two keys here.
    pairs = [*before.items(), *after.items()]
    head = "\r\n".join(f"{one}: {value}" for one, value in pairs)
    body = json.dumps(message).encode()
    request = http_request("POST", "/main/mcp", {"Connection": "close"}, body)
    start, rest = request.split(b"\r\n", 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", era_alone.gateways[0].port)
    try:
        writer.write(start + b"\r\n" + head.encode() + b"\r\n" + rest)
        async with asyncio.timeout(LIMIT):
            answer = await reader.read()
    finally:
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    assert error["code"] == HEADER_MISMATCH
    assert name.lower() in error["message"].lower()
    assert key not in era_alone.upstream.calls
