"""The bench runs and fills its tables; how fast anything is, is not a test's business."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bench.__main__ import main
from tests.bench.redis_process import CommandParser, find_server
from tests.bench.scenarios import BRIDGED, CALLS

QUICK = ["--quick", "--rounds", "1", "--seconds", "0.1", "--sessions", "20", "--waiters", "40"]
CALL_COLUMNS = {"rate", "p50", "p99", "cpu", "load_cpu", "rss"}
TASK_COLUMNS = CALL_COLUMNS | {"heard_p50", "redis_cpu", "upstream_cpu", "polls"}
WAITER_COLUMNS = {"waiter_kb", "rss", "commands", "waiting_cpu", "answered_p50", "answered"}
# What the gateway's own scenarios measure: the outcomes, their rows and their columns.
OWN = {
    "bridged": (
        [scenario.name for scenario in BRIDGED],
        {"unbridged", "bridged", "bridged, askable"},
        CALL_COLUMNS,
    ),
    "tasks": (["tasks"], {"gateway A", "gateway B", "gateway C"}, TASK_COLUMNS),
    "waiters": (["waiters"], {"1 a task", "100 a task"}, WAITER_COLUMNS),
    "wakes": (["wakes-1", "wakes-8"], {"plain call", "same replica", "other replica"}, {"p50", "p99"}),
}
FIRST_COLUMNS = {"first_p50", "first_p99", "cpu", "load_cpu", "rss"}


async def test_the_bench_fills_every_cell_for_the_bare_proxy(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "bench.json"
    assert (
        await main([*QUICK, "--contender", "direct", "--contender", "bare-uvloop", "--json", str(file)])
        == 0
    )
    found = {outcome["scenario"]: outcome for outcome in msgspec.json.decode(file.read_bytes())["outcomes"]}
    assert set(found) == {scenario.name for scenario in CALLS} | {"idle"}
    for name, outcome in found.items():
        wanted = {"first": FIRST_COLUMNS, "idle": {"session_kb", "rss"}}.get(name, CALL_COLUMNS)
        assert outcome["base"] == "bare-uvloop"
        assert set(outcome["cells"]) == {"bare-uvloop"} | ({"direct"} if name != "idle" else set())
        for cells in outcome["cells"].values():
            assert set(cells) == wanted
            assert None not in cells.values()
    printed = capsys.readouterr().out
    assert "A WRONG ANSWER" not in printed
    assert all(scenario.title in printed for scenario in CALLS)


@pytest.mark.skipif(find_server() is None, reason="there is no Redis server")
@pytest.mark.parametrize("what", OWN)
async def test_the_bench_fills_every_cell_of_the_gateways_own_scenarios(
    tmp_path: Path, capsys: Any, what: str
) -> None:
    outcomes, rows, columns = OWN[what]
    file = tmp_path / "bench.json"
    wanted = outcomes if what == "bridged" else [what]
    only = [word for name in wanted for word in ("--only", name)]
    assert await main([*QUICK, *only, "--contender", "gateway", "--json", str(file)]) == 0
    found = {outcome["scenario"]: outcome for outcome in msgspec.json.decode(file.read_bytes())["outcomes"]}
    assert set(found) == set(outcomes)
    for outcome in found.values():
        assert set(outcome["cells"]) == rows
        for cells in outcome["cells"].values():
            assert {name for name, cell in cells.items() if cell is not None} == columns
    printed = capsys.readouterr().out
    assert "A WRONG ANSWER" not in printed
    assert all(row in printed for row in rows)


def test_the_tap_reads_the_names_of_commands_that_come_in_pieces() -> None:
    ping, get = b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
    wire = ping + b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$6\r\n*1\r\n$9\r\n" + get
    parser = CommandParser()
    names = [name for at in range(len(wire)) for name in parser.feed(wire[at : at + 1])]
    assert names == ["PING", "SET", "GET"]
