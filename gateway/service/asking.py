"""What the upstream wants of the client while a task runs: relayed, answered, withdrawn."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import dump
from gateway.protocol.errors import IllegalMove, StoreAway, UpstreamLost
from gateway.service.feed import Feed, News
from gateway.service.gone import TaskGone
from gateway.service.hand import Hand, Tools
from gateway.tasks import call
from gateway.tasks.model import Pending, Task
from gateway.upstream.port import place_of

_log: Final = logging.getLogger("gateway.service")
_MAX_MESSAGE: Final = 1024 * 1024
_MAX_METHOD: Final = 100
_STORE_PATIENCE: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
Reply = Callable[[bytes], Awaitable[None]]


class _Offer(msgspec.Struct, frozen=True):
    pending: Pending
    news: News


class Asking:
    """The server requests of one task. `reply` sends a response upstream, `elsewhere` finds another stream.

    `askable` are the methods that the client can answer, `None` where that is the upstream's to know.
    `followers` counts those who read the task, here by its log or its state, and by replica those
    who do elsewhere: they take what the first stream cannot.
    """

    def __init__(
        self,
        hand: Hand,
        tools: Tools,
        reply: Reply,
        elsewhere: Callable[[list[News]], None],
        askable: frozenset[str] | None = None,
    ) -> None:
        self.followers = Counter[str]()
        self._hand = hand
        self._tools = tools
        self._reply = reply
        self._elsewhere = elsewhere
        self._askable = askable
        self._asked = 0
        self._offered: dict[str, _Offer] = {}
        self._untaken: set[str] = set()
        self._brought: set[str] = set()
        self._known: set[bytes] = set()

    async def ask(self, heard: call.Heard) -> None:
        """Store a request of the upstream and bring it to the client; raise `TaskGone`.

        The task is input_required from then on (SEP-1686 section 4.4.1). What is too much or cannot
        be stored is answered with an error in the client's place.
        """
        if heard.upstream_id in self._known:
            return
        refusal = self._refusal(heard)
        if refusal:
            await self._refuse(heard, refusal)
            return
        hand = self._hand
        self._asked += 1
        relay = call.relay_id(hand.task.key, hand.claim.epoch, self._asked)
        to_session = not self._followed
        pending = Pending(relay, heard.upstream_id, heard.method, heard.message, to_session)
        try:
            task = await self._store(pending)
        except StoreAway:
            await self._refuse(heard, "Task store unavailable: the client cannot be asked now")
            return
        if task is None:
            raise TaskGone
        hand.moved(task)
        self._tools.announcer.moved(task)
        self._tools.witness.asked(task, heard.method)
        news = News("message", task, call.readdressed(heard.message, dump(relay)), relay=relay)
        self._offered[relay] = _Offer(pending, news)
        if not await hand.deliver(news) and (to_session or not self._followed):
            self._elsewhere([news])

    async def _store(self, pending: Pending) -> Task | None:
        """Store a question; with the store away wait for a while, as its outcome would be kept (I9)."""
        hand, store = self._hand, self._tools.store
        place = await hand.places.with_message(place_of(pending.message))
        with suppress(IllegalMove):
            for seconds in _STORE_PATIENCE:
                with suppress(StoreAway):
                    return await store.ask(hand.task.key, hand.claim, pending, place)
                await self._tools.clock.sleep(seconds)
            return await store.ask(hand.task.key, hand.claim, pending, place)
        return None

    def adopt(self, task: Task, answers: Iterable[tuple[str, bytes, bytes]]) -> None:
        """Take note of what was asked before the task came here: it waits on, and is not asked again."""
        for pending in task.pending:
            message = call.readdressed(pending.message, dump(pending.relay_id))
            news = News("message", task, message, relay=pending.relay_id)
            self._offered[pending.relay_id] = _Offer(pending, news)
            self._known.add(pending.upstream_id)
        self._known |= {upstream_id for _, upstream_id, _ in answers}

    async def bring(self, answers: Iterable[tuple[str, bytes, bytes]]) -> None:
        """Send answers that another replica may not have brought upstream; raise `UpstreamLost`."""
        for relay, upstream_id, message in answers:
            self._brought.add(relay)
            await self._reply(call.readdressed(message, upstream_id))
            await self._delivered(relay)

    def attend(self, replica: str) -> None:
        """Somebody on a replica reads the task from now on."""
        self.followers[replica] += 1

    def unattend(self, replica: str) -> None:
        """Somebody does not any more: what still waits for an answer is offered elsewhere."""
        if self.followers[replica] > 0:
            self.followers[replica] -= 1
        if not self._followed:
            self.leave()

    @property
    def _followed(self) -> bool:
        return self.followers.total() > 0

    def leave(self) -> None:
        """A stream of the task is gone: what still waits for an answer is offered elsewhere."""
        if unanswered := self.unanswered():
            self._elsewhere(unanswered)

    def offer_to(self, other: Feed) -> None:
        """Offer all unanswered requests to another stream, unless one of the task's own listens."""
        for news in self.unanswered():
            other.put(news)

    def unanswered(self) -> list[News]:
        """Return the requests that wait and that no stream of the task's own can take."""
        if self._hand.feed.open or self._followed:
            return []
        return [offer.news for offer in self._offered.values()]

    def waiting(self, relay: str) -> Pending | None:
        """Return a request that still waits here, whatever the store says of it."""
        offer = self._offered.get(relay)
        return None if offer is None else offer.pending

    async def answer(self, message: bytes, relay: str, *, untaken: bool = False) -> None:
        """Send the client's answer (with the upstream's id) upstream; raise `UpstreamLost`.

        `untaken` is one that somebody else took out of the store, who may yet come with it: that one is
        not sent then.
        """
        if relay in self._untaken or relay in self._brought:
            self._untaken.discard(relay)
            self._brought.discard(relay)
            return
        if untaken:
            self._untaken.add(relay)
        self._offered.pop(relay, None)
        await self._reply(message)
        self._tools.spawn(self._delivered(relay), "delivered")

    async def _delivered(self, relay: str) -> None:
        with suppress(StoreAway):
            await self._tools.store.delivered(self._hand.task.key, self._hand.claim, relay)

    async def withdraw(self, heard: call.Heard) -> None:
        """Take back a request that the upstream itself withdrew, and tell the client."""
        await self._drop(heard.upstream_id, heard.message)

    async def take_back_all(self, reason: str) -> None:
        """Take back every request: nobody is there to take the answers any more."""
        self._known.clear()
        for pending in self._hand.task.pending:
            await self._drop(pending.upstream_id, call.cancel_message(pending.relay_id, reason))

    async def tidy(self, task: Task) -> None:
        """Drop what the record has pending and nobody here knows of: asked, but the reply was lost."""
        for pending in task.pending:
            if pending.relay_id not in self._offered and self._asked:
                with suppress(StoreAway):
                    await self._drop(pending.upstream_id, b"")

    async def _drop(self, upstream_id: bytes, message: bytes) -> None:
        hand = self._hand
        try:
            dropped = await self._tools.store.drop_pending(hand.task.key, hand.claim, upstream_id)
        except StoreAway:
            return
        if dropped is None:
            return
        left = {pending.relay_id for pending in dropped.pending}
        hand.moved(dropped)
        for relay in [relay for relay in self._offered if relay not in left]:
            del self._offered[relay]
            if message:
                await hand.deliver(News("message", dropped, call.withdrawal(message, relay)))

    def _refusal(self, heard: call.Heard) -> str:
        if self._askable is not None and heard.method not in self._askable:
            return f"The client does not support {heard.method[:_MAX_METHOD]}"
        bound = self._tools.limits.pending_requests
        if len(self._offered) >= bound:
            self._tools.witness.limit_hit("pending_requests")
            return f"Limit reached: pending_requests ({bound})"
        if len(heard.message) > _MAX_MESSAGE:
            self._tools.witness.limit_hit("pending_bytes")
            return f"Limit reached: a request to the client may have {_MAX_MESSAGE} bytes"
        return ""

    async def _refuse(self, heard: call.Heard, words: str) -> None:
        error = dump({"code": INTERNAL_ERROR, "message": words})
        with suppress(UpstreamLost):
            await self._reply(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (heard.upstream_id, error))
