"""Whatever is done to a task in whatever order, the store does what a small model of it does (I4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.protocol.errors import IllegalMove
from gateway.store.link import open_link
from gateway.store.port import Bounds, Claim, Exists
from gateway.store.redis import RedisStore
from gateway.tasks.machine import MOVES, TERMINAL
from gateway.tasks.model import Outcome, Status, Task
from tests.contract.making import LEASE_MS, key_of, new_task, pending

Verb = Literal["create", "start", "ask", "take", "drop", "note", "append", "finish", "cancel", "remove"]
Step = tuple[Verb, int, bool]
"""What is done, a number that says with what, and whether the claim is the right one."""

_ENDS: tuple[Status, ...] = ("completed", "failed", "cancelled", "unknown")
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "create",
                "start",
                "ask",
                "ask",
                "take",
                "drop",
                "note",
                "append",
                "finish",
                "cancel",
                "remove",
            )
        ),
        st.integers(0, 3),
        st.sampled_from((True, True, True, False)),
    ),
    max_size=25,
)


@dataclass
class Model:
    """One task as it should be; `status` is `None` where there is none."""

    status: Status | None = None
    pending: list[int] = field(default_factory=list[int])
    log: list[bytes] = field(default_factory=list[bytes])

    @property
    def running(self) -> bool:
        return self.status is not None and self.status not in TERMINAL

    def do(self, verb: Verb, number: int, ours: bool) -> bool:
        """Do it; tell whether it was allowed."""
        if verb == "create":
            if self.status is not None:
                return False
            self.status, self.pending, self.log = "submitted", [], []
            return True
        if verb == "remove":
            was, self.status = self.status, None
            return was is not None
        if not self.running or (not ours and verb not in ("cancel", "take")):
            return False
        return self._change(verb, number)

    def _change(self, verb: Verb, number: int) -> bool:
        if verb == "start" and self.status == "submitted":
            self.status = "working"
        elif verb == "ask":
            self.status = "input_required"
            self.pending += [number] if number not in self.pending else []
        elif verb in ("take", "drop"):
            if number not in self.pending:
                return verb == "drop"
            self.pending.remove(number)
            self.status = "input_required" if self.pending else "working"
        elif verb == "append":
            self.log.append(b"%d" % number)
        elif verb in ("finish", "cancel"):
            self.status = _ENDS[number] if verb == "finish" else "cancelled"
            self.pending = []
        return True


async def _do(store: RedisStore, verb: Verb, number: int, ours: bool) -> bool:
    key, claim = key_of(), Claim("r1", 1 if ours else 2)
    bounds, end = Bounds(5, 5), Outcome(status=_ENDS[number])
    asked = pending(f"q{number}", b"%d" % number)
    calls: dict[Verb, Callable[[], Awaitable[object]]] = {
        "create": lambda: store.create(new_task(key), "r1", LEASE_MS, bounds),
        "start": lambda: store.start(key, claim),
        "ask": lambda: store.ask(key, claim, asked),
        "take": lambda: store.take_pending(key, asked.relay_id),
        "drop": lambda: store.drop_pending(key, claim, asked.upstream_id),
        "note": lambda: store.note(key, claim, f"step {number}"),
        "append": lambda: store.append(key, claim, b"%d" % number),
        "finish": lambda: store.finish(key, claim, end),
        "cancel": lambda: store.cancel(key, "stop"),
        "remove": lambda: store.remove(key),
    }
    try:
        return await calls[verb]() not in (None, False, Exists())
    except IllegalMove:
        return False


async def _play(url: str, steps: list[Step]) -> None:
    store = RedisStore(open_link(url))
    model, before = Model(), None
    await store.remove(key_of())
    for verb, number, ours in steps:
        assert await _do(store, verb, number, ours) == model.do(verb, number, ours)
        task = await store.get(key_of())
        _compare(task, model)
        if task is not None and before is not None and verb != "create":
            assert task.status == before or task.status in MOVES[before]
        before = None if task is None else task.status
    if model.status is not None:
        assert [entry.message for entry in await store.read_log(key_of(), None, 100)] == model.log
    await store.remove(key_of())
    await store.close()


def _compare(task: Task | None, model: Model) -> None:
    if task is None:
        assert model.status is None
        return
    assert task.status == model.status
    assert {one.relay_id for one in task.pending} == {f"q{number}" for number in model.pending}
    assert (task.ended_at is not None) == task.ended


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(steps=_STEPS)
def test_I4_any_sequence_of_steps_keeps_to_the_table(url: str, steps: list[Step]) -> None:
    asyncio.run(_play(url, steps))
