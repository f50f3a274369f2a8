"""The judge of a run: what a history must not show, each rule a function that yields what it found.

It shares no line with the gateway: the statuses and what may follow what are written here from the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.chaos.history import History
from tests.chaos.stories import TERMINAL, Story, stories

# What a later answer may say after an earlier one (SEP-1686 section 4.3; 2025-11-25 and SEP-2663 know
# neither `submitted` nor `unknown`): who polls may miss steps, and no terminal status is ever left.
_FROM_WORK: Final = frozenset({"working", "input_required", *TERMINAL})
AFTER: Final[dict[str, frozenset[str]]] = {
    "submitted": frozenset({"submitted", *_FROM_WORK}),
    "working": _FROM_WORK,
    "input_required": _FROM_WORK,
    **{status: frozenset({status}) for status in TERMINAL},
}
STATUSES: Final = {
    "a": frozenset(AFTER),
    "b": frozenset(AFTER) - {"submitted", "unknown"},
    "c": frozenset(AFTER) - {"submitted", "unknown"},
}
# How many tasks of a client may fail in a session that its upstream has lost: one for each replica.
DEAD: Final = 4
# Answers that are no failure: the task is gone or taken as it should be (other rules look at those), or was
# asked for too early or too late.
FINE: Final = frozenset({"not_found", "taken", "too_early", "ended", "failed"})


@dataclass(frozen=True)
class Violation:
    """What must not be: the rule, the call (or place), and the words for a person."""

    rule: str
    nonce: str
    words: str


Rule: TypeAlias = Callable[[Story], Iterator[str]]


def no_task_is_lost(story: Story) -> Iterator[str]:
    """I2, I8: what was announced is found until its retention ends, it is deleted, or Redis is wiped."""
    told = story.announced
    if told is None:
        return
    for one in story.asked:
        if one.status != "not_found" or one.op == "foreign" or one.sent < told.answered:
            continue
        deleted = story.deleted_at is not None and story.deleted_at <= one.answered
        expired = one.answered >= story.kept_until
        if not (deleted or expired or story.wiped(told.sent, one.answered)):
            since = one.sent - told.answered
            yield f"{one.op} {since:.3f} s after it was announced: {one.words!r} {one.replica}"


def nothing_runs_twice(story: Story) -> Iterator[str]:
    """I3: one execution at most, unless the policy of the tool lets it be tried again.

    While the store was away a creation is an ordinary call (I9), and who sends such a call again has it
    run again.
    """
    allowed = len(story.creations) if _store_was_away(story) else 1
    if story.first.tool.startswith(story.terms.retry_prefix):
        allowed += story.terms.retries
    if len(story.runs) > allowed:
        times = ", ".join(f"{one.at:.3f} by {one.pid}" for one in story.runs)
        yield f"{story.first.tool} ran {len(story.runs)} times: {times}"


def _store_was_away(story: Story) -> bool:
    sent = [one.sent for one in story.creations]
    near = story.terms.lease
    return len(sent) > 1 and any(
        fault.name.startswith(("redis", "machine"))
        and fault.begun <= max(sent)
        and fault.over >= min(sent) - near
        for fault in story.faults
    )


def nothing_runs_that_was_refused(story: Story) -> Iterator[str]:
    """I12: a creation that was refused does not run afterwards."""
    tries = story.creations
    if not tries or any(one.came != "error" or one.status == "taken" for one in tries):
        return
    refused = max(one.answered for one in tries)
    for run in story.runs:
        if run.at > refused:
            yield f"ran {run.at - refused:.3f} s after it was refused: {tries[-1].words!r}"


def every_move_is_legal(story: Story) -> Iterator[str]:
    """I4: of two answers in turn the second may follow the first, whichever replica gave them."""
    for one in story.seen:
        if one.status not in STATUSES.get(one.dialect, AFTER):
            yield f"{one.status!r} is no status of dialect {one.dialect}"
    # Retention of a deleted id ends, and it may be made anew.
    for place, earlier in enumerate(story.seen):
        for later in story.seen[place + 1 :]:
            allowed = AFTER.get(earlier.status, frozenset())
            if earlier.answered <= later.sent and later.status not in allowed:
                yield f"{earlier.status} at {earlier.answered:.3f}, then {later.status} at {later.sent:.3f}"
                return


def nobody_gets_what_is_anothers(story: Story) -> Iterator[str]:
    """I7: a payload is that of the call it answers; another scope's id is never found."""
    for one in story.asked:
        if one.got_nonce and (one.got_nonce, one.got_scope) != (one.nonce, one.scope):
            yield f"{one.op} of {one.scope} got {one.got_nonce} of {one.got_scope}"
        if one.op == "foreign" and one.came in ("task", "status", "result", "ok"):
            yield f"{one.scope} found {one.task_id}, which is another's"
        if one.op == "foreign" and one.came == "error" and one.code == -32602 and one.status != "not_found":
            yield f"{one.scope} could tell {one.task_id} from one that never was: {one.words!r}"


