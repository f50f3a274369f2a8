"""What an upstream says of tasks in its own tool list (2025-11-25 tasks, "Tool-Level Negotiation")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from gateway.aio.clock import Clock
from gateway.protocol.canonical import items
from gateway.protocol.envelope import Envelope, dump, members, peek, request, response, text_of
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import put_together
from gateway.upstream.port import Channel

FORBIDDEN: Final = "forbidden"
_SUPPORTS: Final = (FORBIDDEN, "optional", "required")
_PAGES: Final = 100
_FRESH: Final = 60.0
_IDENT: Final = "gateway-tools-%d"

Ask = Callable[[str, bytes], Awaitable[Envelope]]


def runs_tasks(result: bytes) -> bool:
    """Tell whether an `initialize` result (raw) says that tools can be called as tasks."""
    capabilities = members(members(result).get("capabilities"))
    requests = members(members(capabilities.get("tasks")).get("requests"))
    return "call" in members(requests.get("tools"))


async def tool_support_over(channel: Channel, headers: Headers) -> dict[str, str]:
    """Return the `taskSupport` of each tool that a session lists, but of those that say `forbidden`.

    Raises `UpstreamLost` where the list cannot be had.
    """
    number = 0

    async def ask(method: str, params: bytes) -> Envelope:
        nonlocal number
        number += 1
        message = request(dump(_IDENT % number), method, params)
        async with aclosing(channel.exchange(message, headers)) as coming:
            return await _last(channel, coming, headers)

    return await listed(ask)


async def listed(ask: Ask) -> dict[str, str]:
    """Return what `tool_support_over` returns; `ask` sends a request and returns its response."""
    found: dict[str, str] = {}
    params = b"{}"
    for _ in range(_PAGES):
        answer = await ask("tools/list", params)
        if answer.result is None:
            words = text_of(members(answer.error).get("message")) or "an error"
            raise UpstreamLost(f"the upstream does not list its tools: {words[:200]}")
        page = members(answer.result)
        for tool in items(page.get("tools")) or ():
            parts = members(tool)
            name = text_of(parts.get("name"))
            support = text_of(members(parts.get("execution")).get("taskSupport"))
            if name is not None and support in _SUPPORTS and support != FORBIDDEN:
                found[name] = support
        cursor = page.get("nextCursor")
        if cursor is None or text_of(cursor) is None:
            break
        params = put_together({"cursor": cursor})
    return found


class ToolSupport:
    """Remembers what an upstream's tools support, for a minute or until the list changes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, str] = {}
        self._until = 0.0
        self._changes = 0
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ToolSupport {len(self._known)} tools>"

    def forget(self) -> None:
        """Ask again the next time."""
        self._until = 0.0
        self._changes += 1

    async def of(self, tool: str, fetch: Callable[[], Awaitable[dict[str, str]]]) -> str:
        """Return what a tool supports; raise what `fetch` raises."""
        if self._clock.monotonic() >= self._until:
            async with self._asking:
                if self._clock.monotonic() >= self._until:
                    before = self._changes
                    self._known = await fetch()
                    if before == self._changes:
                        self._until = self._clock.monotonic() + _FRESH
        return self._known.get(tool, FORBIDDEN)


async def _last(channel: Channel, coming: AsyncGenerator[bytes, None], headers: Headers) -> Envelope:
    async for raw in coming:
        one = peek(raw)
        if one.kind == "response":
            return one
        if one.kind == "request" and one.method == "ping":
            await channel.send(response(one.id, b"{}"), headers)
    raise UpstreamLost("the upstream did not list its tools")
