"""The end of a call: its outcome stored, told on the stream and to operators, each once."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from gateway.protocol.errors import StoreAway
from gateway.service.hand import Ending, Hand, Tools
from gateway.tasks.model import Task

_log: Final = logging.getLogger("gateway.service")
_BACKOFF: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
STORE_PATIENCE_SECONDS: Final = 600.0


async def settle(hand: Hand, tools: Tools, ending: Ending, *, recorded: bool) -> None:
    """Store how a call ended and tell it; `recorded` says that the store has the task's end already.

    With the store away the client hears at once, and the outcome is kept until the store is back (I9);
    where the task may be another's by now the client hears what the store says then.
    """
    if recorded:
        hand.say_final(ending.outcome)
        hand.retired(ending.outcome)
        return
    try:
        task = await tools.store.finish(hand.task.key, hand.claim, ending.outcome)
    except StoreAway:
        if hand.tenure.holds:
            hand.say_final(ending.outcome)
        task = await _finish_later(hand, tools, ending)
    if task is None:
        await _settle_unrecorded(hand, tools, ending)
        return
    hand.say_final(ending.outcome, task)
    hand.moved(task)
    tools.announcer.moved(task, ending.outcome)
    tools.witness.finished(task, ending.label)


async def _settle_unrecorded(hand: Hand, tools: Tools, ending: Ending) -> None:
    """The store did not take the outcome: the task has ended, is another's, or is gone.

    Whoever still waits for a response hears what the store says, or, where the task is gone, what this
    call came to. An outcome that is this call's own was stored, and only the reply was lost.
    """
    try:
        found = await tools.store.outcome(hand.task.key)
    except StoreAway:
        found = None
    if found is None:
        hand.say_final(ending.outcome)
        hand.retired(ending.outcome)
        return
    task, outcome = found
    if outcome is None:
        hand.retired(ending.outcome)
        return
    hand.say_final(outcome, task)
    hand.moved(task)
    if outcome == ending.outcome and task.owner == hand.claim.owner:
        tools.announcer.moved(task, outcome)
        tools.witness.finished(task, ending.label)


async def _finish_later(hand: Hand, tools: Tools, ending: Ending) -> Task | None:
    deadline = tools.clock.monotonic() + STORE_PATIENCE_SECONDS
    attempt = 0
    while tools.clock.monotonic() < deadline:
        await tools.clock.sleep(_BACKOFF[min(attempt, len(_BACKOFF) - 1)])
        attempt += 1
        with suppress(StoreAway):
            return await tools.store.finish(hand.task.key, hand.claim, ending.outcome)
    _log.error("the store stayed away: the outcome of %r is lost", hand.task.key.task_id)
    return None
