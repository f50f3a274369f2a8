"""Streams of the gateway's own: a task's, a resumed one, and the session's GET stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from gateway.aio.spawn import Crew
from gateway.dialects.port import Dialect
from gateway.protocol import sse
from gateway.protocol.errors import UpstreamLost
from gateway.service.feed import Feed, News
from gateway.service.running import Running
from gateway.service.service import TaskService
from gateway.session.exchange import KEEP_ALIVE, KEEP_ALIVE_SECONDS, Wire
from gateway.session.visit import Visit
from gateway.tasks.model import DialectName, Scope, TaskKey
from gateway.upstream.port import Link, Reply

_log: Final = logging.getLogger("gateway.session")
EVENT_MARK: Final = "mtg-"
Dialects = Mapping[DialectName, Dialect]


def event_id(news: News) -> str | None:
    """Return the event id under which a stream can be resumed behind this news."""
    return f"{EVENT_MARK}{news.task.key.digest}_{news.offset}" if news.offset else None


def read_event_id(ident: str, scope: Scope) -> tuple[TaskKey, str | None]:
    """Return the task and the offset of an event id of ours; `None` is the start of the log."""
    digest, _, offset = ident.removeprefix(EVENT_MARK).partition("_")
    return TaskKey.from_digest(scope, digest), None if offset in ("", "0") else offset


def to_wire(news: News, dialects: Dialects) -> Wire | None:
    """Return news in the words of its task's dialect."""
    dialect = dialects[news.task.dialect]
    match news.kind:
        case "created":
            message = dialect.created(news.task)
        case "message":
            message = dialect.relayed(news.task.key.task_id, news.message)
        case "final":
            final = None if news.outcome is None else dialect.final(news.task, news.outcome)
            if final is None:
                return None
            message = final
    return Wire(message, event_id(news), last=news.kind == "final")


async def task_stream(running: Running, dialects: Dialects) -> AsyncGenerator[Wire | bytes, None]:
    """Yield what the client that asked for a task should hear, the original response last.

    Closing it early leaves the task running (I11).
    """
    try:
        while (item := await running.feed.get(KEEP_ALIVE_SECONDS)) is not None:
            wire = _item_wire(item, dialects)
            if wire is not None:
                yield wire
    finally:
        running.feed.end()
        running.leave()


async def resumed_stream(
    service: TaskService, key: TaskKey, after: str | None, dialects: Dialects
) -> AsyncGenerator[Wire | bytes, None]:
    """Yield the rest of a task's stream from an offset of its log (2025-11-25 "Resumability")."""
    async with aclosing(service.follow(key, after)) as news_of_it:
        async for news in news_of_it:
            wire = KEEP_ALIVE if news is None else to_wire(news, dialects)
            if wire is not None:
                yield wire


def _item_wire(item: News | bytes, dialects: Dialects) -> Wire | bytes | None:
    if isinstance(item, bytes):
        return item or KEEP_ALIVE
    return to_wire(item, dialects)


async def listening_stream(
    service: TaskService,
    crew: Crew,
    visit: Visit,
    source: AsyncGenerator[bytes, None] | None,
    dialects: Dialects,
) -> AsyncGenerator[Wire | bytes, None]:
    """Yield the session's GET stream: the upstream's own events and what the gateway has to say.

    `source` are the upstream's event-stream bytes, cut at event ends; when they end the stream ends,
    so that the client comes back. Without them the stream is the gateway's alone.
    """
    feed = service.listen(visit.tag)
    pump = None if source is None else crew.spawn(_pump(source, feed), "listen")
    try:
        yield KEEP_ALIVE
        while (item := await feed.get(KEEP_ALIVE_SECONDS)) is not None:
            wire = _item_wire(item, dialects)
            if wire is not None:
                yield wire
    finally:
        service.listeners.leave(visit.tag, feed)
        if pump is not None:
            pump.cancel()


async def reply_events(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield an upstream's event stream in whole events, so that others may stand between them."""
    rest = b""
    try:
        async for chunk in reply.chunks():
            whole, rest = cut_events(rest + chunk)
            if whole:
                yield whole
    finally:
        await reply.close()


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
    """Split event-stream bytes behind the last whole event."""
    end = max(_behind(data, b"\n\n"), _behind(data, b"\r\n\r\n"), _behind(data, b"\r\r"))
    return data[:end], data[end:]


def _behind(data: bytes, mark: bytes) -> int:
    at = data.rfind(mark)
    return 0 if at < 0 else at + len(mark)
