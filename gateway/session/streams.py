"""Streams of the gateway's own: a task's, a resumed one, and the session's GET stream."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from gateway.aio.spawn import Crew
from gateway.dialects.choose import Dialects
from gateway.protocol import sse
from gateway.protocol.codes import INVALID_PARAMS
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.service.feed import Feed, News
from gateway.service.running import Running
from gateway.service.service import TaskService
from gateway.session.exchange import KEEP_ALIVE, KEEP_ALIVE_SECONDS, Wire
from gateway.session.visit import Visit
from gateway.tasks.model import Scope, TaskKey
from gateway.upstream.port import Link, Reply

_log: Final = logging.getLogger("gateway.session")
EVENT_MARK: Final = "mtg-"
END: Final = "end"
MAX_EVENT: Final = 64 * 1024 * 1024
_EVENT_ID: Final = re.compile(r"([0-9a-f]{32})_(0|end|[0-9]{1,19}-[0-9]{1,19})")
_EVENT_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")


def event_id(news: News) -> str | None:
    """Return the event id under which a stream can be resumed behind this news."""
    return f"{EVENT_MARK}{news.task.key.digest}_{news.offset}" if news.offset else None


def read_event_id(ident: str, scope: Scope) -> tuple[TaskKey, str | None]:
    """Return the task and the offset of an event id of ours.

    `None` is the start of the log, `END` behind the final response.

    Raises `Refusal` where it only looks like one.
    """
    found = _EVENT_ID.fullmatch(ident.removeprefix(EVENT_MARK))
    if found is None:
        raise Refusal(INVALID_PARAMS, "Last-Event-ID is not an event id of this server", status=400)
    digest, offset = found.groups()
    return TaskKey.from_digest(scope, digest), None if offset == "0" else offset


def to_wire(news: News, dialects: Dialects) -> Wire | None:
    """Return news in the words of its task's dialect."""
    dialect = dialects[news.task.dialect]
    match news.kind:
        case "created":
            message = dialect.created(news.task)
        case "message":
            message = dialect.relayed(news.task.key.task_id, news.message)
        case "status":
            status = dialect.status(news.task, news.outcome)
            if status is None:
                return None
            message = status
        case "final":
            final = None if news.outcome is None else dialect.final(news.task, news.outcome)
            if final is None:
                return None
            message = final
    return Wire(message, event_id(news), last=news.kind == "final")


async def task_stream(running: Running, dialects: Dialects) -> AsyncGenerator[Wire | bytes, None]:
    """Yield what the client that asked for a task should hear, the original response last.

    Closing it early leaves the task running (I11). To be begun with `begun`.
    """
    try:
        yield b""
        while (item := await running.feed.get(KEEP_ALIVE_SECONDS)) is not None:
            wire = _item_wire(item, dialects)
            if wire is not None:
                yield wire
    finally:
        running.feed.end()
        running.asking.leave()


async def resumed_stream(
    service: TaskService, key: TaskKey, after: str | None, dialects: Dialects
) -> AsyncGenerator[Wire | bytes, None]:
    """Yield the rest of a task's stream from an offset of its log (2025-11-25 "Resumability").

    Behind the final response nothing is left.
    """
    if after == END:
        return
    async with aclosing(service.readers.follow(key, after)) as news_of_it:
        async for news in news_of_it:
            wire = KEEP_ALIVE if news is None else to_wire(news, dialects)
            if wire is not None:
                yield wire


def _item_wire(item: News | bytes, dialects: Dialects) -> Wire | bytes | None:
    if isinstance(item, bytes):
        return item or KEEP_ALIVE
    return to_wire(item, dialects)


async def begun(items: AsyncGenerator[Wire | bytes, None]) -> AsyncGenerator[Wire | bytes, None]:
    """Begin a stream: one that is closed before its first item has its `finally` run all the same."""
    await anext(items)
    return items


class Source(msgspec.Struct, frozen=True):
    """The upstream's part of a session's stream: event-stream bytes cut at event ends, and its end."""

    events: AsyncGenerator[bytes, None]
    close: Callable[[], Awaitable[None]]


async def listening_stream(
    service: TaskService, crew: Crew, visit: Visit, source: Source | None
) -> AsyncGenerator[Wire | bytes, None]:
    """Yield the session's GET stream: the upstream's own events and what the gateway has to say.

    When the upstream's part ends the stream ends, so that the client comes back. Without one the
    stream is the gateway's alone. To be begun with `begun`.
    """
    feed = service.listen(visit.tag)
    pump = None if source is None else crew.spawn(_pump(source.events, feed), "listen")
    try:
        yield b""
        yield KEEP_ALIVE
        while (item := await feed.get(KEEP_ALIVE_SECONDS)) is not None:
            wire = _item_wire(item, visit.served.dialects)
            if wire is not None:
                yield wire
    finally:
        service.listeners.leave(visit.tag, feed)
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])
        if source is not None:
            await source.close()


async def reply_events(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield an upstream's event stream in whole events, so that others may stand between them."""
    parts: list[bytes] = []
    size = 0
    async for chunk in reply.chunks():
        # An event end may lie across two chunks, but no further back than three bytes.
        tail = parts[-1][-3:] if parts else b""
        whole, rest = cut_events(tail + chunk)
        size += len(chunk)
        if not whole:
            parts.append(chunk)
            if size > MAX_EVENT:
                raise UpstreamLost(f"the upstream sent an event of more than {MAX_EVENT} bytes")
            continue
        yield b"".join(parts) + whole[len(tail) :]
        parts, size = ([rest], len(rest)) if rest else ([], 0)


async def link_events(link: Link) -> AsyncGenerator[bytes, None]:
    """Yield what belongs to no request of a link, as events."""
    async with aclosing(link.listen()) as messages:
        async for message in messages:
            yield sse.encode(message)


async def _pump(source: AsyncGenerator[bytes, None], feed: Feed) -> None:
    try:
        async with aclosing(source):
            async for chunk in source:
                if not await feed.put_raw(chunk):
                    return
    except UpstreamLost as lost:
        _log.info("the upstream's own stream ended: %s", lost)
    finally:
        feed.end()


def cut_events(data: bytes) -> tuple[bytes, bytes]:
    """Split event-stream bytes behind the last whole event (WHATWG HTML section 9.2.5)."""
    end = 0
    for found in _EVENT_END.finditer(data):
        end = found.end()
    return data[:end], data[end:]