def every_task_ends(story: Story) -> Iterator[str]:
    """I5: a task is seen to end, and within its bound."""
    if story.announced is None:
        return
    late = [one for one in story.seen if one.status not in TERMINAL and one.sent > story.bound]
    if late:
        yield f"still {late[-1].status} {late[-1].sent - story.bound:.1f} s beyond its bound"
    ended = any(one.status in TERMINAL for one in story.seen) or any(
        one.op in ("result", "stream", "create") and one.came == "result" for one in story.asked
    )
    gone = any(one.status == "not_found" for one in story.asked)
    if not ended and story.deleted_at is None and not gone and not late:
        last = story.asked[-1]
        yield f"never seen to end; last: {last.op} {last.came} {last.status} {last.words!r}"


def every_outcome_is_true(story: Story) -> Iterator[str]:
    """An end is what the upstream's own log says; a failure has a reason that was there."""
    for one in story.seen:
        if one.status in TERMINAL:
            yield from _untrue(story, one.status, one.dialect, one.answered)
    for one in story.asked:
        if one.came == "result" and not any(end.at <= one.answered for end in story.ends):
            yield f"{one.op} brought a result of what has not come to an end"
        if one.came == "result" and one.words and not story.touched(story.first.sent, one.answered):
            yield f"{one.op} brought a result that is {one.words}, though nothing was broken meanwhile"


def _untrue(story: Story, status: str, dialect: str, when: float) -> Iterator[str]:
    ended = any(end.at <= when for end in story.ends)
    tool_failed = story.first.tool == "fail_work" and ended
    touched = story.touched(story.first.sent, when)
    if status == "completed" and not ended:
        yield "completed, but the upstream has not come to an end with it"
    if status == "completed" and dialect == "b" and tool_failed:
        yield "completed in dialect B, though its tool failed"
    if status in ("failed", "unknown") and not touched and not (tool_failed and dialect == "b"):
        yield f"{status}, though nothing was broken meanwhile: {story.seen[-1].words!r}"
    if status == "cancelled" and (story.stopped_at is None or story.stopped_at > when):
        yield "cancelled, though nobody asked for that"


def every_request_is_answered(story: Story) -> Iterator[str]:
    """I9, I12: an answer comes in time, and where nothing is broken it is no failure."""
    for one in story.asked:
        if one.came == "late":
            yield f"{one.op} was not answered in {one.answered - one.sent:.1f} s"
        failed = one.came in ("error", "lost") and one.status not in FINE
        if failed and not story.touched(one.sent, one.answered):
            words = f"{one.http} {one.code} {one.words!r}"
            yield f"{one.op} {one.came} at {one.sent:.3f}, though nothing was broken: {words}"


RULES: Final[tuple[Rule, ...]] = (
    no_task_is_lost,
    nothing_runs_twice,
    nothing_runs_that_was_refused,
    every_move_is_legal,
    nobody_gets_what_is_anothers,
    every_task_ends,
    every_outcome_is_true,
    every_request_is_answered,
)


def nobody_stays_in_a_dead_session(history: History) -> Iterator[tuple[str, str]]:
    """Transports: who uses a session that the upstream has lost is told so (404), and may initialize anew.

    A few tasks may fail before each replica knows.
    """
    failed: dict[str, int] = {}
    told = {story.nonce: story for story in stories(history)}
    for one in sorted(history.asked, key=lambda each: each.sent):
        if one.op == "open" and one.came == "ok":
            failed[one.client] = 0
        if one.op == "create" and one.came == "task" and _session_was_lost(told[one.nonce]):
            failed[one.client] = failed.get(one.client, 0) + 1
            if failed[one.client] == DEAD:
                yield (
                    one.nonce,
                    f"the {DEAD}th task that fails since the session is gone: {one.client} is not told",
                )


def _session_was_lost(story: Story) -> bool:
    return any(one.status == "failed" and "no longer knows the session" in one.words for one in story.seen)


def check(history: History) -> list[Violation]:
    """Return all violations, by rule; what was left behind after the run is one each."""
    told = stories(history)
    found = [
        Violation(rule.__name__, story.nonce, words)
        for rule in RULES
        for story in told
        for words in rule(story)
    ]
    found += [
        Violation(nobody_stays_in_a_dead_session.__name__, nonce, words)
        for nonce, words in nobody_stays_in_a_dead_session(history)
    ]
    strangers = {run.nonce for run in history.ran} - {story.nonce for story in told}
    found += [
        Violation("nothing_runs_unasked", nonce, "ran, but nobody asked") for nonce in sorted(strangers)
    ]
    found += [Violation("nothing_is_left", one.where, f"{one.what}: {one.words}") for one in history.left]
    return found
