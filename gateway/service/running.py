"""One running task: its upstream call from the first byte to the stored outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final

from gateway.protocol.errors import Refusal, StoreAway, UpstreamLost
from gateway.service.asking import Asking
from gateway.service.attempts import Attempts
from gateway.service.feed import Feed, News
from gateway.service.gone import TaskGone
from gateway.service.hand import HANDED_OVER, LOST, TAKEN, Ending, Hand, Tools
from gateway.service.line import Turn
from gateway.service.order import Order, Taken
from gateway.service.settling import settle
from gateway.service.tenure import Tenure
from gateway.tasks import call
from gateway.tasks.model import Task
from gateway.upstream.port import place_of

_log: Final = logging.getLogger("gateway.service")
_NOTE_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = (1.0, 5.0)
# Readers of a task that another replica ran need a moment to find this one.
_ATTEND_SECONDS: Final = 0.5


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
        tenure: Tenure,
        only_final: bool,
    ) -> None:
        self.order = order
        self.tenure = tenure
        self._tools = tools
        self._hand = Hand(task, tools, tenure, only_final=only_final, streams=order.streams)
        self.asking = Asking(self._hand, tools, self._reply, elsewhere, order.askable)
        self._noted_at = float("-inf")
        self._stop: Ending | None = None
        self._recorded = False
        self._settling = False
        self._work: asyncio.Task[None] | None = None
        self._call = Attempts(order, self._hand)
        if order.taken is not None:
            self.asking.adopt(task, order.taken.answers)
        self._patience: asyncio.TimerHandle | None = None
        if order.streams and task.epoch == 1:
            self.feed.put(News("created", task, offset="0"))
        else:
            self.feed.end()

    def __repr__(self) -> str:
        return f"<Running {self._hand!r}>"

    @property
    def can_be_taken_up(self) -> bool:
        """Whether another replica could go on with the call, were it left to it now."""
        order = self.order
        if not order.has_course or self._settling:
            return False
        if self.task.started_at is None:
            return order.has_request
        return bool(self._hand.places.newest) or (self._call.again and order.has_request)

    @property
    def handed_over(self) -> bool:
        """Whether the task was left to another replica."""
        return self._stop is HANDED_OVER and not self._settling

    @property
    def epoch(self) -> int:
        """The epoch in which this replica has the task."""
        return self._hand.claim.epoch

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

    async def run(self, turn: Turn | None) -> None:
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
            self._recorded = not ending.elsewhere
        if ending is HANDED_OVER:
            await self._hand.places.flush()
        else:
            self._settling = True
        try:
            async with asyncio.TaskGroup() as both:
                # A store that is away must not keep the upstream working for nobody.
                if ending.withdraw and self._call.sent:
                    both.create_task(self._call.withdraw(ending.withdraw))
                await settle(self._hand, self._tools, ending, recorded=self._recorded)
        finally:
            self.answered()
            self.feed.end()
            self.tenure.end()
            self._hand.places.end()
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
            if ending.withdraw:
                # Nobody else can have it any more: the upstream may be told.
                self.tenure.renew(self._tools.clock.monotonic())
            self.stop(ending, recorded=not ending.elsewhere)
        elif task is not None and task.pending:
            await self.asking.tidy(task)

    async def _in_turn(self, turn: Turn | None) -> Ending:
        if turn is None:
            return await self._run_call()
        try:
            try:
                async with asyncio.timeout(self.task.timeout / 1000):
                    if not turn.given:
                        await self._say_that_it_waits(turn.before)
                    await turn.mine()
            except TimeoutError:
                return Ending(call.timed_out(self.task.timeout), "timed_out")
            return await self._run_call()
        finally:
            turn.leave()

    async def _say_that_it_waits(self, before: int) -> None:
        """Say so once, to clients that are shown such words; the start of the call takes them back."""
        if self.task.dialect in ("b", "c"):
            words = f"waiting for its turn, about {before} before it" if before else "next in turn"
            with suppress(StoreAway):
                await self._tools.store.note(self.task.key, self._hand.claim, words)

    @property
    def _seconds_left(self) -> float:
        """How long the call may take yet; the store counts from its start."""
        task = self.task
        past = task.updated_at - (task.started_at or task.updated_at) if self.order.taken else 0
        return max(0, task.timeout - past) / 1000

    async def _run_call(self) -> Ending:
        seconds = self._seconds_left
        if self.order.taken is None:
            await self._start()
        clock = self._tools.clock
        began = clock.monotonic()
        ending = Ending(call.lost("the call was cut off"), "cancelled")
        try:
            async with asyncio.timeout(seconds):
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
            await self._may_start_unrecorded()
            return
        if task is None:
            raise TaskGone
        self.moved(task)
        self._tools.witness.started(task)

    async def _may_start_unrecorded(self) -> None:
        """Wait where another replica could take the call for one that was never made (I3)."""
        if self.order.begins_elsewhere:
            await self._recorded_start()
        elif not self.tenure.holds:
            await self.tenure.sure()

    async def _recorded_start(self) -> None:
        while True:
            await self._tools.clock.sleep(_NOTE_SECONDS)
            with suppress(StoreAway):
                task = await self._tools.store.start(self.task.key, self._hand.claim)
                if task is None:
                    raise TaskGone
                self.moved(task)
                return

    async def _exchange_again(self) -> Ending:
        """Make the call; where its policy lets it run twice, again when the upstream was lost (I3)."""
        if self.order.taken is not None:
            ending = await self._take_up(self.order.taken)
            if ending is not None:
                return ending
        if self._call.again:
            for seconds in _RETRY_SECONDS:
                try:
                    return await self._heard_out(self._call.make())
                except UpstreamLost as lost:
                    if lost.refused:
                        raise
                    _log.warning("%r is tried again: %s", self.task.key.task_id, lost.tell())
                await self._begin_again(seconds)
        return await self._heard_out(self._call.make())

    async def _begin_again(self, seconds: float) -> None:
        """Make ready for another attempt."""
        await self.asking.take_back_all("the call is made again")
        if seconds:
            await self._tools.clock.sleep(seconds)
        await self._call.renew()
        await self._start()

    async def _take_up(self, taken: Taken) -> Ending | None:
        """Go on with a call that another replica began; `None` where it is to be made again."""
        self._tools.spawn(self._offer_later(), "offer")
        if self.asking.unanswered():
            self._wait_for_answer()
        why = taken.why_not
        if not why:
            try:
                return await self._resume(taken)
            except UpstreamLost as lost:
                why = f"its upstream does not go on with it: {lost}"
                _log.info("%r cannot be resumed: %s", self.task.key.task_id, lost.tell())
        words = "the replica that ran the call was lost"
        if not self._call.again:
            self._tools.witness.taken_over(self.task, "lost")
            return Ending(call.orphaned(why), "lost", words)
        self._tools.witness.taken_over(self.task, "retried")
        await self._call.withdraw(words)
        await self._begin_again(0)
        return None

    async def _resume(self, taken: Taken) -> Ending:
        await self.asking.bring(taken.answers)
        told = False
        async with aclosing(self._call.resume(taken)) as coming:
            async for heard in coming:
                if not told:
                    self._tools.witness.taken_over(self.task, "resumed")
                    told = True
                ending = await self._take(heard)
                if ending is not None:
                    return ending
        raise UpstreamLost("it ended its answer without a response")

    async def _offer_later(self) -> None:
        """Offer what waits for answers to the session's stream, unless somebody reads the task."""
        await self._tools.clock.sleep(_ATTEND_SECONDS)
        if not self._settling:
            self.asking.leave()

    async def _heard_out(self, heards: AsyncGenerator[call.Heard, None]) -> Ending:
        async with aclosing(heards) as coming:
            async for heard in coming:
                ending = await self._take(heard)
                if ending is not None:
                    return ending
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
        if not self.tenure.holds:
            await self.tenure.sure()
        ending = await self._hear(heard)
        self._hand.places.note(place_of(heard.message))
        return ending

    async def _hear(self, heard: call.Heard) -> Ending | None:
        match heard.kind:
            case "final":
                return self._judge(heard)
            case "ask":
                self._wait_for_answer()
                await self.asking.ask(heard)
            case "ping":
                with suppress(UpstreamLost):
                    await self._call.send(call.pong(heard.upstream_id))
            case "withdrawn":
                await self.asking.withdraw(heard)
            case "progress":
                await self._progress(heard)
            case "notification":
                await self._hand.deliver(News("message", self.task, heard.message), place_of(heard.message))
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
        if self._call.wants_progress:
            await self._hand.deliver(News("message", self.task, heard.message), place_of(heard.message))

    async def _found_gone(self) -> Ending:
        """Find out why the store takes nothing more for this task."""
        try:
            found = await self._tools.store.get(self.task.key)
        except StoreAway:
            return LOST
        return self._hand.ended_elsewhere(found) or TAKEN

    async def _reply(self, message: bytes) -> None:
        await self._call.send(message)
