"""Arguments that a tool wants mirrored into headers: looked up when the upstream misses them.

2026-07-28 "Custom Headers from Tool Parameters": a client of the handshake era sends none, and the
gateway is the client that must.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from gateway.protocol.canonical import items
from gateway.protocol.codes import HEADER_MISMATCH
from gateway.protocol.envelope import Envelope, dump, members, text_of, value
from gateway.protocol.headers import Headers
from gateway.protocol.splice import put_together
from gateway.protocol.stateless import param_headers

_PAGES: Final = 100
_PREFIX: Final = "mcp-param-"


def misses_headers(call: Envelope, error: bytes) -> bool:
    """Tell whether an error says that headers of a tool call are missing or wrong."""
    return call.method == "tools/call" and value(members(error).get("code")) == HEADER_MISMATCH


async def mirrored(
    call: Envelope, headers: Headers, ask: Callable[[str, bytes], Awaitable[Envelope]]
) -> Headers | None:
    """Return the headers of a tool call with those that its tool asks for; `None` where it asks for none.

    `ask` sends a request of this method with these raw parameters. Raises what it raises.
    """
    params = members(call.params)
    name = text_of(params.get("name"))
    cursor: bytes | None = None
    for _ in range(_PAGES):
        answer = await ask("tools/list", b"{}" if cursor is None else put_together({"cursor": cursor}))
        found = members(answer.result)
        for tool in items(found.get("tools")) or ():
            inner = members(tool)
            if text_of(inner.get("name")) == name:
                arguments = params.get("arguments")
                own = param_headers(
                    None if arguments is None else bytes(arguments), bytes(inner.get("inputSchema", b"{}"))
                )
                kept = [(key, content) for key, content in headers if not key.lower().startswith(_PREFIX)]
                return [*kept, *own] if own else None
        following = text_of(found.get("nextCursor"))
        if following is None:
            return None
        cursor = dump(following)
    return None
