"""Turns of calls that may not all run at the same time, on whichever replicas they are.

The store decides; a replica holds `Turn`s, hears of those that are given by the bus, and looks at all that
it has three times per lease, which also keeps it alive there. With the store away those who wait wait on:
another replica may have their task by now (I3). What it is told when it is back puts all right again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.service.line import Turn, TurnLine
from gateway.service.order import Order
from gateway.store.port import CROWDED, Asker, Bus, Line, Turned, TurnStore, bell_of
from gateway.tasks.policy import Policy, PolicyBook

_log: Final = logging.getLogger("gateway.service")
_FAREWELL_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 1.0
Tell = Callable[[Line, int, int], None]
"""Hears how many turns of a line this replica holds, and how many of its calls wait."""


class Crowded(msgspec.Struct, frozen=True):
    """Creation refused: as many wait for a turn as may; about when there is room again, in seconds."""

    bound: int
    seconds: float


class Turns:
    """All turns of this replica."""

    def __init__(
        self, replica: str, store: TurnStore, bus: Bus, clock: Clock, lease_ms: int, tell: Tell
    ) -> None:
        self.asker = Asker(replica, lease_ms)
        self.store = store
        self.clock = clock
        self._bus = bus
        self._tell = tell
        self._crew = Crew("turns")
        self._lines: dict[tuple[str, str], TurnLine] = {}
        self._last = 0
        self._woken = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Turns {list(self._lines.values())}>"

    async def queue(self, order: Order, *, anyway: bool = False) -> Turn | Crowded | None:
        """Return the place of a call, `None` where it need not wait; raise `StoreAway`.

        With `anyway` it is taken into a full queue too: its task exists. What is on its way already
        (`order.early`) waits for no turn.
        """
        if not _waits(order):
            return None
        turn, policy = self._new(order), order.policy
        self._bus.hear(bell_of(self.asker.replica, turn.ticket), turn.ring)
        found = await turn.line.join(turn, None if anyway else policy.max_queued)
        if found.states[0] == CROWDED:
            return Crowded(policy.max_queued, _seconds(found, policy))
        return turn

    def hold(self, order: Order) -> Turn | None:
        """Return the turn of a call that goes on, which waits for nobody and is counted from now on."""
        if not _waits(order):
            return None
        turn = self._new(order)
        turn.line.turns[turn.ticket] = turn
        turn.line.give(turn)
        turn.ring()
        self.tell(turn.line)
        return turn

    @asynccontextmanager
    async def take(self, order: Order, *, goes_on: bool = False) -> AsyncGenerator[None]:
        """Have the turn of a call whose task exists: at once where it `goes_on`; raise `StoreAway`."""
        turn = self.hold(order) if goes_on else await self.queue(order, anyway=True)
        if not isinstance(turn, Turn):
            yield
            return
        try:
            await turn.mine()
            yield
        finally:
            turn.leave()

    async def close(self) -> None:
        """Let go of everything, so that other replicas need not wait for the lease."""
        await self._crew.close()
        for line in self._lines.values():
            line.give_up()
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await asyncio.gather(*(line.settle() for line in self._lines.values() if line.dirty))
        except (StoreAway, TimeoutError) as away:
            _log.debug("turns end with their lease: %s", away)

    def reconfigure(self, books: Mapping[str, PolicyBook]) -> None:
        """Let those who wait go by other rules, too; one that is there no more bounds nobody.

        The calls of an upstream that is there no more go on as they were.
        """
        for (upstream, pattern), line in self._lines.items():
            if (book := books.get(upstream)) is not None:
                rule = book.named(pattern) or Policy()
                line.name = Line(upstream, pattern, rule.max_concurrent, rule.max_concurrent_per_scope)
                line.look_at_all()
        self.wake()

    def wake(self) -> None:
        """See to the lines soon."""
        self._woken.set()

    def tell(self, line: TurnLine) -> None:
        """Tell how many turns there are of a line."""
        self._tell(line.name, line.held, len(line.turns) - line.held)

    def unhear(self, turn: Turn) -> None:
        """Listen for a turn no more."""
        self._bus.unhear(bell_of(self.asker.replica, turn.ticket), turn.ring)

    def _new(self, order: Order) -> Turn:
        policy, scope = order.policy, order.new.key.scope
        name = Line(scope.upstream, policy.pattern, policy.max_concurrent, policy.max_concurrent_per_scope)
        line = self._lines.get((name.upstream, name.pattern))
        if line is None:
            line = self._lines[name.upstream, name.pattern] = TurnLine(name, self)
        # Another rule may have come with a new configuration.
        line.name = name
        if not len(self._crew):
            self._crew.keep(self._tend, "tend")
            self._crew.keep(self._look, "look")
        self._last += 1
        return Turn(line, scope, str(self._last))

    async def _tend(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            lines = [line for line in self._lines.values() if line.dirty]
            found = await asyncio.gather(*(line.settle() for line in lines), return_exceptions=True)
            wrongs = [wrong for wrong in found if wrong is not None]
            for wrong in wrongs:
                if not isinstance(wrong, StoreAway):
                    raise wrong
            if wrongs:
                _log.debug("turns are asked for later: %s", wrongs[0])
                await self.clock.sleep(_AGAIN_SECONDS)
                self.wake()

    async def _look(self) -> None:
        """Renew what is here, and find what no bell told of, for ever."""
        while True:
            await self.clock.sleep(self.asker.lease_ms / 3000)
            for line in self._lines.values():
                line.look_at_all()
            self.wake()


def _waits(order: Order) -> bool:
    return order.policy.takes_turns and order.early is None


def _seconds(found: Turned, policy: Policy) -> float:
    """Return about how long the queue takes to be worked off; the poll interval where nobody knows."""
    if found.mean_ms is None or policy.max_concurrent is None:
        return policy.poll_interval / 1000
    estimate = found.waiting * found.mean_ms / policy.max_concurrent
    return max(policy.poll_interval, min(estimate, policy.timeout)) / 1000
