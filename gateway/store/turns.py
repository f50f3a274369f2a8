"""Turns across replicas, on Redis: two scripts over the keys of one line (see `lua/shared_turns.lua`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from gateway.store import scripts
from gateway.store.keys import Keys, owner_name
from gateway.store.lanes import Reply
from gateway.store.port import Ask, Asker, Line, Named, Turned
from gateway.store.scripts import Words

_KINDS: Final = {"wait": b"w", "hold": b"h", "known": b"k"}


class Asking(Protocol):
    """Sends commands to the store and returns their replies."""

    async def __call__(self, operation: str, *commands: Words) -> list[Reply]:
        """Send them together; raise `StoreAway`."""
        ...


class RedisTurns:
    """The `TurnStore` of `gateway.store.port`."""

    def __init__(self, keys: Keys, ask: Asking) -> None:
        self._keys = keys
        self._ask = ask

    def __repr__(self) -> str:
        return "<RedisTurns>"

    async def ask(
        self,
        line: Line,
        asker: Asker,
        asks: Sequence[Ask],
        *,
        bound: int | None = None,
        named: Named = "new",
    ) -> Turned | None:
        """Ask for turns, tell of those in use, and stay alive; one round trip."""
        told = [
            word for one in asks for word in (_KINDS[one.kind], self._keys.tag(one.scope), _out(one.ticket))
        ]
        words = scripts.TURN_ASK.call(
            self._keys.line(line.upstream, line.pattern),
            *self._head(line, asker),
            _number(bound),
            named.encode(),
            *told,
        )
        (reply,) = await self._ask("ask_turns", words)
        if reply is None:
            return None
        waiting, mean, *states = reply
        return Turned(waiting, None if mean < 0 else mean, states)

    async def leave(self, line: Line, asker: Asker, left: Sequence[tuple[str, int | None]]) -> None:
        """Give turns back, or leave the queue; one round trip."""
        told = [word for ticket, took in left for word in (_out(ticket), _number(took))]
        keys = self._keys.line(line.upstream, line.pattern)
        await self._ask("leave_turns", scripts.TURN_LEAVE.call(keys, *self._head(line, asker), *told))

    def _head(self, line: Line, asker: Asker) -> tuple[bytes, ...]:
        bounds = _number(line.at_once), _number(line.per_scope)
        return self._keys.wake, owner_name(asker.replica), b"%d" % asker.lease_ms, *bounds


def _out(ticket: str) -> bytes:
    return ticket.encode()


def _number(value: int | None) -> bytes:
    return b"" if value is None else b"%d" % value
