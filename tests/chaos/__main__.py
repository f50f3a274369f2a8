"""`python -m tests.chaos [--seed N] [--tasks N] [--faults N]`: run chaos, judge it, print the figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.chaos import history as histories
from tests.chaos.checker import check
from tests.chaos.report import extract, figures, table, told_violations
from tests.chaos.run import long, run, short
from tests.tools import ToolMissing

_HISTORY: Final = "history.jsonl"
# Says that a folder is one of ours.
_SEED: Final = "seed.txt"


def main() -> int:
    """Run; return 0 where nothing was violated."""
    words = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    words.add_argument(
        "--seed", type=int, default=None, help="of an earlier run, to have its schedule again"
    )
    words.add_argument("--tasks", type=int, default=10_000)
    words.add_argument("--faults", type=int, default=200)
    words.add_argument("--short", action="store_true", help="the form that is in the test run")
    words.add_argument("--out", type=Path, default=None, help="a folder for history, logs and figures")
    words.add_argument("--judge", type=Path, default=None, help="judge the history of an earlier run again")
    words.add_argument("--about", default="", help="with --judge: tell all about one call")
    given = words.parse_args()
    if given.judge is not None:
        return _judge(given.judge, given.about)
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    size = short(seed) if given.short else long(seed, given.tasks, given.faults)
    place = given.out or Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
    if place.is_dir() and any(place.iterdir()):
        if not (place / _SEED).exists():
            words.error(f"{place} holds other things than an earlier run; name a new folder")
        # What an earlier run said there is not this one's.
        shutil.rmtree(place)
    place.mkdir(parents=True, exist_ok=True)
    (place / _SEED).write_text(f"{seed}\n", encoding="ascii")
    about = f"{size.tasks} calls, {size.faults} faults, about {size.seconds:.0f} s"
    _say(f"chaos: seed {seed}, {about}; in {place}")
    try:
        history, measured = asyncio.run(run(size, place, _say))
    except ToolMissing as missing:
        _say(str(missing))
        return 2
    histories.write(history, place / _HISTORY)
    violations = check(history)
    found = figures(size, history, measured, violations)
    (place / "figures.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    _say(table(found))
    if violations:
        _say(told_violations(violations))
        _say(f"again: make chaos SEED={seed} TASKS={size.tasks} FAULTS={size.faults}")
    else:
        _say("nothing was violated of the rules in tests/chaos/checker.py")
    return 1 if violations else 0


def _judge(file: Path, about: str) -> int:
    history = histories.read(file)
    if about:
        _say("\n".join(extract(history, about)))
        return 0
    violations = check(history)
    _say(told_violations(violations, 400))
    return 1 if violations else 0


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
