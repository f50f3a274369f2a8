"""`subscriptions/listen`: changes of the upstream's lists and resources, and of the client's tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from gateway.aio.spawn import Crew
from gateway.bridge.results import acknowledged, change_for, subscription_cancelled, subscription_end
from gateway.crossing.port import Wanted
from gateway.protocol.canonical import items
from gateway.protocol.codes import INVALID_PARAMS, LIMIT_REACHED
from gateway.protocol.envelope import dump, members, text_of, value
from gateway.protocol.errors import Refusal, StoreAway, UpstreamLost
from gateway.protocol.splice import set_member
from gateway.protocol.stateless import SUBSCRIPTION_ID, TASKS_EXTENSION, missing_extension
from gateway.service.feed import Feed, News, size_of
from gateway.service.service import TaskService
from gateway.session.asked import Asked
from gateway.session.begin import check_rate, store_away
from gateway.session.exchange import KEEP_ALIVE, KEEP_ALIVE_SECONDS, Outbound, Stream, Wire
from gateway.session.names import Names
from gateway.session.plain import forward
from gateway.session.streams import begun
from gateway.store.port import RateLimits
from gateway.tasks.model import TaskKey

MAX_TASKS: Final = 1000
MAX_URIS: Final = 1000
_LISTS: Final = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
_FIRST: Final = "working"


class Filter(msgspec.Struct, frozen=True):
    """What a subscription is about: the upstream's changes, and tasks by id."""

    wanted: Wanted
    task_ids: Sequence[str]


class Subscribing:
    """Opens subscriptions. Each ends with its client, with the gateway, and with nothing else.

    `limit` bounds in bytes what waits for a client that reads slowly, `most` how many there are.
    """

    def __init__(
        self, service: TaskService, rates: RateLimits, names: Names, *, limit: int, most: int
    ) -> None:
        self._service = service
        self._rates = rates
        self._names = names
        self._limit = limit
        self._most = most
        self._crew = Crew("subscriptions")
        self._feeds: set[Feed] = set()

    def __repr__(self) -> str:
        return f"<Subscribing {len(self._feeds)}>"

    async def listen(self, asked: Asked) -> Outbound:
        """Open a stream that tells of what is asked for; raise `Refusal` for a filter that is none."""
        asked_for = read_filter(asked)
        if asked_for.task_ids and not asked.declared:
            raise missing_extension(TASKS_EXTENSION)
        if len(self._feeds) >= self._most:
            raise self._full()
        keys = await self._keys(asked, asked_for.task_ids)
        if asked_for.task_ids and not keys and await asked.passes_tasks():
            return await forward(asked.visit)
        wanted = asked_for.wanted
        if wanted != Wanted():
            # Tasks are the gateway's: nobody else need be there for them.
            crossing = asked.visit.served.crossing
            wanted = await crossing.honoured(asked.caller, wanted, asked.headers)
        return Stream(await begun(self._stream(asked, wanted, keys)))

    def _full(self) -> Refusal:
        words = f"Limit reached: sessions ({self._most} subscriptions are open); try again later"
        data = {"limit": "sessions", "max": self._most, "retryAfter": 30}
        return Refusal(LIMIT_REACHED, words, data, status=503, retry_after=30)

    def end_all(self) -> None:
        """End every subscription, each with a last word."""
        for feed in tuple(self._feeds):
            feed.end()

    async def close(self) -> None:
        """Let go of everything."""
        self.end_all()
        await self._crew.close()

    async def _keys(self, asked: Asked, task_ids: Sequence[str]) -> list[TaskKey]:
        """Return the tasks among those asked for that are the asker's."""
        found: list[TaskKey] = []
        charged = False
        for task_id in dict.fromkeys(task_ids):
            scope = self._names.scope_of(asked.visit, task_id)
            if scope is None:
                continue
            if not charged:
                await check_rate(self._rates, "list", scope)
                charged = True
            try:
                task = await self._service.get(TaskKey(scope, task_id))
            except StoreAway as away:
                raise store_away("tasks cannot be subscribed to now") from away
            if task is not None:
                found.append(task.key)
        return found

    async def _stream(
        self, asked: Asked, wanted: Wanted, keys: Sequence[TaskKey]
    ) -> AsyncGenerator[Wire | bytes, None]:
        ident = asked.ident
        feed = Feed(self._limit)
        self._feeds.add(feed)
        crew = Crew("subscription")
        try:
            yield b""
            if wanted != Wanted():
                ready = asyncio.Event()
                crew.spawn(self._changes(asked, wanted, feed, ready), "changes")
                await ready.wait()
            yield Wire(acknowledged(dump(_honoured(wanted, keys)), ident))
            turn = asyncio.Lock()
            for key in keys:
                crew.spawn(self._tasks(key, feed, turn), "task")
            while (item := await feed.get(KEEP_ALIVE_SECONDS)) is not None:
                message = item if isinstance(item, bytes) else _told(asked, item)
                if message is not None:
                    yield Wire(message) if message else KEEP_ALIVE
            on_pipe = asked.visit.inbound.verb != "POST"
            yield Wire(subscription_end(ident), last=not on_pipe)
            if on_pipe:
                yield Wire(subscription_cancelled(ident), last=True)
        finally:
            self._feeds.discard(feed)
            feed.end()
            await crew.close()

    async def _changes(self, asked: Asked, wanted: Wanted, feed: Feed, ready: asyncio.Event) -> None:
        """Put the upstream's changes into a feed; where that can tell no more, the subscription ends."""
        crossing = asked.visit.served.crossing
        try:
            async with aclosing(crossing.listen(asked.caller, wanted, asked.headers)) as changes:
                async for message in changes:
                    ready.set()
                    change = message and change_for(
                        message,
                        tools=wanted.tools,
                        prompts=wanted.prompts,
                        resources=wanted.resources,
                        uris=wanted.uris,
                        subscription_id=asked.ident,
                    )
                    if change and not await feed.put_raw(change):
                        return
        except (UpstreamLost, Refusal):
            feed.end()
        finally:
            ready.set()

    async def _tasks(self, key: TaskKey, feed: Feed, turn: asyncio.Lock) -> None:
        """Put each new state of a task into a feed.

        Only who has the `turn` has a result in hand that does not fit yet (I10).
        """
        size = await self._states(key, feed)
        if not size:
            return
        async with turn:
            if not await feed.room(size):
                return
            try:
                found = await self._service.outcome(key)
            except StoreAway:
                feed.end()
                return
            if found is not None:
                await feed.put_later(News("status", found[0], outcome=found[1]))

    async def _states(self, key: TaskKey, feed: Feed) -> int:
        """Put states into a feed, the latest where the client is slow.

        Returns the size of an end that does not fit now, else 0.
        """
        first = True
        # It asks nobody: whoever runs the task need not hear of each of what may be thousands.
        waiting = self._service.readers.wait(key, KEEP_ALIVE_SECONDS, asks=False)
        async with aclosing(waiting) as states:
            async for state in states:
                if state is None:
                    continue
                task, outcome = state
                news = News("status", task, outcome=outcome)
                if task.ended:
                    return 0 if feed.put_now(news) else size_of(news)
                if not first or task.status != _FIRST:
                    await feed.put_later(news)
                first = False
        return 0


