"""The stateless era and the bridge against their vectors (2026-07-28)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.cold.playbook_bridge import HandshakeClient, StatelessClient
from tests.cold.traces import Case, alike, cases, files, filled, read, slug

FILES: Final = files("s")
CASES: Final = [pytest.param(case, id=name) for name, case in cases("s")]


@pytest.mark.parametrize("case", CASES)
def test_the_vectors_of_the_stateless_era_hold(case: Case) -> None:
    handshake = case.given.get("client") == "handshake"
    table, known = (HandshakeClient if handshake else StatelessClient)(case.given), dict[str, Any]()
    for number, step in enumerate(case.steps, 1):
        at_once = cast("list[Any]", step.message) if isinstance(step.message, list) else [step.message]
        messages = [json.dumps(filled(one, known), ensure_ascii=False).encode() for one in at_once]
        out = table.play(step.sender, messages, step.headers)
        told = f"step {number} gave {json.dumps(out, indent=1, ensure_ascii=False)}"
        assert alike(step.out, out, known), told


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_a_vector_is_named_after_its_page_and_section(path: Path) -> None:
    vector = read(path)
    assert path.stem[2:] == slug(vector.rule)
    assert len({case.name for case in vector.cases}) == len(vector.cases)
