"""`python -m tests.simulation`: run seeds until time is over; the first that goes wrong is told whole."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.simulation.story import simulate


def main() -> int:
    """Run; return 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--one", action="store_true", help="that seed alone, with all that is logged")
    parser.add_argument("--clients", type=int, default=12)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if asked.one else logging.CRITICAL)
    began, clock = time.perf_counter(), time.perf_counter
    seed, steps, ends, bad = asked.seed, 0, Counter[str](), 0
    while clock() - began < asked.seconds:
        told = simulate(seed, clients=asked.clients)
        steps += told.steps
        ends.update(told.ends)
        if told.wrong or asked.one:
            bad += bool(told.wrong)
            sys.stdout.write(f"seed {seed}\n")
            for at, what in told.faults:
                sys.stdout.write(f"  {at:8.3f} {what}\n")
            for words in told.wrong:
                sys.stdout.write(f"  {words}\n")
        if asked.one or bad > 5:
            break
        seed += 1
    took = clock() - began
    number = seed - asked.seed
    sys.stdout.write(f"{number} simulations in {took:.1f} s, {steps / took:.0f} steps/s, {dict(ends)}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
