"""A task in this replica's hand: its record, the right to write to it, its log and its first stream."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.protocol.errors import StoreAway
from gateway.service.announce import Announcer
from gateway.service.feed import Feed, News
from gateway.service.gone import TaskGone
from gateway.service.order import ServiceLimits
from gateway.service.places import Places, Spawn
from gateway.service.tenure import Tenure
from gateway.service.witness import Witness
from gateway.store.port import Claim, Store
from gateway.tasks import call
from gateway.tasks.model import Outcome, Task


class Ending(msgspec.Struct, frozen=True):
    """How a call ended: what is stored, how it is counted, whether the upstream must be told.

    With `elsewhere` another replica has ended the task, and the store alone knows how.
    """

    outcome: Outcome
    label: call.FinishedLabel
    withdraw: str = ""
    elsewhere: bool = False


LOST: Final = Ending(
    Outcome(status="failed", error="The task was lost: the store no longer has it"),
    "lost",
    "the task is gone",
)
# Whoever has it now answers: the stream ends without a response, its client reads on elsewhere, and the
# upstream hears nothing, since the call may go on there.
TAKEN: Final = Ending(Outcome(status="cancelled"), "lost")
HANDED_OVER: Final = Ending(Outcome(status="cancelled"), "lost")


class Tools(msgspec.Struct, frozen=True):
    """What every running task works with."""

    store: Store
    witness: Witness
    announcer: Announcer
    clock: Clock
    limits: ServiceLimits
    spawn: Spawn


class Hand:
    """The record as this replica knows it, and what is told of it; raises `TaskGone` when it is lost."""

    def __init__(
        self, task: Task, tools: Tools, tenure: Tenure, *, only_final: bool, streams: bool = True
    ) -> None:
        self.task = task
        self.tenure = tenure
        self._streams = streams
        self.claim = Claim(task.owner, task.epoch)
        self.places = Places(tools.store, task.key, self.claim, tools.clock, tools.spawn)
        self.feed = Feed(tools.limits.stream_queue_bytes, only_final=only_final)
        self._tools = tools
        self._logged = 0

    def __repr__(self) -> str:
        return f"<Hand {self.task.key.task_id!r} {self.task.status} {self.feed!r}>"

    def moved(self, task: Task) -> None:
        """Take over a record that the store has changed."""
        self._tools.witness.moved(self.task.status, task)
        self.task = task

    def retired(self, outcome: Outcome) -> None:
        """Take note that the task is nothing of this replica's any more."""
        self.moved(msgspec.structs.replace(self.task, status=outcome.status))

    async def deliver(self, news: News, place: str = "") -> bool:
        """Log a message, then hand it to the first stream; tell whether that one still listens.

        `place` is that of the message in the upstream's stream, where it is not stored yet.

        Where the request that began the task is no stream, notifications go to the session's.
        """
        if not self._streams:
            if not news.relay:
                self._tools.announcer.passed_on(self.task, news.message)
            self.places.note(place)
            return False
        offset = await self._append(news.message, place)
        was_open = self.feed.open
        reached = self.feed.put(msgspec.structs.replace(news, offset=offset))
        if was_open and not self.feed.open:
            self._tools.witness.dropped("task_stream")
            self._tools.witness.limit_hit("stream_queue_bytes")
        return reached

    def say_final(self, outcome: Outcome, task: Task | None = None) -> None:
        """Tell the first stream how the call ended; nothing follows."""
        self.feed.put(News("final", task or self.task, offset="end", outcome=outcome))
        self.feed.end()

    def ended_elsewhere(self, task: Task | None) -> Ending | None:
        """Return what a record read anew means for the call, `None` where it goes on."""
        if task is None:
            return LOST
        ours = (task.owner, task.epoch) == (self.claim.owner, self.claim.epoch)
        if task.ended:
            words = task.error or "ended elsewhere"
            outcome = Outcome(status=task.status, error=words)
            # Whoever had it then has told the upstream.
            return Ending(outcome, "cancelled", words if ours else "", elsewhere=not ours)
        return None if ours else TAKEN

    async def _append(self, message: bytes, place: str) -> str:
        if self._logged + len(message) > self._tools.limits.log_bytes:
            self._tools.witness.dropped("task_log")
            self._tools.witness.limit_hit("log_bytes")
            self.places.note(place)
            return ""
        try:
            heard = await self.places.with_message(place)
            offset = await self._tools.store.append(self.task.key, self.claim, message, heard)
        except StoreAway:
            return ""
        if offset is None:
            raise TaskGone
        self._logged += len(message)
        return offset
