"""What the documents say of the code is so, and what the code has is in the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from gateway.cli import main
from gateway.config.model import Config
from gateway.config.units import show_duration
from gateway.config.upstream import TasksConfig
from gateway.observe.metrics import Metrics
from gateway.observe.reference import FILE, reference, rows
from gateway.protocol.eras import HANDSHAKE, STATELESS
from gateway.tasks.model import DialectName
from tests import deployment, readme
from tests.processes import ROOT

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def words_of(name: str) -> str:
    """Return a document with every white space as one blank."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def rooms() -> set[str]:
    """Return the rooms: the packages under `gateway/`."""
    return {file.parent.name for file in (ROOT / "gateway").glob("*/__init__.py")}


def links(name: str) -> Iterator[str]:
    """Yield where the links of a document lead."""
    yield from re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text(encoding="utf-8"))


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(readme.text().splitlines()) < 300


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_of_a_document_leads_somewhere(name: str) -> None:
    for link in links(name):
        target = link.partition("#")[0]
        assert "://" not in link
        assert (ROOT / target).exists(), link


def test_the_table_of_rooms_is_the_house() -> None:
    table = readme.text().partition("| room |")[2].partition("\n\n")[0]
    named = [name for cell in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in cell.split()]
    found = [name.strip("`") for name in named]
    assert len(found) == len(set(found))
    modules = {name for name in found if (ROOT / "gateway" / f"{name}.py").is_file()}
    assert set(found) - modules == rooms()
    assert modules == {file.stem for file in (ROOT / "gateway").glob("*.py")} - {"__init__", "__main__"}


def test_the_readme_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        assert f"`{command}`" in readme.text()
        assert re.search(rf"mcp-task-gateway {command}\b", readme.text()), command


def test_the_readme_tells_the_limits_that_are_the_defaults() -> None:
    config, tasks = Config(), TasksConfig()
    limits, rates = config.limits, config.limits.rates
    said = words_of("README.md")
    keep, most = tasks.keep_alive.default, tasks.keep_alive.max
    assert keep is not None
    assert most is not None
    assert (show_duration(keep), show_duration(most)) == ("1h", "1d")
    assert "1 h unless asked for, 24 h at most" in said
    assert f"for {tasks.timeout // 3_600_000} h (`timeout`)" in said
    assert f"{limits.tasks_per_scope} running and {limits.stored_tasks_per_scope} kept tasks" in said
    asked = [(rate or "").partition("/") for rate in (rates.create, rates.get, rates.result, rates.list)]
    assert {unit for _, _, unit in asked} == {"minute"}
    for (number, _, _), what in zip(asked, ("creations", "`tasks/get`", "`tasks/result`", ""), strict=True):
        assert f"{number} {what}".strip() in said
    assert f"with {limits.anonymous_tasks} running tasks of an upstream (`anonymous_tasks`)" in said
    # Counted from its creation a task is kept for as long as it may run at least.
    assert keep < tasks.timeout < most
    assert f"`ttl` is between {tasks.timeout // 3_600_000} h and {most // 3_600_000} h" in said
    assert f"within {config.lease * 4 // 3000} s (`lease` and a third of it)" in said
    assert f"It listens on {config.listen.host}." in said


def test_the_readme_speaks_of_every_version_and_dialect() -> None:
    text = readme.text()
    assert f"protocol {HANDSHAKE[0]} to {HANDSHAKE[-1]}" in text
    assert all(version in text for version in STATELESS)
    head = next(line for line in text.splitlines() if line.startswith("| | "))
    letters = [cell.strip().lower() for cell in head.split("|")[2:-1]]
    assert set(letters) == set(get_args(DialectName)) - {"none"}


def test_the_metrics_reference_is_made_from_the_code() -> None:
    assert FILE.read_text(encoding="utf-8") == reference(), "run: python -m gateway.observe.reference"


def test_the_metrics_reference_has_every_metric_and_its_labels() -> None:
    metrics = Metrics("0.0.0")
    deployment.count_once(metrics)
    exposed = deployment.exposed(metrics)
    found = {row.name: set(row.labels) for row in rows()}
    for name, labels in exposed.items():
        if name.startswith("mcp_"):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert found[family] == labels - {"le", "job", "instance"}, name
    assert len(found) == len(
        {re.sub(r"_(bucket|sum|count)$", "", n) for n in exposed if n.startswith("mcp_")}
    )


def test_every_label_of_a_metric_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \| (?!counter|gauge|histogram)", reference(), re.MULTILINE))
    used = {label for row in rows() for label in row.labels}
    assert used - explained == {"version", "python"}


def test_contributing_names_every_level_of_the_tests() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    levels = {file.parent.name for file in (ROOT / "tests").glob("*/test_*.py")}
    assert levels - set(re.findall(r"`tests/(\w+)/?`", text)) == set()


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[0] == "## Unreleased"
    assert all(line.startswith(("# ", "## ", "- ", "  ")) for line in lines if line)


def test_every_target_of_the_makefile_is_documented() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", Path(ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for target in phony[1].split():
        assert f"`make {target}`" in text
