"""One stdio server with tasks, for a host that starts it: builds the pipe; no logic."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Final

from gateway.app import House
from gateway.crossing.pipe_link import PipeLink
from gateway.front.stdio import StdioDoor
from gateway.protocol.errors import UpstreamLost
from gateway.session.pipe import Outlet, Pipe
from gateway.slices import command_options, in_place
from gateway.upstream.late import LateLink
from gateway.upstream.stdio import open_pipe
from gateway.upstream.warden import Warden

_log: Final = logging.getLogger("gateway")


async def _settle(link: PipeLink, pipe: Pipe, house: House) -> None:
    """Let what is in flight be answered and running tasks finish, within the drain time."""
    seconds = house.config.drain / 1000
    draining = house.crew.spawn(house.service.drain(seconds), "drain")
    house.end_subscriptions()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await link.settled()
            await pipe.settled()
    await draining


async def _forward(pipe: Pipe) -> UpstreamLost | None:
    """Pass on what the server says until it ends; return why it could not be started."""
    try:
        await pipe.forward_upstream()
    except UpstreamLost as lost:
        return lost
    return None


def _code(lost: UpstreamLost | None) -> int:
    """Return the exit code after a server that ended before its client; raise why it never began."""
    if lost is not None:
        raise lost
    _log.error("the server ended before its client")
    return 1


async def wrap(house: House, stop: asyncio.Event) -> int:
    """Serve the client on standard input until that ends, then let running tasks finish.

    Returns the exit code: 1 where the server ended before its client. Raises `UpstreamLost` where
    the server cannot be started.
    """
    name, served = next(iter(house.served.items()))
    warden = Warden()
    wrong = await served.upstream.check()
    if wrong is not None:
        raise UpstreamLost(wrong)
    options = in_place(command_options(name, house.config))
    late = LateLink(lambda: open_pipe(options, house.clock, warden))
    link = PipeLink(late, served.crossing, house.crew)
    door = StdioDoor(house.config.limits.request_bytes)
    await door.open()
    outlet = Outlet(door.write, partial(house.count_message, name))
    pipe = Pipe(house.router, served, link, house.principals, outlet)
    upstream = house.crew.spawn(_forward(pipe), "from the server")
    asks = house.crew.spawn(pipe.forward_asks(house.service), "asks")
    reading = house.crew.spawn(door.read_all(pipe), "from the client")
    stopping = house.crew.spawn(stop.wait(), "stop")
    try:
        await asyncio.wait([reading, upstream, stopping], return_when=asyncio.FIRST_COMPLETED)
        alone = upstream.done() and not reading.done()
        if reading.done():
            reading.result()
            house.service.forsake()
        stop.clear()
        settling = house.crew.spawn(_settle(link, pipe, house), "settle")
        hurry = house.crew.spawn(stop.wait(), "hurry")
        await asyncio.wait([settling, hurry], return_when=asyncio.FIRST_COMPLETED)
        await house.service.close()
        await pipe.drain(1.0)
    finally:
        for task in (asks, reading, stopping):
            task.cancel()
        with suppress(UpstreamLost):
            await link.close()
        await asyncio.wait([upstream], timeout=1.0)
        await pipe.close()
        await warden.close()
    return _code(upstream.result()) if alone else 0
