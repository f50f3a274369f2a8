"""`tools/list` answers with what the gateway's policy says of each tool (2025-11-25 tasks, 3.3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gateway.protocol import sse
from gateway.protocol.canonical import items
from gateway.protocol.envelope import dump, members, peek, text_of
from gateway.protocol.eras import TASKS_IN_CORE
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import EVENT_STREAM
from gateway.protocol.splice import set_member
from gateway.session.exchange import Answer, Outbound, Relay, Stream, Wire
from gateway.session.plain import pass_on
from gateway.session.streams import begun
from gateway.session.visit import Served, Visit
from gateway.tasks.policy import PolicyBook

MAX_LIST: Final = 64 * 1024 * 1024
_OWN: Final = ("optional", "required")


def lists_tools(visit: Visit) -> bool:
    """Tell whether a request asks for tools, in a session whose client looks at `taskSupport`."""
    return (
        visit.request.method == "tools/list"
        and visit.version >= TASKS_IN_CORE
        and "tools/call" in visit.served.taskable
    )


async def list_tools(visit: Visit) -> Outbound:
    """Pass a `tools/list` on and say in the answer which tools may be tasks."""
    outbound = await pass_on(visit)
    match outbound:
        case Relay(reply=reply) if reply.status == 200:
            if (reply.header("content-type") or "").startswith(EVENT_STREAM):
                return Stream(await begun(_over_events(visit, outbound)), _kept(outbound))
            try:
                body = await reply.read(MAX_LIST)
            finally:
                await reply.close()
            return Answer(200, with_support(visit.served, body), outbound.headers)
        case Answer(status=200, body=body):
            return Answer(200, with_support(visit.served, body), outbound.headers)
        case Stream(items=items):
            return Stream(await begun(_edited(visit, items)), outbound.headers)
        case _:
            return outbound


def with_support(served: Served, message: bytes) -> bytes:
    """Return a response to `tools/list` with the policy's `taskSupport` on each tool.

    An upstream's own `optional` and `required` stay: those tools it runs as tasks itself. Anything but
    such a response stays as it is.
    """
    try:
        result = peek(message).result
    except Refusal:
        return message
    tools = members(result).get("tools")
    if tools is None or bytes(tools)[:1] != b"[":
        return message
    parts = [_tool(served.policies, part) for part in items(tools) or ()]
    return set_member(message, ("result", "tools"), b"[" + b",".join(parts) + b"]")


def _tool(policies: PolicyBook, raw: bytes) -> bytes:
    found = members(raw)
    name = text_of(found.get("name"))
    own = text_of(members(found.get("execution")).get("taskSupport"))
    if name is None or own in _OWN:
        return raw
    mode = policies.find("tools/call", name).mode
    if own is None and mode == "forbidden":
        return raw
    return set_member(raw, ("execution", "taskSupport"), dump(mode))


def _kept(relay: Relay) -> list[tuple[str, str]]:
    return [(name, content) for name, content in relay.headers if name != "content-type"]


async def _over_events(visit: Visit, relay: Relay) -> AsyncGenerator[Wire | bytes, None]:
    """Yield an upstream's events, the response edited; what cannot be parsed ends the stream."""
    reply = relay.reply
    parser = sse.Parser(MAX_LIST)
    try:
        yield b""
        async for chunk in reply.chunks():
            try:
                events = parser.feed(chunk)
            except ValueError as wrong:
                raise UpstreamLost(f"its event stream is broken ({wrong})") from None
            for event in events:
                yield Wire(with_support(visit.served, event.data), event.id)
    finally:
        await reply.close()


async def _edited(
    visit: Visit, items: AsyncGenerator[Wire | bytes, None]
) -> AsyncGenerator[Wire | bytes, None]:
    async with aclosing(items):
        yield b""
        async for item in items:
            if isinstance(item, Wire):
                yield Wire(with_support(visit.served, item.message), item.ident, item.last)
            else:
                yield item
