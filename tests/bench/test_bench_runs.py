"""The bench runs and fills its tables; how fast anything is, is not a test's business."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bench.__main__ import main
from tests.bench.contenders import Contender
from tests.bench.figures import Outcome
from tests.bench.memory import RUNNING, STORED
from tests.bench.model import on_paper
from tests.bench.redis_process import CommandParser, find_server
from tests.bench.replicas import ALONE, WORKS, configured
from tests.bench.scale import SCALE
from tests.bench.scenarios import BRIDGED, CALLS
from tests.bench.stored import STEPS
from tests.bench.wire import Target

QUICK = ["--quick", "--rounds", "1", "--seconds", "0.3", "--sessions", "20", "--waiters", "40"]
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
REPLICA_COLUMNS = (CALL_COLUMNS - {"rss"}) | {"redis_cpu", "all_cpu", "scripts", "redis_kb", "client_kb"}
FLEETS = {"1 alone", "1 behind HAProxy", "2 behind HAProxy", "serve --workers 2"}
MEMORY_COLUMNS = {"task_kb", "usage_kb", "over_kb", "keys"}
# The same of the scenarios of scale, and the columns that only some of the rows have.
AT_SCALE = {
    **{
        f"replicas-{work.name}": (
            FLEETS if shutil.which("haproxy") else {name for name in FLEETS if "HAProxy" not in name},
            REPLICA_COLUMNS,
            {"balancer_cpu"},
        )
        for work in WORKS
    },
    **{f"stored-{step}": ({"empty", "full"}, {"each", "redis_cpu"}, set[str]()) for step in STEPS},
    "streams": (
        {"gateway"},
        {"session_kb", "rss", "opened", "open_cpu", "waiting_cpu", "answered_p50", "answered"},
        set[str](),
    ),
    "memory": ({*STORED, RUNNING}, MEMORY_COLUMNS, {"replica_kb"}),
}
SIZES = {"1 kB": 2.0, "100 kB": 130.0}
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


@pytest.mark.skipif(find_server() is None, reason="there is no Redis server")
async def test_the_bench_fills_every_cell_of_the_scenarios_of_scale(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "bench.json"
    only = [word for name in SCALE for word in ("--only", name)]
    assert await main([*QUICK, *only, "--contender", "gateway", "--json", str(file)]) == 0
    found = {outcome["scenario"]: outcome for outcome in msgspec.json.decode(file.read_bytes())["outcomes"]}
    assert set(found) == set(AT_SCALE)
    for name, (rows, columns, some) in AT_SCALE.items():
        assert set(found[name]["cells"]) == rows
        for cells in found[name]["cells"].values():
            assert {column for column, cell in cells.items() if cell is not None} - some == columns
    printed = capsys.readouterr().out
    assert "A WRONG ANSWER" not in printed
    assert all(f"{step} " in printed for step in STEPS.values())
    assert "a second, 579 at a peak" in printed
    assert "GB of Redis, 100 kB kept for 24 h" in printed


def test_the_model_on_paper_divides_a_day_into_seconds_and_multiplies_what_was_measured() -> None:
    # Ten million in 86,400 s are 115.74 a second, and 578.7 at five times that.
    cost = {
        "cpu": 2.0,
        "balancer_cpu": 0.5,
        "redis_cpu": 0.25,
        "client_kb": 3.0,
        "redis_kb": 6.0,
        "scripts": 5.0,
    }
    sizes = {f"{dialect}, {size}": [{"task_kb": kb}] for dialect in "AC" for size, kb in SIZES.items()}
    memory = Outcome("memory", "", "", sizes | {RUNNING: [{"task_kb": 3.0, "replica_kb": 10.0}]})
    fleets = [Outcome(f"replicas-{name}", "", ALONE, {ALONE: [cost]}) for name in ("a", "c")]
    rows = {line.split("  ")[0]: line.split()[-4:] for line in on_paper([*fleets, memory]).splitlines()}
    assert rows["cores of replicas"] == ["0.23", "1.16", "0.23", "1.16"]
    assert rows["replicas, a core 50% used"] == ["1", "3", "1", "3"]
    assert rows["cores of HAProxy"] == ["0.06", "0.29", "0.06", "0.29"]
    assert rows["scripts of Redis a second"] == ["578.70", "2,893.52", "578.70", "2,893.52"]
    # 115.74 x 3,600 x 2 kB, and x 86,400 of a day whose peaks are in the mean.
    assert rows["GB of Redis, 1 kB kept for 1 h"][:2] == ["0.83", "4.17"]
    assert rows["GB of Redis, 1 kB kept for 24 h"][:2] == ["20.00", "20.00"]
    assert "measured in the same run" in on_paper(fleets)


def test_haproxy_of_the_bench_has_each_replica_in_both_backends_and_no_other() -> None:
    replicas = [Contender(str(port), Target(port, "/mcp"), [], admin=port + 1) for port in (5001, 5003)]
    text = configured(5000, replicas)
    assert text.count("127.0.0.1:5001 port 5002\n") == text.count("127.0.0.1:5003 port 5004\n") == 2
    assert "gateway-3" not in text
    assert text.count("bind 127.0.0.1:5000\n") == 1


def test_the_tap_reads_the_names_of_commands_that_come_in_pieces() -> None:
    ping, get = b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
    wire = ping + b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$6\r\n*1\r\n$9\r\n" + get
    parser = CommandParser()
    names = [name for at in range(len(wire)) for name in parser.feed(wire[at : at + 1])]
    assert names == ["PING", "SET", "GET"]
