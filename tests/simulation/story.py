"""One simulation from its seed: clients, faults, an end at which all is well again, and what was wrong."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from random import seed as seed_all
from typing import Final, Literal

import msgspec

from gateway.store.health import RANDOM
from gateway.tasks.model import DialectName, Scope
from tests.simulation.checks import complaints
from tests.simulation.clients import Client
from tests.simulation.faults import KINDS, Faults
from tests.simulation.loop import VirtualLoop, run
from tests.simulation.orders import Plan
from tests.simulation.world import World, world_of

_DIALECTS: Final[tuple[DialectName, ...]] = ("a", "b", "c")
_SECONDS: Final = 25.0
# Keep-alive, and the slack of what sweeps up.
_AFTER: Final = 45.0
Weather = Literal["calm", "lossy", "stormy"]
_WEATHERS: Final[tuple[Weather, ...]] = ("calm", "lossy", "stormy", "stormy")


class _Failures(logging.Handler):
    """Keeps what failed without anybody to hear of it: no fault may lead to that."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record that has a traceback."""
        if record.exc_info:
            self.words.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Told(msgspec.Struct):
    """How a simulation went: what was wrong, what befell the replicas, how much was done."""

    seed: int
    wrong: list[str]
    faults: list[tuple[float, str]]
    clients: list[Client]
    steps: int
    ends: dict[str, int]


def simulate(
    seed: int, *, clients: int = 12, kinds: tuple[str, ...] = KINDS, weather: Weather | None = None
) -> Told:
    """Run the simulation of a seed."""
    # What spreads load in the gateway need be no other in a replay.
    seed_all(seed)
    RANDOM.seed(seed)
    loop, failures = VirtualLoop(), _Failures()
    log = logging.getLogger("gateway")
    log.addHandler(failures)
    try:
        told = run(loop, _simulate(loop, seed, clients, kinds, weather))
    finally:
        log.removeHandler(failures)
    told.wrong += failures.words
    return told


async def _simulate(
    loop: VirtualLoop, seed: int, number: int, kinds: tuple[str, ...], weather: Weather | None
) -> Told:
    random = Random(seed)
    weather = weather or random.choice(_WEATHERS)
    losses = 0.0 if weather == "calm" else random.choice((0.002, 0.01, 0.05))
    async with world_of(loop, random, losses, random.randrange(2, 4)) as world:
        actors = [Client(world, _plan(random, one), Random(random.random())) for one in range(number)]
        faults = Faults(world, Random(random.random()), kinds)
        async with asyncio.TaskGroup() as group:
            for actor in actors:
                group.create_task(actor.live())
            if weather == "stormy":
                group.create_task(faults.happen(random.randrange(1, 10), _SECONDS))
        await _settle(world)
        wrong = complaints(
            [actor.seen for actor in actors],
            world.upstreams,
            troubled=bool(losses or faults.told),
        )
        wrong += [f"I8: {key!r} is left" for key in world.left() if b"{" in key]
        wrong += [f"{replica}: runs {replica.service.running}" for replica in world.replicas]
        wrong = [words for words in wrong if not words.endswith("runs ()")]
    ends: dict[str, int] = {}
    for actor in actors:
        status = actor.seen.outcome.status if actor.seen.outcome else "none"
        ends[status] = ends.get(status, 0) + 1
    return Told(seed, wrong, faults.told, actors, loop.steps, ends)


async def _settle(world: World) -> None:
    """Let all be well for long enough that nothing need be left."""
    world.losses = 0.0
    for replica in world.replicas:
        replica.way.losses = replica.upstream_way.losses = 0.0
        replica.resume()
        replica.way.open()
        replica.upstream_way.open()
    await asyncio.sleep(_AFTER)


def _plan(random: Random, number: int) -> Plan:
    return Plan(
        nonce=f"n{number}",
        scope=Scope("sim", random.choice(("p-one", "p-two", "p-three"))),
        upstream=random.choice(("numbered", "plain")),
        dialect=random.choice(_DIALECTS),
        retry=random.random() < 0.3,
        in_turn=random.random() < 0.3,
    )
