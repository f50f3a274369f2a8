"""Run the conformance suites against a URL and read what they say, check by check."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from tests.tools import npm_program

PACKAGE = "@modelcontextprotocol/conformance"
LIMIT = 300.0

Release: TypeAlias = Literal["conformance", "conformance-next"]
# Scenario, check and its number among those of one name; the word of the suite: SUCCESS, FAILURE, WARNING.
Verdicts: TypeAlias = dict[tuple[str, str, int], str]

# INFO tells of traffic, not of the server; SKIPPED tells of the suite.
SILENT = frozenset({"INFO", "SKIPPED"})


def run_suite(url: str, release: Release, place: Path, *arguments: str) -> Verdicts:
    """Run `conformance server` with arguments; raise `AssertionError` where it judges nothing.

    The suite's results go to files below `place`, its words to `place/output.txt`. Its exit code
    tells only that a check failed, which the verdicts tell better.
    """
    place.mkdir(parents=True)
    command = [
        *npm_program(release, PACKAGE),
        "server",
        "--url",
        url,
        "--output-dir",
        str(place),
        *arguments,
    ]
    with (place / "output.txt").open("wb") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    verdicts: Verdicts = {}
    for file in sorted(place.glob("server-*/checks.json")):
        # The folder's name is server-, the scenario and the time of its run.
        scenario = file.parent.name.removeprefix("server-")[: -len("-2026-11-29T19-30-27-020Z")]
        numbers: Counter[str] = Counter()
        for check in cast("list[dict[str, Any]]", json.loads(file.read_text(encoding="utf-8"))):
            if check["status"] not in SILENT:
                numbers[check["id"]] += 1
                verdicts[scenario, check["id"], numbers[check["id"]]] = check["status"]
    assert verdicts, (place / "output.txt").read_text(encoding="utf-8", errors="replace")
    return verdicts


def passed(verdicts: Verdicts) -> int:
    """Return how many checks passed."""
    return sum(verdict == "SUCCESS" for verdict in verdicts.values())


def lost(direct: Verdicts, behind: Verdicts) -> list[str]:
    """Return the checks that passed directly and did not behind the gateway, with what was said there."""
    return [
        f"{scenario}: {check} #{number}: {behind.get((scenario, check, number), 'not reached')}"
        for (scenario, check, number), verdict in direct.items()
        if verdict == "SUCCESS" and behind.get((scenario, check, number)) != "SUCCESS"
    ]
