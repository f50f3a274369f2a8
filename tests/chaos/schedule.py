"""The schedule of faults of a run: made from a seed alone, so that it can be made again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Name: TypeAlias = Literal[
    "replica_kill",
    "replica_stop_short",
    "replica_stop_long",
    "replica_term",
    "replicas_roll",
    "redis_cut",
    "redis_partition",
    "redis_slow",
    "redis_restart",
    "redis_pause",
    "redis_drop_all",
    "upstream_cut",
    "upstream_partition",
    "upstream_drop_all",
    "upstream_kill",
    "upstream_hang",
    "child_kill",
    "child_hang",
    "balancer_reload",
]

# How often each comes, and how long it lasts: in leases, from and to.
WEIGHTS: Final[dict[Name, tuple[int, float, float]]] = {
    "replica_kill": (5, 0.1, 1.5),
    "replica_stop_short": (3, 0.1, 0.6),
    "replica_stop_long": (3, 1.5, 2.5),
    "replica_term": (3, 0.1, 0.3),
    "replicas_roll": (1, 0.1, 0.2),
    "redis_cut": (3, 0.0, 0.0),
    "redis_partition": (3, 0.3, 2.0),
    "redis_slow": (2, 0.5, 2.0),
    "redis_restart": (2, 0.05, 0.5),
    "redis_pause": (2, 0.1, 0.6),
    "redis_drop_all": (2, 0.0, 0.0),
    "upstream_cut": (3, 0.0, 0.0),
    "upstream_partition": (2, 0.2, 1.5),
    "upstream_drop_all": (2, 0.0, 0.0),
    "upstream_kill": (3, 0.05, 0.5),
    "upstream_hang": (2, 0.2, 1.5),
    "child_kill": (2, 0.0, 0.0),
    "child_hang": (1, 0.3, 1.0),
    "balancer_reload": (2, 0.0, 0.0),
}
# These take a replica away or make it another process: the first replica is spared, so that somebody serves
# and its memory can be compared.
AWAY: Final = frozenset(
    {"replica_kill", "replica_stop_short", "replica_stop_long", "replica_term", "replicas_roll"}
)
HTTP: Final = ("events", "plain")


@dataclass(frozen=True)
class Planned:
    """A fault to come: when it begins (seconds from the start), what, to whom, for how long (seconds)."""

    at: float
    name: Name
    target: str
    seconds: float


def plan(seed: int, faults: int, seconds: float, lease: float, replicas: int) -> list[Planned]:
    """Return so many faults spread over `seconds`; the last quarter of each tenth of that is calm."""
    dice = random.Random(f"schedule {seed}")
    return list(_plan(dice, faults, seconds, lease, replicas))


def _plan(
    dice: random.Random, faults: int, seconds: float, lease: float, replicas: int
) -> Iterator[Planned]:
    deck: list[Name] = []
    for at in _times(dice, faults, seconds):
        if not deck:
            # A deck and not a die: a short run has most kinds too.
            deck = [name for name, (weight, _, _) in WEIGHTS.items() for _ in range(weight)]
            dice.shuffle(deck)
        name = deck.pop()
        _, least, most = WEIGHTS[name]
        yield Planned(
            round(at, 3), name, _target(dice, name, replicas), round(lease * dice.uniform(least, most), 3)
        )


def _times(dice: random.Random, faults: int, seconds: float) -> Sequence[float]:
    part = seconds / 10
    return sorted((number * 10 // faults) * part + dice.uniform(0, 0.75) * part for number in range(faults))


def _target(dice: random.Random, name: Name, replicas: int) -> str:
    first = 1 if name in AWAY and replicas > 1 else 0
    replica = f"replica{dice.randrange(first, replicas)}"
    upstream = dice.choice(HTTP)
    if name.startswith(("upstream_kill", "upstream_hang", "upstream_drop_all")):
        return upstream
    if name.startswith("upstream_"):
        return f"{replica} {upstream}"
    if name.startswith("child_"):
        return "child"
    if name in ("replica_kill", "replica_stop_short", "replica_stop_long", "replica_term"):
        return replica
    if name in ("redis_cut", "redis_partition"):
        return replica
    return "all"
