"""One line: the calls of a rule that this replica has waiting for turns, or making use of them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.aio.clock import Clock
from gateway.protocol.errors import StoreAway
from gateway.store.port import CROWDED, GIVEN, Ask, Asker, Line, Turned, TurnStore
from gateway.tasks.model import Scope


class TurnTools(Protocol):
    """What a line works with."""

    store: TurnStore
    asker: Asker
    clock: Clock

    def wake(self) -> None:
        """See to the lines soon."""
        ...

    def tell(self, line: TurnLine) -> None:
        """Tell how many turns there are of a line."""
        ...

    def unhear(self, turn: Turn) -> None:
        """Listen for a turn no more."""
        ...


class Turn:
    """The place of one call: it waits, has its turn, or is gone."""

    __slots__ = ("_given", "before", "line", "scope", "since", "ticket")

    def __init__(self, line: TurnLine, scope: Scope, ticket: str) -> None:
        self.line = line
        self.scope = scope
        self.ticket = ticket
        self.before = 0
        self.since: float | None = None
        self._given = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Turn {self.ticket} {'given' if self.given else f'behind {self.before}'}>"

    @property
    def given(self) -> bool:
        """Whether the call may be made."""
        return self._given.is_set()

    def give(self, now: float) -> None:
        """Let the call be made."""
        self.since = now
        self._given.set()

    async def mine(self) -> None:
        """Return when the call may be made."""
        await self._given.wait()

    def ring(self) -> None:
        """It may have been given."""
        self.line.ring(self.ticket)

    def leave(self) -> None:
        """Give the turn back, or leave the queue; a second time is nothing."""
        self.line.drop(self)


class TurnLine:
    """What this replica has in one line."""

    def __init__(self, name: Line, tools: TurnTools) -> None:
        self.name = name
        self._tools = tools
        self.turns: dict[str, Turn] = {}
        self._asking = set[str]()
        self._rung = set[str]()
        self._left: list[tuple[str, int | None]] = []
        self._look_at_all = False
        self.held = 0
        self._cut_off = False

    def __repr__(self) -> str:
        return f"<Line {self.name.pattern}: {self.held} held, {len(self.turns)} in all>"

    @property
    def dirty(self) -> bool:
        """Whether the store is to be asked or told something."""
        return bool(self._left or self._rung or self._look_at_all)

    def ring(self, ticket: str) -> None:
        """The turn of a ticket may have been given."""
        self._rung.add(ticket)
        self._tools.wake()

    def look_at_all(self) -> None:
        """Ask about all that is here, when next something is asked."""
        self._look_at_all = bool(self.turns)

    async def join(self, turn: Turn, bound: int | None) -> Turned:
        """Ask for a turn; raise `StoreAway`, and the ticket is given back then."""
        self.turns[turn.ticket] = turn
        self._asking.add(turn.ticket)
        try:
            found = await self._told([Ask("wait", turn.scope, turn.ticket)], bound)
        except BaseException:
            # It may have been taken all the same.
            self.drop(turn)
            raise
        finally:
            self._asking.discard(turn.ticket)
        if found.states[0] == CROWDED:
            del self.turns[turn.ticket]
            self._tools.unhear(turn)
        else:
            self._take(turn, found.states[0])
        if turn.ticket in self._rung:
            # The bell was faster than the answer.
            self._tools.wake()
        return found

    def drop(self, turn: Turn) -> None:
        """Let go of a turn."""
        if self.turns.pop(turn.ticket, None) is None:
            return
        took = None
        if turn.since is not None:
            self.held -= 1
            took = round((self._tools.clock.monotonic() - turn.since) * 1000)
        self._left.append((turn.ticket, took))
        self._tools.unhear(turn)
        self._tools.tell(self)
        self._tools.wake()

    async def settle(self) -> None:
        """Tell the store what was given back, and ask it what has been given; raise `StoreAway`."""
        # Who was cut off may have been given up by the others.
        self._look_at_all |= self._cut_off and bool(self.turns)
        self._cut_off = True
        await self._tell_left()
        await self._look()
        self._cut_off = False

    async def _tell_left(self) -> None:
        left, self._left = self._left, []
        if not left:
            return
        try:
            await self._tools.store.leave(self.name, self._tools.asker, left)
        except BaseException:
            self._left = left + self._left
            raise

    async def _look(self) -> None:
        rung, whole = self._rung, self._look_at_all
        self._rung, self._look_at_all = rung & self._asking, False
        settled = rung - self._asking
        names = list(self.turns) if whole else [name for name in settled if name in self.turns]
        if not names:
            return
        try:
            found = await self._ask(names, whole=whole)
        except BaseException:
            self._rung |= rung
            self._look_at_all |= whole
            raise
        self._hear(names, found)

    def _hear(self, names: list[str], found: Turned) -> None:
        for name, state in zip(names, found.states, strict=True):
            if (turn := self.turns.get(name)) is not None and name not in self._asking:
                self._take(turn, state)

    def _about(self, turn: Turn) -> Ask:
        kind = "known" if turn.ticket in self._asking else "hold" if turn.given else "wait"
        return Ask(kind, turn.scope, turn.ticket)

    async def _ask(self, names: list[str], *, whole: bool) -> Turned:
        asks = [self._about(self.turns[name]) for name in names]
        return await self._told(asks, None, whole=whole)

    async def _told(self, asks: list[Ask], bound: int | None, *, whole: bool = False) -> Turned:
        """Ask the store; where it does not know this replica, or not any more, say first all there is."""
        ask, asker = self._tools.store.ask, self._tools.asker
        settled = sum(one.ticket not in self._asking for one in asks)
        named = "all" if whole else "some" if len(self.turns) - len(self._asking) > settled else "new"
        found = await ask(self.name, asker, asks, bound=bound, named=named)
        if found is None:
            names = list(self.turns)
            self._hear(names, await self._ask(names, whole=True))
            found = await ask(self.name, asker, asks, bound=bound)
        if found is None:
            raise StoreAway("it forgets who asks")
        return found

    def _take(self, turn: Turn, state: int) -> None:
        if state == GIVEN and not turn.given:
            self.give(turn)
        elif state >= 0:
            turn.before = state
        self._tools.tell(self)

    def give(self, turn: Turn) -> None:
        """Let a call be made."""
        if self.turns.get(turn.ticket) is turn:
            self.held += 1
            turn.give(self._tools.clock.monotonic())
        self._tools.unhear(turn)

    def give_up(self) -> None:
        """Let go of all."""
        for turn in tuple(self.turns.values()):
            self.drop(turn)
