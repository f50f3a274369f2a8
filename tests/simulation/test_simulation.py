"""Random orders of everything, found and replayed by their seeds; and that what is wrong would be seen."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.service import recovery
from gateway.store.port import Exists
from gateway.store.redis import RedisStore
from gateway.tasks.model import NewTask, Outcome, Scope, Task
from tests.simulation import orders
from tests.simulation.checks import complaints
from tests.simulation.clients import Seen
from tests.simulation.loop import Stuck, VirtualLoop, run
from tests.simulation.orders import Plan
from tests.simulation.story import Told, simulate
from tests.simulation.upstream import Execution

SEEDS = range(12)
PLAN = Plan("n", Scope("sim", "p"), "plain", "a", retry=False, in_turn=False)


def told(story: Told) -> str:
    faults = "\n".join(f"  {at:.3f} {what}" for at, what in story.faults)
    wrong = "\n".join(f"  {words}" for words in story.wrong)
    return f"python -m tests.simulation --one --seed {story.seed}\n{faults}\n{wrong}"


@pytest.mark.parametrize("seed", SEEDS)
def test_I3_I4_I5_I8_whatever_happens_in_whatever_order_nothing_is_wrong(seed: int) -> None:
    story = simulate(seed)
    assert not story.wrong, told(story)
    assert sum(story.ends.values()) == 12


def test_a_seed_tells_the_same_story_again() -> None:
    one, other = simulate(3, weather="stormy"), simulate(3, weather="stormy")
    assert (one.steps, one.faults, one.ends) == (other.steps, other.faults, other.ends)
    assert [actor.seen.statuses for actor in one.clients] == [
        actor.seen.statuses for actor in other.clients
    ]


def first_wrong(kinds: tuple[str, ...], first: int = 0) -> list[str]:
    """Return what is wrong in the first stormy story from a seed on in which anything is."""
    for seed in range(first, first + 20):
        story = simulate(seed, kinds=kinds, weather="stormy")
        if story.wrong:
            return story.wrong
    return []


def test_a_gateway_that_makes_lost_calls_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = orders.order_of

    def again(plan: Plan, channel: Any) -> Any:
        order = honest(plan, channel)
        order.policy = msgspec.structs.replace(plan, retry=True).policy
        return order

    monkeypatch.setattr("tests.simulation.clients.order_of", again)
    assert any("I3: run" in words for words in first_wrong(("upstream cut", "upstream away")))


def test_a_gateway_that_leaves_lost_tasks_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def alone(self: recovery.Recovery, task: Task) -> None:
        del self, task

    monkeypatch.setattr(recovery.Recovery, "take_up", alone)
    assert any("I5" in words for words in first_wrong(("kill",)))


def test_a_store_that_gives_one_id_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RedisStore.create

    async def create(self: RedisStore, new: NewTask, *more: Any) -> Any:
        found = await honest(self, new, *more)
        return await self.get(new.key) or found if isinstance(found, Exists) else found

    monkeypatch.setattr(RedisStore, "create", create)
    assert any("I3: run 2 times" in words for words in first_wrong(("cut",)))


def seen(**more: Any) -> Seen:
    usual: dict[str, Any] = {"plan": PLAN, "known": True, "made": 1, "ended_at": 1.0}
    return Seen(**{**usual, **more})


def done(times: int = 1) -> list[Execution]:
    executions = [Execution("n", f"c{number}") for number in range(times)]
    for one in executions:
        one.done = True
    return executions


class Ran:
    """An upstream that ran so much."""

    def __init__(self, ran: list[Execution]) -> None:
        self.executions = {"n": ran}


@pytest.mark.parametrize(
    ("one", "ran", "words"),
    [
        (seen(statuses={"poll": ["completed", "working"]}), done(), "I4: working seen after completed"),
        (seen(), done(2), "I3: run 2 times"),
        (seen(known=False, refused=True), done(), "I3: run though its creation was refused"),
        (seen(made=2), done(), "I3: created 2 times under one id"),
        (seen(ended_at=None), done(), "I5: it never ended"),
        (seen(ended_at=None, lost_sight=True), done(), "I2: told of, and not found before its end"),
        (
            seen(outcome=Outcome(status="completed", result=b'"n"')),
            [],
            "completed, but no execution has ended",
        ),
        (
            seen(outcome=Outcome(status="completed", result=b'"m"')),
            done(),
            "completed with a result that is not its own",
        ),
        (seen(outcome=Outcome(status="cancelled")), done(), "cancelled, but nobody had asked for it"),
        (seen(outcome=Outcome(status="failed", error="why")), done(), "failed without a fault: why"),
    ],
)
def test_each_check_can_fail(one: Seen, ran: list[Execution], words: str) -> None:
    upstreams: Any = {"plain": Ran(ran)}
    assert f"n: {words}" in complaints([one], upstreams, troubled=False)


def test_what_is_right_is_not_complained_of() -> None:
    right = seen(
        statuses={"poll": ["submitted", "working", "completed"], "wait": ["working"]},
        outcome=Outcome(status="completed", result=b'"n"'),
    )
    upstreams: Any = {"plain": Ran(done())}
    assert complaints([right], upstreams, troubled=False) == []


def test_time_passes_only_by_waiting() -> None:
    loop = VirtualLoop()

    async def sleep() -> float:
        await asyncio.sleep(86_400)
        return loop.time()

    assert run(loop, sleep()) == pytest.approx(86_400)


def test_who_waits_for_nothing_is_found_out() -> None:
    loop = VirtualLoop()

    async def wait() -> None:
        await asyncio.Event().wait()

    waiting = wait()
    with pytest.raises(Stuck, match="no timer runs"):
        run(loop, waiting)
