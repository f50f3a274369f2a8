"""Whatever is asked of the turns in whatever order, the scripts give them as a small model does."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.store.link import open_link
from gateway.store.port import CROWDED, GIVEN, Ask, Asker, Line
from gateway.store.redis import RedisStore
from gateway.tasks.model import Scope

Verb = Literal["wait", "leave", "hold", "restate", "leave_all"]
Who = tuple[int, int]
"""A replica's number and its ticket's."""
Step = tuple[Verb, int, int]
"""What is done, on which replica, and a number: of a scope, or of a ticket among those there are."""

_SCOPES = [Scope("reports", f"s{n}") for n in range(3)]
_REPLICAS = 2
_VERBS: tuple[Verb, ...] = (
    "wait",
    "wait",
    "wait",
    "wait",
    "leave",
    "leave",
    "leave",
    "hold",
    "restate",
    "leave_all",
)
_STEPS = st.lists(
    st.tuples(st.sampled_from(_VERBS), st.integers(0, _REPLICAS - 1), st.integers(0, 11)), max_size=40
)
_BOUNDS = st.tuples(
    st.one_of(st.none(), st.integers(1, 3)), st.one_of(st.none(), st.integers(1, 2)), st.integers(0, 4)
)


@dataclass
class Model:
    """One line as it should be: a queue for each scope, and a ring of those that may be next."""

    most: int | None
    most_of_scope: int | None
    bound: int
    held: dict[Who, int] = field(default_factory=dict[Who, int])
    queues: dict[int, deque[Who]] = field(default_factory=dict[int, deque[Who]])
    ring: list[int] = field(default_factory=list[int])

    def may(self, scope: int) -> bool:
        return self.most_of_scope is None or Counter(self.held.values())[scope] < self.most_of_scope

    def room(self) -> bool:
        return self.most is None or len(self.held) < self.most

    def waiting(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def line_up(self, scope: int) -> None:
        if scope not in self.ring and self.queues.get(scope) and self.may(scope):
            self.ring.append(scope)

    def wait(self, who: Who, scope: int) -> bool:
        """Take one into the queue; tell whether it was taken."""
        full = self.waiting() >= self.bound
        crowded = self.waiting() >= 2 * self.bound or bool(self.queues.get(scope))
        if full and crowded and not (self.room() and self.may(scope)):
            return False
        self.queues.setdefault(scope, deque()).append(who)
        self.line_up(scope)
        self.pass_on()
        return True

    def leave(self, who: Who) -> None:
        for scope, queue in self.queues.items():
            if who in queue:
                queue.remove(who)
                if not queue and scope in self.ring:
                    self.ring.remove(scope)
        if (had := self.held.pop(who, None)) is not None:
            self.line_up(had)

    def pass_on(self) -> None:
        while self.ring and self.room():
            scope = self.ring.pop(0)
            self.held[self.queues[scope].popleft()] = scope
            self.line_up(scope)

    def before(self, who: Who) -> int:
        """How many are about to go before one that waits."""
        scope = next(scope for scope, queue in self.queues.items() if who in queue)
        own = self.queues[scope].index(who)
        others = self.waiting() - len(self.queues[scope])
        return own + min(others, max(len(self.ring) - 1, 0) * (own + 1))

    def of(self, replica: int) -> list[tuple[Who, int, bool]]:
        """What a replica has: who, of which scope, and whether it has its turn."""
        waiting = [(who, scope, False) for scope, queue in self.queues.items() for who in queue]
        both = [(who, scope, True) for who, scope in self.held.items()] + waiting
        return sorted(one for one in both if one[0][0] == replica)


class Play:
    """The same steps on the model and on the scripts."""

    def __init__(self, store: RedisStore, model: Model) -> None:
        self.store = store
        self.model = model
        self.line = Line("reports", "p", model.most, model.most_of_scope)
        self.last = 0

    async def step(self, verb: Verb, replica: int, number: int) -> None:
        asker = Asker(f"r{replica}", 60_000)
        if verb == "wait":
            await self._wait(asker, replica, number % len(_SCOPES))
        elif verb == "hold":
            self.last += 1
            scope = number % len(_SCOPES)
            self.model.held[replica, self.last] = scope
            await self.store.turns.ask(self.line, asker, [Ask("hold", _SCOPES[scope], str(self.last))])
        elif verb == "leave":
            if there := self.model.of(replica):
                who = there[number % len(there)][0]
                self.model.leave(who)
                self.model.pass_on()
                await self.store.turns.leave(self.line, asker, [(str(who[1]), 1)])
        elif verb == "restate":
            await self._compare(replica, named_all=True)
        else:
            # Turns are given on when all is told.
            leaving = [who for who, _, _ in self.model.of(replica)]
            for who in leaving:
                self.model.leave(who)
            self.model.pass_on()
            await self.store.turns.leave(self.line, asker, [(str(who[1]), None) for who in leaving])

    async def _wait(self, asker: Asker, replica: int, scope: int) -> None:
        self.last += 1
        who = (replica, self.last)
        taken = self.model.wait(who, scope)
        asks = [Ask("wait", _SCOPES[scope], str(self.last))]
        found = await self.store.turns.ask(self.line, asker, asks, bound=self.model.bound)
        assert found is not None
        if not taken:
            assert found.states == [CROWDED]
        elif who in self.model.held:
            assert found.states == [GIVEN]
        else:
            assert found.states == [self.model.before(who)]
        assert found.waiting == self.model.waiting()

    async def _compare(self, replica: int, *, named_all: bool) -> None:
        there = self.model.of(replica)
        asks = [
            Ask("hold" if given and named_all else "wait", _SCOPES[scope], str(who[1]))
            for who, scope, given in there
        ]
        named = "all" if named_all else "new"
        found = await self.store.turns.ask(self.line, Asker(f"r{replica}", 60_000), asks, named=named)
        assert found is not None
        assert [state == GIVEN for state in found.states] == [given for _, _, given in there]
        assert found.waiting == self.model.waiting()

    async def check(self) -> None:
        for replica in range(_REPLICAS):
            await self._compare(replica, named_all=False)


async def _play(url: str, bounds: tuple[int | None, int | None, int], steps: list[Step]) -> None:
    store = RedisStore(open_link(url))
    try:
        play = Play(store, Model(*bounds))
        for replica in range(_REPLICAS):
            await store.turns.ask(play.line, Asker(f"r{replica}", 60_000), [], named="all")
        for verb, replica, number in steps:
            await play.step(verb, replica, number)
            await play.check()
        for replica in range(_REPLICAS):
            await store.turns.ask(play.line, Asker(f"r{replica}", 60_000), [], named="all")
    finally:
        await store.close()


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(bounds=_BOUNDS, steps=_STEPS)
def test_any_sequence_of_questions_gives_turns_as_the_model_does(
    url: str, bounds: tuple[int | None, int | None, int], steps: list[Step]
) -> None:
    asyncio.run(_play(url, bounds, steps))
