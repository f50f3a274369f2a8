"""What a server says of one of its tools."""

from __future__ import annotations

from typing import Any

from gateway.client.connection import Connection
from gateway.client.trees import as_object, as_objects
from gateway.protocol.codes import METHOD_NOT_FOUND
from gateway.protocol.envelope import value
from gateway.protocol.errors import Refusal, UpstreamLost


async def find_tool(connection: Connection, name: str) -> dict[str, Any] | None:
    """Return a tool of `tools/list`, `None` where no page has it; raise `Refusal` or `UpstreamLost`."""
    params: dict[str, Any] = {}
    seen: set[str] = set()
    while True:
        try:
            page = as_object(value(await connection.request("tools/list", params)))
        except Refusal as refused:
            if refused.code == METHOD_NOT_FOUND:
                return None
            raise
        for tool in as_objects(page.get("tools")):
            if tool.get("name") == name:
                return tool
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):
            return None
        if cursor in seen:
            raise UpstreamLost("the server repeats a cursor: its list of tools has no end")
        seen.add(cursor)
        params = {"cursor": cursor}