def read_filter(asked: Asked) -> Filter:
    """Return what a `subscriptions/listen` request wants; raise `Refusal` -32602 where it is malformed."""
    raw = members(asked.visit.request.params).get("notifications")
    if raw is None or bytes(raw)[:1] != b"{":
        raise _bad("notifications must be an object")
    found = members(raw)
    flags = [_flag(found.get(name), name) for name in _LISTS]
    uris = _texts(found.get("resourceSubscriptions"), "resourceSubscriptions", MAX_URIS)
    task_ids = _texts(found.get("taskIds"), "taskIds", MAX_TASKS)
    tools, prompts, resources = flags
    return Filter(Wanted(tools, prompts, resources, tuple(uris)), task_ids)


def _flag(raw: msgspec.Raw | None, name: str) -> bool:
    flag = False if raw is None else value(raw)
    if not isinstance(flag, bool):
        raise _bad(f"notifications.{name} must be true or false")
    return flag


def _texts(raw: msgspec.Raw | None, name: str, most: int) -> list[str]:
    if raw is None:
        return []
    texts = [text_of(part) for part in items(raw) or ()]
    if bytes(raw)[:1] != b"[" or not all(isinstance(text, str) for text in texts):
        raise _bad(f"notifications.{name} must be a list of strings")
    if len(texts) > most:
        words = f"notifications.{name} may have {most} entries, not {len(texts)}"
        raise Refusal(INVALID_PARAMS, f"Limit reached: {words}", {"limit": name, "max": most})
    return [text for text in texts if text is not None]


def _honoured(wanted: Wanted, keys: Sequence[TaskKey]) -> dict[str, Any]:
    flags = dict(zip(_LISTS, (wanted.tools, wanted.prompts, wanted.resources), strict=True))
    found: dict[str, Any] = {name: True for name, on in flags.items() if on}
    if wanted.uris:
        found["resourceSubscriptions"] = list(wanted.uris)
    if keys:
        found["taskIds"] = [key.task_id for key in keys]
    return found


def _told(asked: Asked, news: News) -> bytes | None:
    message = asked.extension.status(news.task, news.outcome)
    if message is None:
        return None
    return set_member(message, ("params", "_meta", SUBSCRIPTION_ID), asked.ident)


def _bad(what: str) -> Refusal:
    return Refusal(INVALID_PARAMS, f"Invalid params: {what}")
