"""Connect to a host, the addresses racing as in Happy Eyeballs (RFC 8305); uvloop has no such option."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from itertools import zip_longest
from typing import Any, Final

from gateway.aio.spawn import Crew
from gateway.protocol.errors import UpstreamLost

_HEAD_START: Final = 0.25
# A peer that vanished without a word is noticed within about two minutes, however quiet its stream is.
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))

_Address = tuple[int, tuple[Any, ...]]


async def dial(host: str, port: int, seconds: float) -> socket.socket:
    """Return a connected socket that does not block; raise `UpstreamLost` (not sent) after `seconds`."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        async with asyncio.timeout(seconds):
            found = await _resolve(host, port)
            sock = await (_attempt(found[0]) if len(found) == 1 else _race(found))
    except TimeoutError:
        words = f"the upstream did not accept a connection within {seconds:g} s"
    except socket.gaierror:
        words = "the name of the upstream cannot be resolved"
    except ConnectionRefusedError:
        words = "the upstream refused the connection"
    except OSError as wrong:
        words = f"the upstream cannot be reached: {wrong.strerror or 'no reason given'}"
    else:
        return sock
    raise UpstreamLost(words, sent=False, where=where)


async def _resolve(host: str, port: int) -> list[_Address]:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port))]
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found: list[_Address] = list(dict.fromkeys((int(info[0]), info[4]) for info in infos))
    first = [one for one in found if one[0] == found[0][0]]
    other = [one for one in found if one[0] != found[0][0]]
    return [one for pair in zip_longest(first, other) for one in pair if one is not None]


async def _attempt(address: _Address) -> socket.socket:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def _outcome(address: _Address) -> socket.socket | OSError:
    try:
        return await _attempt(address)
    except OSError as wrong:
        return wrong


async def _race(found: list[_Address]) -> socket.socket:
    waiting = deque(found)
    tasks: list[asyncio.Task[socket.socket | OSError]] = []
    winner: socket.socket | None = None
    crew = Crew("dial")
    try:
        running: set[asyncio.Task[socket.socket | OSError]] = set()
        failure = OSError("the name has no address")
        while waiting or running:
            if waiting:
                tasks.append(crew.spawn(_outcome(waiting.popleft()), "attempt"))
                running.add(tasks[-1])
            done, running = await asyncio.wait(
                running, timeout=_HEAD_START if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for outcome in (task.result() for task in done):
                if isinstance(outcome, OSError):
                    failure = outcome
                elif winner is None:
                    winner = outcome
            if winner is not None:
                return winner
        raise failure
    finally:
        await crew.close()
        _close_losers(tasks, winner)


def _close_losers(tasks: list[asyncio.Task[socket.socket | OSError]], winner: socket.socket | None) -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            outcome = task.result()
            if isinstance(outcome, socket.socket) and outcome is not winner:
                outcome.close()
