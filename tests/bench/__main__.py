"""The command `python -m tests.bench`: measure, print the tables, write them as JSON where asked."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.bench import contenders
from tests.bench.contenders import Contender, Unavailable
from tests.bench.figures import Outcome, summary, table
from tests.bench.process import Child, free_port, start_module
from tests.bench.redis_process import find_server, start_redis
from tests.bench.scale import SCALE, measure_scale
from tests.bench.scenarios import BRIDGED, CALLS, Bench, Pace, measure_calls, measure_idle
from tests.bench.tasks import Maker, measure_tasks
from tests.bench.waiting import measure_waiters, measure_wakes
from tests.bench.wire import Target, WrongAnswer

NAMES: Final = ("direct", "bare-uvloop", "bare-asyncio", "gateway", "fastmcp4")
SCENARIOS: Final = (
    *(scenario.name for scenario in (*CALLS, *BRIDGED)),
    "idle",
    "tasks",
    "waiters",
    "wakes",
    *SCALE,
)
PACKAGES: Final = ("aiohttp", "uvloop", "httptools", "msgspec", "redis", "mcp")
QUICK: Final = Pace(
    rounds=2,
    seconds=0.35,
    warm=0.1,
    sessions=200,
    waiters=200,
    replicas=(1, 2),
    clients=8,
    stored=2_000,
    scopes=20,
    streams=50,
    kept=100,
)
FULL: Final = Pace(rounds=5, seconds=1.5, warm=0.3, sessions=500, waiters=10_000)

Loop = Literal["asyncio", "uvloop"]


class Options(msgspec.Struct):
    """What was asked for on the command line."""

    quick: bool
    only: list[str]
    contenders: list[str]
    pace: Pace
    json: Path | None


def options(words: Sequence[str] | None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look, in under a minute")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario; may be repeated")
    parser.add_argument("--contender", action="append", choices=NAMES, help="this one; may be repeated")
    parser.add_argument("--rounds", type=int, help="rounds of each scenario")
    parser.add_argument("--seconds", type=float, help="length of a round")
    parser.add_argument("--sessions", type=int, help="idle sessions")
    parser.add_argument("--waiters", type=int, help="blocked requests for a result")
    parser.add_argument("--stored", type=int, help="stored tasks, a hundred to a scope")
    parser.add_argument("--streams", type=int, help="idle sessions on one replica")
    parser.add_argument("--kept", type=int, help="stored tasks whose memory is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    found = parser.parse_args(words)
    numbers = ("rounds", "seconds", "sessions", "waiters", "stored", "streams", "kept")
    asked = {key: getattr(found, key) for key in numbers}
    if found.stored is not None:
        asked["scopes"] = max(1, found.stored // 100)
    pace = msgspec.structs.replace(
        QUICK if found.quick else FULL, **{key: value for key, value in asked.items() if value is not None}
    )
    usual = [name for name in NAMES if not (found.quick and name == "bare-asyncio")]
    return Options(found.quick, found.only or list(SCENARIOS), found.contender or usual, pace, found.json)


def say(text: str) -> None:
    """Print at once: a run takes minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def machine() -> dict[str, str]:
    """Return what the numbers depend on."""
    found = {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class Session:
    """One run: what is started for it, and what it measured."""

    def __init__(self, asked: Options, stack: contextlib.AsyncExitStack) -> None:
        self._asked = asked
        self._stack = stack
        self._redis: tuple[Child, int] | None = None
        self.outcomes: list[Outcome] = []

    async def run(self) -> None:
        """Start what is needed, measure what was asked for, print each table when it is done."""
        port = free_port()
        upstream = await self._keep(await start_module("fast_upstream", str(port)))
        load = await self._keep(await start_module("load"))
        self._bench = Bench(load, upstream, self._asked.pace)
        self._target = Target(port, "/mcp")
        await self._start_redis()
        makers = self._makers()
        wanted = [scenario for scenario in CALLS if scenario.name in self._asked.only]
        running: list[Contender] = []
        if wanted:
            running = [one for maker in makers.values() if (one := await self._start(maker)) is not None]
        for scenario in wanted:
            self._add(await measure_calls(self._bench, scenario, running, _base(running)))
        await self._bridged()
        if "idle" in self._asked.only:
            alone = {name: maker for name, maker in makers.items() if name != "direct"}
            rounds = 1 if self._asked.quick else 3
            if alone:
                base = _base(running) or next(iter(alone))
                self._add(await measure_idle(self._bench, alone, base, rounds))
        await self._tasks()
        await self._waiting()
        await self._scale()

    async def _start_redis(self) -> None:
        command = find_server()
        if command is None:
            say("no Redis or Valkey server was found: the gateway keeps its tasks in memory")
            return
        child, port = await start_redis(command)
        await self._keep(child)
        self._redis = (child, port)

    def _makers(self) -> dict[str, Callable[[], Awaitable[Contender]]]:
        async def direct() -> Contender:
            return Contender("direct", self._target, [self._bench.upstream])

        def bare(loop: Loop) -> Callable[[], Awaitable[Contender]]:
            return lambda: contenders.start_bare(self._target, loop)

        async def gateway() -> Contender:
            store = "memory://" if self._redis is None else f"redis://127.0.0.1:{self._redis[1]}/0"
            return await contenders.start_gateway(self._target, store)

        every = {
            "direct": direct,
            "bare-uvloop": bare("uvloop"),
            "bare-asyncio": bare("asyncio"),
            "gateway": gateway,
        }
        return {name: maker for name, maker in every.items() if name in self._asked.contenders}

    async def _start(self, maker: Callable[[], Awaitable[Contender]]) -> Contender | None:
        try:
            contender = await maker()
        except Unavailable as wrong:
            say(f"the gateway is not measured: {wrong}")
            return None
        if contender.name != "direct":
            self._stack.push_async_callback(contender.close)
        return contender

    async def _bridged(self) -> None:
        wanted = [scenario for scenario in BRIDGED if scenario.name in self._asked.only]
        maker = self._makers().get("gateway")
        gateway = None if maker is None or not wanted else await self._start(maker)
        if gateway is None:
            return
        ways = contenders.over_the_bridge(gateway)
        base = ways[0].name
        bare = self._makers().get("bare-uvloop")
        if bare is not None and (yardstick := await self._start(bare)) is not None:
            ways.append(yardstick)
        for scenario in wanted:
            self._add(await measure_calls(self._bench, scenario, ways, base))

    async def _tasks(self) -> None:
        if "tasks" not in self._asked.only:
            return
        if self._redis is None:
            say("tasks: not measured without Redis")
            return
        makers: dict[str, Maker] = {}
        if "gateway" in self._asked.contenders:
            makers["gateway"] = self._gateway_in_dialects
        if "fastmcp4" in self._asked.contenders:
            makers["fastmcp4"] = _fastmcp4
            if not self._asked.quick:
                try:
                    await contenders.install_fastmcp4()
                except Unavailable as wrong:
                    say(f"fastmcp4 cannot be installed: {wrong}")
        if makers:
            self._add(
                await measure_tasks(self._bench, makers, self._redis, count_all=not self._asked.quick)
            )

    async def _waiting(self) -> None:
        if self._redis is None or "gateway" not in self._asked.contenders:
            return
        port = self._redis[1]
        if "waiters" in self._asked.only:
            watched = 0.5 if self._asked.quick else 20.0
            self._add(await measure_waiters(self._bench, self._gateway_on, port, watched=watched))
        if "wakes" in self._asked.only:
            for outcome in await measure_wakes(self._bench, self._gateway_on, port):
                self._add(outcome)

    async def _scale(self) -> None:
        wanted = [name for name in SCALE if name in self._asked.only]
        if wanted and self._redis is not None and "gateway" in self._asked.contenders:
            await measure_scale(self._bench, self._target, wanted, self._add, say)

    async def _gateway_on(self, store: str) -> Contender:
        return await contenders.start_gateway(self._target, store)

    async def _gateway_in_dialects(self, store: str) -> list[Contender]:
        return contenders.in_dialects(await self._gateway_on(store))

    async def _keep(self, child: Child) -> Child:
        self._stack.push_async_callback(child.close)
        return child

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        say("\n" + table(outcome))


async def _fastmcp4(store: str) -> list[Contender]:
    return [await contenders.start_fastmcp4(store)]


def _base(running: Sequence[Contender]) -> str:
    """Return the bare proxy on the event loop that the gateway runs on, else the first there is."""
    bares = [one.name for one in running if one.name.startswith("bare-")]
    for one in running:
        if one.name == "gateway":
            same = "bare-uvloop" if one.children[0].uses_uvloop() else "bare-asyncio"
            if same in bares:
                return same
    return bares[0] if bares else ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


async def main(words: Sequence[str] | None = None) -> int:
    """Run the bench; 1 where a contender answered wrongly, whatever else was measured."""
    asked = options(words)
    if (running := asyncio.current_task()) is not None:
        # Ended from outside, the bench still ends what it started.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    found = machine()
    say(", ".join(f"{name} {value}" for name, value in found.items()))
    pace = asked.pace
    say(f"{pace.rounds} rounds of {pace.seconds} s; cells: median, ratio [least-most over the rounds]")
    async with contextlib.AsyncExitStack() as stack:
        session = Session(asked, stack)
        try:
            await session.run()
        except WrongAnswer as wrong:
            say(f"\nA WRONG ANSWER: {wrong}")
            return 1
        finally:
            if asked.json is not None:
                data = {"machine": found, "pace": pace, "outcomes": summary(session.outcomes)}
                asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(data)))
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
