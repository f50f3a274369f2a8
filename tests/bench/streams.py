"""Idle sessions by the thousand on one replica: what they hold, and that each still hears."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tests.bench.contenders import Contender
from tests.bench.figures import Outcome
from tests.bench.load import Order
from tests.bench.scenarios import SETTLE, WARM_SESSIONS, Bench
from tests.bench.wire import WrongAnswer

# Open files beside the streams: the program's own, Redis, the handshakes.
SPARE: Final = 500


def raise_open_files() -> int:
    """Let this process, and those it starts, open as many files as they may; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 1_000_000 if hard == resource.RLIM_INFINITY else hard


async def measure_streams(
    bench: Bench, maker: Callable[[int], Awaitable[Contender]], *, watched: float
) -> Outcome:
    """Measure sessions that hold a GET stream open and say nothing for `watched` seconds.

    A stream takes two open files of the replica: the client's connection, and the one to the upstream,
    which is one of its `max_connections` (`maker` gets the number that is needed). At the end the upstream
    sends one notification down every stream, and every client must have it.
    """
    count = min(bench.pace.streams, (raise_open_files() - SPARE) // 2)
    title = f"{count} idle sessions with an open GET stream on one replica"
    outcome = Outcome("streams", title, "", {"gateway": []})
    if count < bench.pace.streams:
        outcome.notes.append(f"fewer than {bench.pace.streams}: the limit of open files is in the way")
    load = bench.load
    contender = await maker(count + SPARE)
    try:
        await load.order(Order("open", "idle", contender.target, WARM_SESSIONS))
        await asyncio.sleep(min(SETTLE, watched))
        before, cpu, began = contender.rss(), contender.cpu(), time.perf_counter()
        await load.order(Order("open", "idle", contender.target, count))
        opened, open_cpu = time.perf_counter() - began, contender.cpu() - cpu
        await asyncio.sleep(min(SETTLE, watched))
        after, cpu, began = contender.rss(), contender.cpu(), time.perf_counter()
        await asyncio.sleep(watched)
        spent = (contender.cpu() - cpu) / (time.perf_counter() - began)
        done = await load.order(Order("nudge"))
        await load.order(Order("close"))
    finally:
        await contender.close()
    if done.measured is None or done.measured.count != count + WARM_SESSIONS:
        raise WrongAnswer(f"not every stream was told: {done}")
    outcome.rounds["gateway"].append(
        {
            "session_kb": (after - before) / count / 1e3,
            "rss": after / 1e6,
            "opened": opened,
            "open_cpu": open_cpu / count * 1e3,
            "waiting_cpu": spent * 100,
            "answered_p50": done.measured.p50,
            "answered": done.measured.elapsed,
        }
    )
    outcome.notes.append(f"watched for {watched:g} s; then one notification went to each, and all had it")
    return outcome
