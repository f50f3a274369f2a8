"""The held sessions of one caller, and the calls that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.crossing.held import HeldSession
from gateway.crossing.port import Caller
from gateway.protocol.errors import GatewayError
from gateway.protocol.headers import Headers


class Turn:
    """One call that waits; `only` is the session that it must have, where it must have that one."""

    def __init__(self, holder: object, headers: Headers, only: HeldSession | None = None) -> None:
        self.holder = holder
        self.headers = headers
        self.only = only
        self.given: asyncio.Future[HeldSession] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Turn {'over' if self.given.done() else 'waiting'}>"

    def fail(self, wrong: GatewayError) -> None:
        """End the waiting with an error."""
        if not self.given.done():
            self.given.set_exception(wrong)
            # Who waited may have been cancelled; then nobody is to be told.
            self.given.exception()


class Shelf:
    """Sessions of one key. A session that serves one call at a time is free for its holder alone."""

    def __init__(self, key: bytes, caller: Caller) -> None:
        self.key = key
        self.caller = caller
        self.sessions: list[HeldSession] = []
        self.turns: deque[Turn] = deque()
        self.opening = False

    def __repr__(self) -> str:
        return f"<Shelf {len(self.sessions)} sessions, {len(self.turns)} waiting>"

    @property
    def empty(self) -> bool:
        """Whether it can be thrown away."""
        return not (self.sessions or self.turns or self.opening)

    def any(self) -> HeldSession | None:
        """Return a usable session, busy or not; rather one that is listened to."""
        found = None
        for one in self.sessions:
            if one.usable:
                if one.listeners:
                    return one
                found = found or one
        return found

    def free(self, holder: object, only: HeldSession | None) -> HeldSession | None:
        """Return a session that a call may take now."""
        for one in self.sessions:
            if only is not None and one is not only:
                continue
            if one.usable and (not one.carrier.exclusive or one.holder in (None, holder)):
                return one
        return None

    def serve(self) -> bool:
        """Give sessions to those who wait, in order; tell whether somebody waits for any session still."""
        waiting: deque[Turn] = deque()
        for turn in self.turns:
            if turn.given.done():
                continue
            if turn.only is not None and turn.only not in self.sessions:
                turn.only = None
            found = self.free(turn.holder, turn.only)
            if found is None:
                waiting.append(turn)
            else:
                found.hold(turn.holder)
                turn.given.set_result(found)
        self.turns = waiting
        return any(turn.only is None for turn in waiting)

    def fail(self, wrong: GatewayError) -> None:
        """End the waiting of all that wait for any session."""
        for turn in self.turns:
            if turn.only is None:
                turn.fail(wrong)
        self.turns = deque(turn for turn in self.turns if not turn.given.done())
