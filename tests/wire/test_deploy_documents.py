"""The pages of `deploy/`: their commands run, their links lead somewhere, their options are there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import charts
from tests.deployment import DEPLOY
from tests.processes import ROOT
from tests.tools import venv_program

PAGES = ["README.md", "SIZING.md"]
# What needs a cluster, or does not end, is asked for what it would do.
INSTEAD = {
    "helm install": "helm template",
    "kubectl apply -k": "kubectl kustomize",
    "envoy -c": "envoy --mode validate -c",
}
RUN = {"helm", "kubectl", "envoy"}
# Run by other tests: in containers of their own, or in front of replicas.
ELSEWHERE = {"docker", "haproxy", "nginx", "traefik"}


def commands() -> list[str]:
    """Return the commands of the page, without comments."""
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of `deploy/` to run commands at, as somebody would who has filled in the secrets."""
    place = tmp_path_factory.mktemp("copy")
    shutil.copytree(DEPLOY, place / "deploy")
    return place


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_works(command: str, copy: Path) -> None:
    for old, new in INSTEAD.items():
        command = command.replace(old, new)
    word, *rest = command.split()
    if word in RUN:
        command = " ".join([str(venv_program("deploy", word)), *rest])
        shutil.copy(copy / "deploy/kubernetes/env.example", copy / "deploy/kubernetes/.env")
    elif word in ELSEWHERE:
        assert all((copy / name).exists() for name in re.findall(r"deploy/\S+", command))
        return
    done = charts.run(["/bin/sh", "-ec", command], place=copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", (DEPLOY / page).read_text(encoding="utf-8")):
        assert (DEPLOY / link).exists(), link


def test_the_knobs_of_the_sizing_page_are_options() -> None:
    text = (DEPLOY / "SIZING.md").read_text(encoding="utf-8").partition("## What each knob costs")[2]
    reference = (ROOT / "gateway/config/REFERENCE.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `(\w+)` ", reference, re.MULTILINE))
    rows = re.findall(r"^\| ([^|]+) \|", text.partition("## Redis")[0], re.MULTILINE)[2:]
    assert len(rows) > 20
    for row in rows:
        for words in re.findall(r"`([^`]+)`", row):
            assert words.partition(":")[0].rpartition(".")[2] in known, words


def test_there_is_a_page_for_every_folder_and_file() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "deploy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for name in {Path(line).parts[1] for line in tracked} - {"README.md"}:
        assert name in page, name
