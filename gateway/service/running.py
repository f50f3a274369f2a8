"""One running task: its upstream call from the first byte to the stored outcome."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.protocol.codes import INTERNAL_ERROR
from gateway.protocol.envelope import dump
from gateway.protocol.errors import IllegalMove, Refusal, StoreAway, UpstreamLost
from gateway.service.feed import Feed, News
from gateway.service.order import Order, ServiceLimits
from gateway.service.witness import Witness
from gateway.store.port import Claim, Store
from gateway.tasks import call
from gateway.tasks.model import Outcome, Pending, Task

_log: Final = logging.getLogger("gateway.service")
_NOTE_SECONDS: Final = 1.0
_SERVER_FAULT: Final = 500
_RETRY_SECONDS: Final = (1.0, 5.0)
_FAREWELL_SECONDS: Final = 5.0
_BACKOFF: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
STORE_PATIENCE_SECONDS: Final = 600.0


class Ending(msgspec.Struct, frozen=True):
    """How a call ended: what is stored, how it is counted, whether the upstream must be told."""

    outcome: Outcome
    label: call.FinishedLabel
    withdraw: str = ""


_LOST: Final = Ending(
    Outcome(status="failed", error="The task was lost: the store no longer has it"),
    "lost",
    "the task is gone",
)
# Whoever has it now answers: the stream ends without a response, its client reads on elsewhere.
_TAKEN: Final = Ending(Outcome(status="cancelled"), "lost", "another replica has the task")


class _TaskGone(Exception):
    """The task has been deleted, has ended elsewhere, or belongs to another replica now."""


class Running:
    """A task that this replica runs.

    `feed` is the stream of the client that asked, for as long as it listens; `elsewhere` takes server
    requests to another stream of the session when the first is gone.
    """

    def __init__(
        self,
        task: Task,
        order: Order,
        tools: tuple[Store, Witness, Clock, ServiceLimits],
        elsewhere: Callable[[list[News]], None],
        *,
        only_final: bool,
    ) -> None:
        self.task = task
        self.order = order
        self._store, self._witness, self._clock, self._limits = tools
        self.feed = Feed(self._limits.stream_queue_bytes, only_final=only_final)
        self.followers = 0
        self._elsewhere = elsewhere
        self._claim = Claim(task.owner, task.epoch)
        self._asked = 0
        self._offered: dict[str, News] = {}
        self._noted_at = float("-inf")
        self._stop: Ending | None = None
        self._recorded = False
        self._settling = False
        self._work: asyncio.Task[None] | None = None
        self._sent = False
        self._ident = f"mtg-call.{secrets.token_hex(12)}"
        self._message, self._wants_progress = call.upstream_request(order.message, self._ident)
        self.feed.put(News("created", task, offset="0"))

    def __repr__(self) -> str:
        return f"<Running {self.task.key.task_id!r} {self.task.status} {self.feed!r}>"

    async def run(self, turn: asyncio.Semaphore | None) -> None:
        """Wait for a turn, make the call, store the outcome; `stop` ends it at any point."""
        self._work = asyncio.current_task()
        try:
            ending = self._stop or await self._in_turn(turn)
        except asyncio.CancelledError:
            if self._stop is None or self._work is None:
                raise
            self._work.uncancel()
            ending = self._stop
        except _TaskGone:
            self._settling = True
            ending = self._stop or await self._found_gone()
            self._recorded = True
        self._settling = True
        try:
            async with asyncio.TaskGroup() as both:
                # A store that is away must not keep the upstream working for nobody.
                if ending.withdraw and self._sent:
                    both.create_task(self._withdraw(ending.withdraw))
                await self._settle(ending)
        finally:
            self.feed.end()

    def stop(self, ending: Ending, *, recorded: bool) -> None:
        """End the call; `recorded` says that the store has the task's end already."""
        if self._stop is not None or self._settling:
            return
        self._stop = ending
        self._recorded = recorded
        if self._work is not None:
            self._work.cancel()

    def leave(self) -> None:
        """A stream of the task is gone: what still waits for an answer is offered elsewhere."""
        if unanswered := self.unanswered():
            self._elsewhere(unanswered)

    def offer_to(self, other: Feed) -> None:
        """Offer all unanswered server requests to another stream, unless the first still listens."""
        for news in self.unanswered():
            other.put(news)

    def unanswered(self) -> list[News]:
        """Return the server requests that wait and that no stream of the task's own can take."""
        return [] if self.feed.open or self.followers else list(self._offered.values())

    def compare(self, task: Task | None) -> None:
        """Take note of what the store says of the task now; stop the call where it is ours no more."""
        ending = self._elsewhere_ended(task)
        if ending is not None:
            self.stop(ending, recorded=True)

    def _elsewhere_ended(self, task: Task | None) -> Ending | None:
        if task is None:
            return _LOST
        if task.ended:
            words = task.error or "ended elsewhere"
            return Ending(Outcome(status=task.status, error=words), "cancelled", words)
        ours = (task.owner, task.epoch) == (self._claim.owner, self._claim.epoch)
        return None if ours else _TAKEN

    async def _found_gone(self) -> Ending:
        """Find out why the store takes nothing more for this task."""
        try:
            return self._elsewhere_ended(await self._store.get(self.task.key)) or _TAKEN
        except StoreAway:
            return _LOST

    async def answer(self, message: bytes, relay: str = "") -> None:
        """Send the client's answer (with the upstream's id) upstream."""
        self._offered.pop(relay, None)
        await self.order.channel.send(message, self.order.headers)

    def moved(self, task: Task) -> None:
        """Take over a record that the store has changed."""
        self._witness.moved(self.task.status, task)
        self.task = task

    async def _in_turn(self, turn: asyncio.Semaphore | None) -> Ending:
        if turn is None:
            return await self._call()
        try:
            async with asyncio.timeout(self.task.timeout / 1000):
                await turn.acquire()
        except TimeoutError:
            return Ending(call.timed_out(self.task.timeout), "timed_out")
        try:
            return await self._call()
        finally:
            turn.release()

    async def _call(self) -> Ending:
        await self._start()
        began = self._clock.monotonic()
        ending = Ending(call.lost("the call was cut off"), "cancelled")
        try:
            async with asyncio.timeout(self.task.timeout / 1000):
                ending = await self._exchange_again()
        except TimeoutError:
            ending = Ending(call.timed_out(self.task.timeout), "timed_out", "timed out")
        except UpstreamLost as lost:
            _log.warning("upstream lost during %r: %s", self.task.key.task_id, lost.tell())
            ending = Ending(call.lost(str(lost)), "upstream_lost")
        except Refusal as refusal:
            ending = Ending(call.lost(refusal.message), "upstream_lost")
        finally:
            self._witness.called(self.task, ending.label, self._clock.monotonic() - began)
        return ending

    async def _start(self) -> None:
        try:
            task = await self._store.start(self.task.key, self._claim)
        except StoreAway:
            # The claim was stored with the task: the call may run, its outcome is kept until later.
            _log.warning("the store is away: %r starts unrecorded", self.task.key.task_id)
            return
        if task is None:
            raise _TaskGone
        self.moved(task)
        self._witness.started(task)

    async def _exchange_again(self) -> Ending:
        """Make the call; where its policy lets it run twice, again when the upstream was lost (I3)."""
        if self.order.policy.on_loss == "retry":
            for seconds in _RETRY_SECONDS:
                try:
                    return await self._exchange()
                except UpstreamLost as lost:
                    if lost.status is not None and lost.status < _SERVER_FAULT:
                        raise
                    _log.warning("%r is tried again: %s", self.task.key.task_id, lost)
                await self._take_back_asks()
                await self._clock.sleep(seconds)
                self.order.channel = await self.order.reach() or self.order.channel
        return await self._exchange()

    async def _take_back_asks(self) -> None:
        """Withdraw what the lost attempt asked: nobody is there to take the answers."""
        for pending in self.task.pending:
            message = call.cancel_message(pending.relay_id, "the call is made again")
            await self._drop(call.Heard("withdrawn", message, upstream_id=pending.upstream_id))

    async def _exchange(self) -> Ending:
        self._sent = True
        channel = self.order.channel
        async with aclosing(channel.exchange(self._message, self.order.headers)) as messages:
            async for message in messages:
                ending = await self._take(call.hear(message))
                if ending is not None:
                    return ending
        return Ending(call.lost("the upstream ended its answer without a response"), "upstream_lost")

    async def _take(self, heard: call.Heard) -> Ending | None:
        match heard.kind:
            case "final":
                return self._judge(heard)
            case "ask":
                await self._ask(heard)
            case "ping":
                with suppress(UpstreamLost):
                    await self.answer(call.pong(heard.upstream_id))
            case "withdrawn":
                await self._drop(heard)
            case "progress":
                await self._progress(heard)
            case "notification":
                await self._deliver(News("message", self.task, heard.message))
            case "noise":
                _log.debug("upstream noise in %r", self.task.key.task_id)
        return None

    def _judge(self, heard: call.Heard) -> Ending:
        outcome = heard.outcome or call.lost("the upstream sent an empty response")
        size = len(outcome.result or outcome.rpc_error or b"")
        if size > self._limits.result_bytes:
            self._witness.limit_hit("result_bytes")
            return Ending(call.too_large(size, self._limits.result_bytes), "too_large")
        return Ending(outcome, call.label_of(outcome))

    async def _progress(self, heard: call.Heard) -> None:
        now = self._clock.monotonic()
        if heard.text and now - self._noted_at >= _NOTE_SECONDS:
            self._noted_at = now
            with suppress(StoreAway):
                await self._store.note(self.task.key, self._claim, heard.text)
        if self._wants_progress:
            await self._deliver(News("message", self.task, heard.message))

    async def _ask(self, heard: call.Heard) -> None:
        if len(self._offered) >= self._limits.pending_requests:
            self._witness.limit_hit("pending_requests")
            await self._refuse_ask(
                heard, f"Limit reached: pending_requests ({self._limits.pending_requests})"
            )
            return
        self._asked += 1
        relay = call.relay_id(self.task.key, self._claim.epoch, self._asked)
        pending = Pending(relay, heard.upstream_id, heard.method, heard.message)
        try:
            task = await self._store.ask(self.task.key, self._claim, pending)
        except StoreAway:
            await self._refuse_ask(heard, "Task store unavailable: the client cannot be asked now")
            return
        except IllegalMove:
            task = None
        if task is None:
            raise _TaskGone
        self.moved(task)
        self._witness.asked(task, heard.method)
        news = News("message", task, call.readdressed(heard.message, dump(relay)))
        self._offered[relay] = news
        if not await self._deliver(news):
            self.leave()

    async def _refuse_ask(self, heard: call.Heard, words: str) -> None:
        error = dump({"code": INTERNAL_ERROR, "message": words})
        with suppress(UpstreamLost):
            await self.answer(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (heard.upstream_id, error))

    async def _drop(self, heard: call.Heard) -> None:
        try:
            dropped = await self._store.drop_pending(self.task.key, self._claim, heard.upstream_id)
        except StoreAway:
            return
        if dropped is None:
            return
        left = {pending.relay_id for pending in dropped.pending}
        gone = [relay for relay in self._offered if relay not in left]
        self.moved(dropped)
        for relay in gone:
            del self._offered[relay]
            message = call.withdrawal(heard.message, relay)
            await self._deliver(News("message", dropped, message))

    async def _deliver(self, news: News) -> bool:
        """Log a message, then hand it to the first stream; tell whether that one still listens."""
        try:
            offset = await self._store.append(self.task.key, self._claim, news.message)
        except StoreAway:
            offset = ""
        if offset is None:
            raise _TaskGone
        was_open = self.feed.open
        reached = self.feed.put(msgspec.structs.replace(news, offset=offset))
        if was_open and not self.feed.open:
            self._witness.dropped("task_stream")
            self._witness.limit_hit("stream_queue_bytes")
        return reached

    async def _settle(self, ending: Ending) -> None:
        if self._recorded:
            self._say_final(ending.outcome)
            self.moved(msgspec.structs.replace(self.task, status=ending.outcome.status))
            return
        try:
            task = await self._store.finish(self.task.key, self._claim, ending.outcome)
        except StoreAway:
            self._say_final(ending.outcome)
            task = await self._finish_later(ending)
        if task is None:
            await self._settle_unrecorded(ending)
            return
        self._say_final(ending.outcome, task)
        self.moved(task)
        self._witness.finished(task, ending.label)

    async def _settle_unrecorded(self, ending: Ending) -> None:
        """The store did not take the outcome: the task has ended elsewhere, is another's, or is gone.

        Whoever still waits for a response hears what the store says, or, where the task is gone, what
        this call came to.
        """
        try:
            found = await self._store.outcome(self.task.key)
        except StoreAway:
            found = None
        if found is None:
            self._say_final(ending.outcome)
            self.moved(msgspec.structs.replace(self.task, status=ending.outcome.status))
            return
        task, outcome = found
        if outcome is not None:
            self._say_final(outcome, task)
        self.moved(task if task.ended else msgspec.structs.replace(task, status="unknown"))

    def _say_final(self, outcome: Outcome, task: Task | None = None) -> None:
        self.feed.put(News("final", task or self.task, offset="end", outcome=outcome))
        self.feed.end()

    async def _finish_later(self, ending: Ending) -> Task | None:
        """Keep the outcome in memory until the store is back (I9)."""
        deadline = self._clock.monotonic() + STORE_PATIENCE_SECONDS
        attempt = 0
        while self._clock.monotonic() < deadline:
            await self._clock.sleep(_BACKOFF[min(attempt, len(_BACKOFF) - 1)])
            attempt += 1
            with suppress(StoreAway):
                return await self._store.finish(self.task.key, self._claim, ending.outcome)
        _log.error("the store stayed away: the outcome of %r is lost", self.task.key.task_id)
        return None

    async def _withdraw(self, reason: str) -> None:
        """Tell the upstream that nobody waits for the answer any more (2025-11-25 "Cancellation")."""
        with suppress(UpstreamLost, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                message = call.cancel_message(self._ident, reason)
                await self.order.channel.send(message, self.order.headers)
