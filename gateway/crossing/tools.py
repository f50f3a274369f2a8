"""What an upstream says of its tools in its own list, as far as the gateway must know it.

Whether they run as tasks (2025-11-25 tasks, "Tool-Level Negotiation"), and which arguments a client
mirrors in headers (2026-07-28 "Custom Headers").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from gateway.aio.clock import Clock
from gateway.protocol.canonical import items
from gateway.protocol.envelope import Envelope, dump, members, peek, request, response, text_of
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.mirror import annotated
from gateway.protocol.splice import put_together
from gateway.upstream.port import Channel

FORBIDDEN: Final = "forbidden"
_SUPPORTS: Final = (FORBIDDEN, "optional", "required")
_PAGES: Final = 100
FRESH: Final = 60.0
_LIST_SECONDS: Final = 10.0
_IDENT: Final = "gateway-tools-%d"


class Tool(msgspec.Struct, frozen=True):
    """One tool: its `taskSupport`, and its raw input schema where that mirrors arguments in headers."""

    support: str
    schema: bytes | None = None


_NOTHING: Final = Tool(FORBIDDEN)


def runs_tasks(result: bytes) -> bool:
    """Tell whether an `initialize` result (raw) says that tools can be called as tasks."""
    capabilities = members(members(result).get("capabilities"))
    requests = members(members(capabilities.get("tasks")).get("requests"))
    return "call" in members(requests.get("tools"))


async def tool_support_over(channel: Channel, headers: Headers) -> dict[str, str]:
    """Return the `taskSupport` of each tool that a session lists.

    Raises `UpstreamLost` where the list cannot be had.
    """
    found = await tools_over(channel, headers)
    return {name: tool.support for name, tool in found.items()}


async def tools_over(channel: Channel, headers: Headers) -> dict[str, Tool]:
    """Return the tools that a session lists.

    Raises `UpstreamLost` where the list cannot be had.
    """
    found: dict[str, Tool] = {}
    params = b"{}"
    for number in range(_PAGES):
        message = request(dump(_IDENT % number), "tools/list", params)
        async with aclosing(channel.exchange(message, headers)) as coming:
            answer = await _last(channel, coming, headers)
        if answer.result is None:
            words = text_of(members(answer.error).get("message")) or "an error"
            raise UpstreamLost(f"the upstream does not list its tools: {words[:200]}")
        page = members(answer.result)
        for raw in items(page.get("tools")) or ():
            _note(members(raw), found)
        cursor = page.get("nextCursor")
        if cursor is None or text_of(cursor) is None:
            break
        params = put_together({"cursor": cursor})
    return found


class ToolList:
    """Remembers an upstream's tools, for a minute or until the list changes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Tool] = {}
        self._until = 0.0
        self._changes = 0
        self._asking = WeakValueDictionary[bytes, asyncio.Lock]()

    def __repr__(self) -> str:
        return f"<ToolList {len(self._known)} tools>"

    def forget(self) -> None:
        """Ask again the next time."""
        self._until = 0.0
        self._changes += 1

    def fresh(self, tool: str) -> Tool | None:
        """Return what is known of a tool, `None` where nothing is known of any."""
        return self._known.get(tool, _NOTHING) if self._clock.monotonic() < self._until else None

    async def of(self, tool: str, caller: bytes, fetch: Callable[[], Awaitable[dict[str, Tool]]]) -> Tool:
        """Return what is known of a tool; raise what `fetch` raises, and `UpstreamLost` after a time.

        `caller` is whose list is fetched: nobody waits for the answer to another's request.
        """
        found = self.fresh(tool)
        if found is not None:
            return found
        asking = self._asking.get(caller)
        if asking is None:
            asking = self._asking[caller] = asyncio.Lock()
        async with asking:
            found = self.fresh(tool)
            return found or (await self._fetched(fetch)).get(tool, _NOTHING)

    async def _fetched(self, fetch: Callable[[], Awaitable[dict[str, Tool]]]) -> dict[str, Tool]:
        before = self._changes
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                known = await fetch()
        except TimeoutError:
            words = f"the upstream did not list its tools within {_LIST_SECONDS:g} s"
            raise UpstreamLost(words) from None
        if before == self._changes:
            self._known, self._until = known, self._clock.monotonic() + FRESH
        return known


def _note(parts: dict[str, msgspec.Raw], found: dict[str, Tool]) -> None:
    name = text_of(parts.get("name"))
    support = text_of(members(parts.get("execution")).get("taskSupport"))
    schema = bytes(parts.get("inputSchema", b""))
    tool = Tool(
        support if support in _SUPPORTS else FORBIDDEN,
        schema if any(annotated(schema)) else None,
    )
    if name is not None:
        found[name] = _NOTHING if tool == _NOTHING else tool


async def _last(channel: Channel, coming: AsyncGenerator[bytes, None], headers: Headers) -> Envelope:
    async for raw in coming:
        one = peek(raw)
        if one.kind == "response":
            return one
        if one.kind == "request" and one.method == "ping":
            await channel.send(response(one.id, b"{}"), headers)
    raise UpstreamLost("the upstream did not list its tools")
