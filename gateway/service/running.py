"""One running task: its upstream call from the first byte to the stored outcome."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Final

from gateway.protocol.errors import Refusal, StoreAway, UpstreamLost
from gateway.service.asking import Asking
from gateway.service.early import Early
from gateway.service.feed import Feed, News
from gateway.service.hand import LOST, TAKEN, Ending, Hand, TaskGone, Tools
from gateway.service.order import Order
from gateway.service.settling import settle
from gateway.tasks import call
from gateway.tasks.model import Task

_log: Final = logging.getLogger("gateway.service")
_NOTE_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = (1.0, 5.0)
_SERVER_FAULT: Final = 500
_FAREWELL_SECONDS: Final = 5.0


async def _nowhere() -> None:
    """Return no channel: the call is made but once."""


class Running:
    """A task that this replica runs.

    `feed` is the stream of the client that asked, for as long as it listens; `asking` are the server
    requests, which `elsewhere` takes to another stream of the session when the first is gone.
    """

    def __init__(
        self,
        task: Task,
        order: Order,
        tools: Tools,
        elsewhere: Callable[[list[News]], None],
        *,
        only_final: bool,
    ) -> None:
        self.order = order
        self._tools = tools
        self._hand = Hand(task, tools, only_final=only_final, streams=order.streams)
        self.asking = Asking(self._hand, tools, self._send, elsewhere, order.askable)
        self._noted_at = float("-inf")
        self._stop: Ending | None = None
        self._recorded = False
        self._settling = False
        self._work: asyncio.Task[None] | None = None
        self._sent = order.early is not None
        early = order.early
        if early is None:
            self._ident = f"mtg-call.{secrets.token_hex(12)}"
            self._message, self._wants_progress = call.upstream_request(order.message, self._ident)
        else:
            self._ident, self._message = early.ident, early.message
            self._wants_progress = early.wants_progress
            early.message = b""
        order.message = b""
        self._again = order.policy.on_loss == "retry"
        if not self._again:
            # The way back holds the client's whole request, and a task may live for hours.
            order.reach = _nowhere
            self._message = b"" if early is not None else self._message
        self._patience: asyncio.TimerHandle | None = None
        if order.streams:
            self.feed.put(News("created", task, offset="0"))
        else:
            self.feed.end()

    def __repr__(self) -> str:
        return f"<Running {self._hand!r}>"

    @property
    def task(self) -> Task:
        """The record as this replica knows it."""
        return self._hand.task

    @property
    def feed(self) -> Feed:
        """The first stream."""
        return self._hand.feed

    def moved(self, task: Task) -> None:
        """Take over a record that the store has changed."""
        self._hand.moved(task)

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
        except TaskGone:
            self._settling = True
            ending = self._stop or await self._found_gone()
            self._recorded = True
        self._settling = True
        try:
            async with asyncio.TaskGroup() as both:
                # A store that is away must not keep the upstream working for nobody.
                if ending.withdraw and self._sent:
                    both.create_task(self._withdraw(ending.withdraw))
                await settle(self._hand, self._tools, ending, recorded=self._recorded)
        finally:
            self.answered()
            self.feed.end()
            if self.order.early is not None:
                # Ended before anybody read it.
                await self.order.early.close()

    def stop(self, ending: Ending, *, recorded: bool) -> None:
        """End the call; `recorded` says that the store has the task's end already."""
        if self._stop is not None or self._settling:
            return
        self._stop = ending
        self._recorded = recorded
        if self._work is not None:
            self._work.cancel()

    async def compare(self, task: Task | None) -> None:
        """Take note of what the store says of the task now; stop the call where it is ours no more."""
        ending = self._hand.ended_elsewhere(task)
        if ending is not None:
            self.stop(ending, recorded=True)
        elif task is not None and task.pending:
            await self.asking.tidy(task)

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
        clock = self._tools.clock
        began = clock.monotonic()
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
            self._tools.witness.called(self.task, ending.label, clock.monotonic() - began)
        return ending

    async def _start(self) -> None:
        try:
            task = await self._tools.store.start(self.task.key, self._hand.claim)
        except StoreAway:
            # The claim was stored with the task: the call may run, its outcome is kept until later.
            _log.warning("the store is away: %r starts unrecorded", self.task.key.task_id)
            return
        if task is None:
            raise TaskGone
        self.moved(task)
        self._tools.witness.started(task)

    async def _exchange_again(self) -> Ending:
        """Make the call; where its policy lets it run twice, again when the upstream was lost (I3)."""
        if self._again:
            for seconds in _RETRY_SECONDS:
                try:
                    return await self._exchange()
                except UpstreamLost as lost:
                    if lost.status is not None and lost.status < _SERVER_FAULT:
                        raise
                    _log.warning("%r is tried again: %s", self.task.key.task_id, lost.tell())
                await self.asking.take_back_all("the call is made again")
                await self._tools.clock.sleep(seconds)
                self.order.channel = await self.order.reach() or self.order.channel
        return await self._exchange()

    async def _exchange(self) -> Ending:
        self._sent = True
        if self.order.early is not None:
            return await self._read_early(self.order.early)
        channel, message = self.order.channel, self._message
        if not self._again:
            self._message = b""
        exchange = channel.exchange(message, self.order.headers)
        del message
        async with aclosing(exchange) as messages:
            async for message in messages:
                ending = await self._take(call.hear(message))
                if ending is not None:
                    return ending
        return Ending(call.lost("the upstream ended its answer without a response"), "upstream_lost")

    async def _read_early(self, early: Early) -> Ending:
        """Read on what another began to read; a second attempt is a call of its own."""
        self.order.early = None
        try:
            async with aclosing(early.messages()) as coming:
                async for heard in coming:
                    ending = await self._take(heard)
                    if ending is not None:
                        return ending
        finally:
            await early.close()
        return Ending(call.lost("the upstream ended its answer without a response"), "upstream_lost")

    def _wait_for_answer(self) -> None:
        """Give the call up unless the client answers in time; each question begins the wait anew."""
        within = self.order.answer_within
        if within is None:
            return
        self.answered()
        ending = Ending(call.unanswered(within), "timed_out", "the client did not answer in time")
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(within / 1000, lambda: self.stop(ending, recorded=False))

    def forsake(self) -> None:
        """Take note that the client has gone for good: a question ends the call, one that waits too."""
        self.order.answer_within = 0
        if self.asking.unanswered():
            self._wait_for_answer()

    def unheard(self, lost: UpstreamLost) -> None:
        """An answer did not reach the upstream, which would wait for it for ever: end the call.

        Where it may have been taken the call goes on.
        """
        if lost.sent and lost.status is None:
            return
        outcome = call.lost(f"it could not be given the client's answer: {lost}")
        words = "the client's answer did not reach you"
        self.stop(Ending(outcome, "upstream_lost", words), recorded=False)

    def answered(self) -> None:
        """The client has come back: the call goes on."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    async def _take(self, heard: call.Heard) -> Ending | None:
        match heard.kind:
            case "final":
                return self._judge(heard)
            case "ask":
                self._wait_for_answer()
                await self.asking.ask(heard)
            case "ping":
                with suppress(UpstreamLost):
                    await self._send(call.pong(heard.upstream_id))
            case "withdrawn":
                await self.asking.withdraw(heard)
            case "progress":
                await self._progress(heard)
            case "notification":
                await self._hand.deliver(News("message", self.task, heard.message))
            case "noise":
                _log.debug("upstream noise in %r", self.task.key.task_id)
        return None

    def _judge(self, heard: call.Heard) -> Ending:
        outcome = heard.outcome or call.lost("the upstream sent an empty response")
        size = len(outcome.result or outcome.rpc_error or b"")
        bound = self._tools.limits.result_bytes
        if size > bound:
            self._tools.witness.limit_hit("result_bytes")
            return Ending(call.too_large(size, bound), "too_large")
        return Ending(outcome, call.label_of(outcome))

    async def _progress(self, heard: call.Heard) -> None:
        now = self._tools.clock.monotonic()
        if heard.text and now - self._noted_at >= _NOTE_SECONDS:
            self._noted_at = now
            with suppress(StoreAway):
                await self._tools.store.note(self.task.key, self._hand.claim, heard.text)
        if self._wants_progress:
            await self._hand.deliver(News("message", self.task, heard.message))

    async def _found_gone(self) -> Ending:
        """Find out why the store takes nothing more for this task."""
        try:
            found = await self._tools.store.get(self.task.key)
        except StoreAway:
            return LOST
        return self._hand.ended_elsewhere(found) or TAKEN

    async def _send(self, message: bytes) -> None:
        await self.order.channel.send(message, self.order.headers)

    async def _withdraw(self, reason: str) -> None:
        """Tell the upstream that nobody waits for the answer any more (2025-11-25 "Cancellation")."""
        with suppress(UpstreamLost, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._send(call.cancel_message(self._ident, reason))
