"""The doorman: holds the listening sockets and hands each connection to the worker that has the fewest.

Each connection goes to one worker, chosen here: with a socket that all listen on, or one for each on
the same port, the kernel chooses, and favours one worker two or three times over another. And those
that wait behind a worker that has died would be lost with it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Final, Protocol

_log: Final = logging.getLogger("gateway.workers")
_BACKLOG: Final = 1024
_AT_ONCE: Final = 64
_AGAIN_SECONDS: Final = 0.1


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of a host, all on one port; raise `OSError` where it is taken."""
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _name, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            bound.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # A free port is chosen once, by the first.
            chosen = port or (bound[0].getsockname()[1] if len(bound) > 1 else 0)
            one.bind((address[0], chosen, *address[2:]))
    except OSError:
        for one in bound:
            one.close()
        raise
    return bound


class Taker(Protocol):
    """Who connections are handed to: a worker."""

    @property
    def state(self) -> str:
        """`serving` and `leaving` take connections."""
        ...

    @property
    def silent(self) -> float:
        """For how many seconds nothing was heard; 0 where lately."""
        ...

    @property
    def connections(self) -> int:
        """How many connections there are already."""
        ...

    def hand(self, connection: socket.socket) -> bool:
        """Take a connection; tell whether there was room."""
        ...


class Doorman:
    """Lets clients in while somebody serves them; `workers` yields the processes there are."""

    def __init__(self, doors: list[socket.socket], workers: Callable[[], Iterable[Taker]]) -> None:
        self._doors = doors
        self._workers = workers
        self._turn = 0
        self._turns: dict[Taker, int] = {}
        self._open = False
        self._in_hand: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None
        self._listening = False

    def __repr__(self) -> str:
        return f"<Doorman of port {self.port}: {'lets in' if self._open else 'waits'}>"

    @property
    def port(self) -> int:
        """The port, which was chosen by the machine where 0 was asked for."""
        return int(self._doors[0].getsockname()[1]) if self._doors else 0

    def look(self) -> None:
        """Let clients in or have them wait in the queue, as there is a worker or none."""
        somebody = self._best() is not None
        if somebody and not self._listening:
            for door in self._doors:
                door.listen(_BACKLOG)
            self._listening = True
        self._turns = {worker: turn for worker, turn in self._turns.items() if worker.state != "ended"}
        if self._in_hand is not None and self._hand_over(self._in_hand):
            self._in_hand = None
        if somebody and self._in_hand is not None:
            self._pause()
        else:
            self._set(somebody)

    def close(self) -> None:
        """Let nobody in any more."""
        self._set(False)
        if self._again is not None:
            self._again.cancel()
        if self._in_hand is not None:
            self._in_hand.close()
            self._in_hand = None
        for door in self._doors:
            door.close()
        self._doors = []

    def _set(self, is_open: bool) -> None:
        if is_open == self._open:
            return
        self._open = is_open
        loop = asyncio.get_running_loop()
        for door in self._doors:
            if is_open:
                loop.add_reader(door, self._admit, door)
            else:
                loop.remove_reader(door)

    def _admit(self, door: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = door.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as wrong:
                _log.error("no connection can be taken: %s", wrong)
                self._pause()
                return
            if not self._hand_over(connection):
                self._in_hand = connection
                self._pause()
                return

    def _hand_over(self, connection: socket.socket) -> bool:
        refused: set[Taker] = set()
        while (worker := self._best(refused)) is not None:
            if worker.hand(connection):
                self._turn += 1
                self._turns[worker] = self._turn
                return True
            refused.add(worker)
        return False

    def _pause(self) -> None:
        """Look again in a moment; meanwhile clients wait in the kernel's queue."""
        self._set(False)
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.look)

    def _best(self, refused: Iterable[Taker] = ()) -> Taker | None:
        """Return whom the next connection goes to: one that leaves or is silent comes last."""
        able = [
            one for one in self._workers() if one.state in ("serving", "leaving") and one not in refused
        ]
        return min(able, key=self._order, default=None)

    def _order(self, worker: Taker) -> tuple[bool, bool, int, int]:
        return (
            worker.silent > 0,
            worker.state == "leaving",
            worker.connections,
            self._turns.get(worker, 0),
        )
